//! What could be in each CPU's TLB, of which VM and under which VMID, going by the writes of VTTBR_EL2 and the invalidations that are seen.
//!
//! Whatever VTTBR_EL2 holds may be walked at any time. So from a VM's tables being there until an invalidation, entries of that VM may be
//! under its VMID. If the VMID then comes with another VM's tables, before an invalidation, one VM may see another's memory: that is
//! what must never be. A VM is known by its stage-2 root. VMID 0 is for nobody: a root that comes with it is an empty one, of which no entry
//! can be made.

use std::collections::{BTreeMap, BTreeSet};

use crate::tlbi::Tlbi;

/// A VMID and the root of a VM's tables: what VTTBR_EL2 holds, CnP aside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Vttbr {
    vmid: u16,
    root: u64,
}

impl Vttbr {
    fn of(value: u64) -> Self {
        Vttbr { vmid: (value >> 48) as u16, root: value & 0xffff_ffff_fffe }
    }
}

/// What could be in a CPU's TLB.
#[derive(Debug, Default)]
struct Cpu {
    vttbr: Vttbr,
    /// The VM, by its root, whose entries may be there, for each VMID.
    entries: BTreeMap<u16, u64>,
}

/// All CPUs' TLBs, and how VMs were met with there.
#[derive(Debug, Default)]
pub struct Ghosts {
    cpus: BTreeMap<u64, Cpu>,
    empty: BTreeSet<u64>,
    /// Times that a VM's tables came into VTTBR_EL2 with entries of its own left there under its VMID.
    pub warm: u64,
    /// Without any.
    pub cold: u64,
    /// With another VM's.
    pub stale: u64,
}

impl Ghosts {
    /// The CPU writes VTTBR_EL2.
    pub fn vttbr(&mut self, cpu: u64, value: u64) {
        let new = Vttbr::of(value);
        if new.vmid == 0 {
            self.empty.insert(new.root);
        }
        let cpu = self.cpus.entry(cpu).or_default();
        cpu.vttbr = new;
        if self.empty.contains(&new.root) {
            return;
        }
        match cpu.entries.insert(new.vmid, new.root) {
            None => self.cold += 1,
            Some(root) if root == new.root => self.warm += 1,
            Some(_) => self.stale += 1,
        }
    }

    /// The CPU executes an invalidation. Those of stage 1 alone, or of a page, leave something.
    pub fn invalidates(&mut self, cpu: u64, kind: Tlbi) {
        let vmid = self.cpus.entry(cpu).or_default().vttbr.vmid;
        match kind {
            Tlbi::Alle1Is => self.cpus.values_mut().for_each(|cpu| cpu.forget(|_| true)),
            Tlbi::Vmalls12e1Is => self.cpus.values_mut().for_each(|cpu| cpu.forget(|other| other == vmid)),
            Tlbi::Alle1 => self.cpus.entry(cpu).or_default().forget(|_| true),
            Tlbi::Vmalls12e1 => self.cpus.entry(cpu).or_default().forget(|other| other == vmid),
            Tlbi::Ipas2e1Is | Tlbi::Vmalle1Is | Tlbi::Vmalle1 | Tlbi::Own | Tlbi::Other => {}
        }
    }
}

impl Cpu {
    /// Forgets VMIDs. The VM whose tables are in VTTBR_EL2 may have entries again at once.
    fn forget(&mut self, wanted: impl Fn(u16) -> bool) {
        let live = self.vttbr;
        self.entries.retain(|vmid, root| !wanted(*vmid) || (*vmid, *root) == (live.vmid, live.root));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARKED: u64 = 0x5000_0000;

    fn vttbr(vmid: u64, root: u64) -> u64 {
        vmid << 48 | root | 1
    }

    /// Two CPUs with VTTBR_EL2 parked.
    fn ghosts() -> Ghosts {
        let mut ghosts = Ghosts::default();
        [0, 1].iter().for_each(|cpu| ghosts.vttbr(*cpu, PARKED));
        ghosts
    }

    fn met(ghosts: &Ghosts) -> [u64; 3] {
        [ghosts.cold, ghosts.warm, ghosts.stale]
    }

    #[test]
    fn a_vm_that_comes_back_is_warm_until_it_is_invalidated() {
        let mut ghosts = ghosts();
        for _ in 0..2 {
            ghosts.vttbr(0, vttbr(1, 0x1000));
            ghosts.vttbr(0, PARKED);
        }
        assert_eq!(met(&ghosts), [1, 1, 0]);
        ghosts.vttbr(1, vttbr(1, 0x1000));
        assert_eq!(met(&ghosts), [2, 1, 0], "each CPU has its own");
        ghosts.invalidates(1, Tlbi::Alle1Is);
        ghosts.vttbr(0, vttbr(1, 0x1000));
        ghosts.vttbr(1, vttbr(1, 0x1000));
        assert_eq!(met(&ghosts), [3, 2, 0], "it stayed in VTTBR_EL2 of CPU 1");
    }

    #[test]
    fn another_vm_under_a_vmid_is_stale_unless_that_vmid_was_invalidated() {
        for (kind, by, stale) in [
            (None, 0, 1),
            (Some(Tlbi::Vmalle1), 0, 1),
            (Some(Tlbi::Ipas2e1Is), 0, 1),
            (Some(Tlbi::Alle1), 1, 1),
            (Some(Tlbi::Vmalls12e1), 1, 1),
            (Some(Tlbi::Alle1), 0, 0),
            (Some(Tlbi::Vmalls12e1), 0, 0),
            (Some(Tlbi::Vmalls12e1Is), 1, 0),
            (Some(Tlbi::Alle1Is), 1, 0),
        ] {
            let mut ghosts = ghosts();
            ghosts.vttbr(0, vttbr(1, 0x1000));
            ghosts.vttbr(0, PARKED);
            if let Some(kind) = kind {
                // Under the VMID, with an empty root.
                ghosts.vttbr(by, vttbr(1, PARKED));
                ghosts.invalidates(by, kind);
                ghosts.vttbr(by, PARKED);
            }
            ghosts.vttbr(0, vttbr(1, 0x2000));
            assert_eq!(ghosts.stale, stale, "{kind:?} by CPU {by}");
        }
    }

    #[test]
    fn another_vmids_invalidation_changes_nothing() {
        let mut ghosts = ghosts();
        ghosts.vttbr(0, vttbr(1, 0x1000));
        ghosts.vttbr(0, vttbr(2, PARKED));
        ghosts.invalidates(0, Tlbi::Vmalls12e1Is);
        ghosts.vttbr(0, vttbr(1, 0x2000));
        assert_eq!(met(&ghosts), [1, 0, 1]);
    }

    #[test]
    fn a_vm_that_runs_on_keeps_its_entries_through_a_rollover() {
        let mut ghosts = ghosts();
        ghosts.vttbr(0, vttbr(1, 0x1000));
        ghosts.invalidates(1, Tlbi::Alle1Is);
        ghosts.vttbr(0, PARKED);
        ghosts.vttbr(0, vttbr(1, 0x2000));
        assert_eq!(ghosts.stale, 1, "the VMID was in use all the time");
    }
}
