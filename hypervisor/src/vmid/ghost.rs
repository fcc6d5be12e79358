//! A ghost of the TLBs (`vmid.ghost=on`): whose entries each CPU may hold under each VMID, kept in software while the machine runs.
//!
//! It believes the worst: as long as VTTBR_EL2 holds a VMID, its VM's entries are there, and they stay until an invalidation that covers them
//! begins. So no VM may come to a VMID under which a CPU has another's, and none may be live on two CPUs for two VMs. The allocator's own
//! state isn't looked at: what it believes is what is on trial.
//!
//! One lock for all of it, as what matters here is that it is right. It costs a switch nothing when off, but for the question.

use crate::ids::{CpuId, VmId, Vmid};
use crate::sync::Mutex;
use alloc::{boxed::Box, vec, vec::Vec};
use core::fmt;

/// An invalidation, by what it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covers {
    /// All VMIDs, on every CPU.
    All,
    /// One VMID, on every CPU.
    Vmid(Vmid),
    /// All VMIDs, on the CPU that does it.
    AllHere,
    /// One VMID, on the CPU that does it.
    VmidHere(Vmid),
}

/// A VM from its start to its end or its next reset: what is cached of a former life is as wrong as another VM's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// The VM.
    pub vm: VmId,
    /// How often it had started again.
    pub life: u32,
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.life {
            0 => write!(f, "VM {}", self.vm.0),
            life => write!(f, "VM {} (reset {life})", self.vm.0),
        }
    }
}

/// What must never be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Haunted {
    /// Who comes.
    pub guest: Guest,
    /// The CPU that it comes to.
    pub cpu: CpuId,
    /// Its VMID.
    pub vmid: Vmid,
    /// Who had that VMID before, or has it; or the same one, under another VMID.
    pub owner: Guest,
    /// The CPU that runs the owner, and under which VMID; `None`: its entries are left on this one.
    pub live_on: Option<(CpuId, Vmid)>,
    /// How many invalidations of everything on this CPU there have been.
    pub flushes: u64,
}

impl fmt::Display for Haunted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Haunted { guest, cpu, vmid, owner, live_on, flushes } = self;
        write!(f, "ghost TLB: {guest} enters CPU {} under VMID {}, ", cpu.0, vmid.0)?;
        match live_on {
            Some((other, live)) if live == vmid => {
                write!(f, "which {owner} runs under on CPU {} now", other.0)
            }
            Some((other, live)) => write!(f, "and runs under VMID {} on CPU {} now", live.0, other.0),
            None => write!(f, "under which {owner} has left entries since the CPU's flush no. {flushes}"),
        }
    }
}

/// What became of working sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GhostCounters {
    /// Entries into a VM whose translations the CPU had kept from its last time there.
    pub warm: u64,
    /// Entries into a VM of which the CPU had nothing.
    pub cold: u64,
    /// CPUs that ran a VM when all its translations were invalidated.
    pub lost_running: u64,
}

/// A CPU's ghost.
struct Shade {
    /// For each VMID whose entries there are.
    owners: Box<[Option<Guest>]>,
    /// What VTTBR_EL2 holds, if it isn't parked.
    live: Option<(Vmid, Guest)>,
    flushes: u64,
}

impl Shade {
    fn owner(&mut self, vmid: Vmid) -> Option<&mut Option<Guest>> {
        self.owners.get_mut(usize::from(vmid.0))
    }

    /// Forgets what is covered; what is live fills again at once. Whether something live was lost.
    fn forget(&mut self, vmid: Option<Vmid>) -> bool {
        match vmid {
            None => {
                self.owners.fill(None);
                self.flushes += 1;
            }
            Some(vmid) => {
                if let Some(owner) = self.owner(vmid) {
                    *owner = None;
                }
            }
        }
        let lost = self.live.filter(|(live, _)| vmid.is_none_or(|vmid| vmid == *live));
        if let Some((live, guest)) = lost
            && let Some(owner) = self.owner(live)
        {
            *owner = Some(guest);
        }
        lost.is_some()
    }
}

struct Ghosts {
    cpus: Vec<Shade>,
    /// It has found something, and the machine stops: once is enough, as reports of several CPUs would get into each other's way.
    found: bool,
    counters: GhostCounters,
}

impl Ghosts {
    fn enter(&mut self, cpu: CpuId, vmid: Vmid, guest: Guest) -> Result<(), Haunted> {
        // Two under one VMID, or one under two.
        let live = |shade: &Shade| shade.live.filter(|(live, owner)| (*live == vmid) != (*owner == guest));
        let other = (0..).map(CpuId).zip(&self.cpus).filter(|(other, _)| *other != cpu);
        let other = other.filter_map(|(other, shade)| Some((other, live(shade)?))).next();
        let Some(shade) = self.cpus.get_mut(cpu.index()) else { return Ok(()) };
        let haunted = |owner, live_on, flushes| Haunted { guest, cpu, vmid, owner, live_on, flushes };
        if let Some((other, (live, owner))) = other {
            return Err(haunted(owner, Some((other, live)), shade.flushes));
        }
        shade.live = Some((vmid, guest));
        let flushes = shade.flushes;
        let Some(owner) = shade.owner(vmid) else { return Ok(()) };
        match *owner {
            None => self.counters.cold += 1,
            Some(owner) if owner == guest => self.counters.warm += 1,
            Some(owner) => return Err(haunted(owner, None, flushes)),
        }
        *owner = Some(guest);
        Ok(())
    }
}

/// The ghosts of all TLBs.
pub struct Ghost(Mutex<Ghosts>);

impl Ghost {
    /// For so many CPUs, with VMIDs from 1 to `usable`.
    pub fn new(cpus: usize, usable: u32) -> Ghost {
        let shade = || Shade { owners: vec![None; usable as usize + 1].into(), live: None, flushes: 0 };
        Ghost(Mutex::new(Ghosts {
            cpus: (0..cpus).map(|_| shade()).collect(),
            found: false,
            counters: GhostCounters::default(),
        }))
    }

    /// Memory that this takes for so many CPUs and VMIDs, in bytes.
    pub fn heap_bytes(cpus: usize, vmids: usize) -> usize {
        cpus * (size_of::<Shade>() + size_of::<Option<Guest>>() * vmids + 64)
    }

    /// A CPU is about to write a VM's VMID to VTTBR_EL2.
    ///
    /// # Errors
    /// It could meet another's entries, or another its own. Only the first time: the machine is to be stopped then.
    pub fn enter(&self, cpu: CpuId, vmid: Vmid, guest: Guest) -> Result<(), Haunted> {
        let ghosts = &mut *self.0.lock();
        if ghosts.found {
            return Ok(());
        }
        let entered = ghosts.enter(cpu, vmid, guest);
        ghosts.found = entered.is_err();
        entered
    }

    /// A CPU has parked VTTBR_EL2, and may give up its VMID from now on.
    pub fn leave(&self, cpu: CpuId) {
        if let Some(shade) = self.0.lock().cpus.get_mut(cpu.index()) {
            shade.live = None;
        }
    }

    /// A CPU is about to invalidate. Entries that others make before it is done count as made after it.
    pub fn forget(&self, cpu: CpuId, covers: Covers) {
        let ghosts = &mut *self.0.lock();
        let (all, vmid) = match covers {
            Covers::All => (true, None),
            Covers::Vmid(vmid) => (true, Some(vmid)),
            Covers::AllHere => (false, None),
            Covers::VmidHere(vmid) => (false, Some(vmid)),
        };
        let range = if all { 0..ghosts.cpus.len() } else { cpu.index()..cpu.index() + 1 };
        for shade in ghosts.cpus.get_mut(range).unwrap_or_default() {
            ghosts.counters.lost_running += u64::from(shade.forget(vmid));
        }
    }

    /// What became of working sets so far.
    pub fn counters(&self) -> GhostCounters {
        self.0.lock().counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Guest = Guest { vm: VmId(0), life: 0 };
    const B: Guest = Guest { vm: VmId(1), life: 0 };
    const V: Vmid = Vmid(3);

    fn cpus() -> (Ghost, CpuId, CpuId) {
        (Ghost::new(2, 15), CpuId(0), CpuId(1))
    }

    #[test]
    fn what_was_left_is_met_warm_by_its_vm_and_reported_of_another() {
        let (ghost, here, there) = cpus();
        for _ in 0..3 {
            ghost.enter(here, V, A).unwrap();
            ghost.leave(here);
        }
        assert_eq!(ghost.counters(), GhostCounters { warm: 2, cold: 1, lost_running: 0 });
        // The other CPU has nothing of it.
        ghost.enter(there, V, B).unwrap();
        ghost.leave(there);
        let haunted = ghost.enter(here, V, B).unwrap_err();
        assert_eq!((haunted.owner, haunted.live_on), (A, None));
        assert!(haunted.to_string().contains("VM 1 enters CPU 0 under VMID 3"), "{haunted}");
    }

    #[test]
    fn two_vms_are_not_live_under_one_vmid() {
        let (ghost, here, there) = cpus();
        ghost.enter(here, V, A).unwrap();
        ghost.enter(there, V, A).unwrap();
        ghost.leave(there);
        assert_eq!(ghost.enter(there, V, B).unwrap_err().live_on, Some((here, V)));
    }

    #[test]
    fn a_vm_is_not_live_under_two_vmids() {
        let (ghost, here, there) = cpus();
        ghost.enter(here, V, A).unwrap();
        let haunted = ghost.enter(there, Vmid(4), A).unwrap_err();
        assert_eq!((haunted.owner, haunted.live_on), (A, Some((here, V))));
        assert!(haunted.to_string().contains("VMID 4, and runs under VMID 3 on CPU 0 now"), "{haunted}");
    }

    #[test]
    fn a_vm_that_starts_again_must_not_meet_its_former_life() {
        let (ghost, here, _) = cpus();
        ghost.enter(here, V, A).unwrap();
        ghost.leave(here);
        let haunted = ghost.enter(here, V, Guest { life: 1, ..A }).unwrap_err();
        assert!(haunted.to_string().contains("VM 0 (reset 1) enters"), "{haunted}");
    }

    #[test]
    fn each_invalidation_covers_what_it_says() {
        for covers in [Covers::All, Covers::Vmid(V), Covers::AllHere, Covers::VmidHere(V)] {
            let (ghost, here, there) = cpus();
            for cpu in [here, there] {
                ghost.enter(cpu, V, A).unwrap();
                ghost.leave(cpu);
            }
            ghost.forget(here, covers);
            ghost.enter(here, V, B).unwrap();
            ghost.leave(here);
            let everywhere = matches!(covers, Covers::All | Covers::Vmid(_));
            assert_eq!(ghost.enter(there, V, B).is_ok(), everywhere, "{covers:?}");
        }
        let (ghost, here, _) = cpus();
        ghost.enter(here, V, A).unwrap();
        ghost.leave(here);
        ghost.forget(here, Covers::Vmid(Vmid(4)));
        assert!(ghost.enter(here, V, B).is_err());
    }

    #[test]
    fn what_runs_loses_its_entries_and_makes_new_ones() {
        let (ghost, here, there) = cpus();
        ghost.enter(here, V, A).unwrap();
        ghost.forget(there, Covers::All);
        ghost.forget(there, Covers::AllHere);
        assert_eq!(ghost.counters().lost_running, 1);
        ghost.leave(here);
        assert!(ghost.enter(here, V, B).is_err());
        // The one that reports shall not be disturbed.
        assert!(ghost.enter(there, V, B).is_ok());
    }
}
