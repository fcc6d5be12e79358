//! What a CPU does to the translations of guests: TLB invalidations by kind, barriers that wait for other CPUs, writes of VTTBR_EL2.
//!
//! QEMU's plugin counts the same from outside (docs/auditor.md). What is on the path of a switch is not counted twice: see
//! [`TlbTotals`].

use super::Counter;
use super::json::Json;
use core::fmt::{self, Write};

/// A TLB invalidation (Arm ARM C5.5) that is counted where it is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Invalidation {
    /// All of all guests, on every CPU.
    Alle1Is,
    /// All of all guests, here.
    Alle1,
    /// All of a VMID, on every CPU.
    Vmalls12e1Is,
    /// All of a VMID, here.
    Vmalls12e1,
    /// A page of stage 2 of a VMID, on every CPU.
    Ipas2e1Is,
    /// Stage 1 of a VMID, on every CPU.
    Vmalle1Is,
}

impl Invalidation {
    /// All of them, each at the place of its number.
    pub const ALL: [Invalidation; 6] = [
        Invalidation::Alle1Is,
        Invalidation::Alle1,
        Invalidation::Vmalls12e1Is,
        Invalidation::Vmalls12e1,
        Invalidation::Ipas2e1Is,
        Invalidation::Vmalle1Is,
    ];

    /// Its name, as an assembler knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Invalidation::Alle1Is => "alle1is",
            Invalidation::Alle1 => "alle1",
            Invalidation::Vmalls12e1Is => "vmalls12e1is",
            Invalidation::Vmalls12e1 => "vmalls12e1",
            Invalidation::Ipas2e1Is => "ipas2e1is",
            Invalidation::Vmalle1Is => "vmalle1is",
        }
    }
}

/// A CPU's counts. Only that CPU writes them.
#[derive(Debug, Default)]
pub struct TlbStats {
    invalidations: [Counter; Invalidation::ALL.len()],
    /// `dsb ish` that waited for invalidations on every CPU.
    pub barriers: Counter,
    /// Of the invalidations of all of a VMID, those because its VM's stage 2 has changed; the others are the VMID allocator's.
    pub of_stage2: Counter,
    /// Writes of VTTBR_EL2 that belong to no schedule-in: to invalidate under another VMID, at boot, to leave a VM for a moment.
    pub vttbr_writes: Counter,
}

impl TlbStats {
    /// Counts `n` invalidations of a kind.
    #[inline(always)]
    pub fn count(&self, kind: Invalidation, n: u64) {
        self.invalidations[kind as usize].add(n);
    }

    /// The counts of a CPU on which vCPUs were put `schedule_ins` times, and which made `local` invalidations of its own TLB alone.
    pub fn totals(&self, schedule_ins: u64, local: u64) -> TlbTotals {
        TlbTotals {
            invalidations: core::array::from_fn(|kind| self.invalidations[kind].get()),
            local,
            barriers: self.barriers.get(),
            of_stage2: self.of_stage2.get(),
            vttbr_writes: self.vttbr_writes.get().wrapping_add(schedule_ins.wrapping_mul(2)),
        }
    }
}

/// A CPU's counts, copied.
///
/// Two are made of what the path of a switch counts anyway. A vCPU that is put on a CPU costs two writes of VTTBR_EL2, one with its
/// VM's tables and one that parks it again; while it is there, the second is counted already. And `tlbi vmalle1` is what is left
/// of the CPU's local invalidations.
#[derive(Clone, Copy, Default, Debug)]
pub struct TlbTotals {
    invalidations: [u64; Invalidation::ALL.len()],
    local: u64,
    barriers: u64,
    of_stage2: u64,
    vttbr_writes: u64,
}

impl TlbTotals {
    /// `tlbi vmalle1`: a sibling of the vCPU ran here last.
    fn siblings(&self) -> u64 {
        let others =
            [Invalidation::Alle1, Invalidation::Vmalls12e1].map(|kind| self.invalidations[kind as usize]);
        self.local.saturating_sub(others.iter().sum())
    }

    /// Writes the members of the line `cpu`.
    pub(super) fn write<W: Write>(&self, json: &mut Json<'_, W>) -> fmt::Result {
        json.object("tlbi", |json| {
            for kind in Invalidation::ALL {
                json.number(kind.name(), self.invalidations[kind as usize])?;
            }
            json.number("vmalle1", self.siblings())
        })?;
        json.number("tlbi_of_stage2", self.of_stage2)?;
        json.number("tlbi_barriers", self.barriers)?;
        json.number("vttbr_writes", self.vttbr_writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_numbers() {
        for (number, kind) in Invalidation::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }

    #[test]
    fn each_is_reported_and_what_is_left_of_the_local_ones_are_those_for_siblings() {
        let stats = TlbStats::default();
        for (n, kind) in (1..).zip(Invalidation::ALL) {
            stats.count(kind, n);
        }
        stats.barriers.add(7);
        stats.of_stage2.add(2);
        stats.vttbr_writes.add(3);
        let mut text = std::string::String::new();
        Json::new(&mut text).nested('{', '}', |json| stats.totals(10, 9).write(json)).unwrap();
        assert_eq!(
            text,
            "{\"tlbi\":{\"alle1is\":1,\"alle1\":2,\"vmalls12e1is\":3,\"vmalls12e1\":4,\"ipas2e1is\":5,\"vmalle1is\":6,\"vmalle1\":3},\
             \"tlbi_of_stage2\":2,\"tlbi_barriers\":7,\"vttbr_writes\":23}"
        );
    }
}
