//! The ID registers that guests see: the CPU's, less what Odometer does not switch.
//!
//! A feature is offered only if its state goes in and out with the vCPU or it has none; all else is hidden here and traps, or
//! is undefined, when used nonetheless, as far as the architecture has a trap for it (docs/id-registers.md). Registers that are
//! not known read as zero, as the architecture wants of reserved ones.

mod table;

use table::REGISTERS;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Slots of the table: CRm 0 to 7, op2 0 to 7.
pub const SLOTS: usize = 64;

const fn slot(crm: usize, op2: usize) -> usize {
    crm * 8 + op2
}

/// What guests read, by slot. Each CPU takes away what it lacks before the first guest runs; from then on nothing changes.
pub struct IdRegisters([AtomicU64; SLOTS]);

const ISAR1: usize = slot(6, 1);
const ISAR2: usize = slot(6, 2);

/// A 4-bit field of an ID register at this bit.
const fn field(shift: u32) -> u64 {
    0xf << shift
}

/// What is taken out of registers of AArch32, of which guests' EL0 may have use; the others are what the CPU says.
const HIDDEN_32: [(usize, u64); 4] = [
    // ID_PFR0_EL1: AMU, RAS; CSV2 is AArch64's.
    (slot(1, 0), field(20) | field(28)),
    // ID_PFR1_EL1: Security, Virtualization, and their fractions. GenTimer and GIC stay.
    (slot(1, 1), field(4) | field(12) | field(20) | field(24)),
    // ID_DFR0_EL1: CopTrc, MMapTrc, PerfMon, TraceFilt.
    (slot(1, 2), field(12) | field(16) | field(24) | field(28)),
    // ID_PFR2_EL1: RAS_frac.
    (slot(3, 4), field(8)),
];

/// The first slot of AArch64's registers: what is not in the table reads as zero there (SVE's and SME's registers, MMFR3, MMFR4,
/// DFR1, ...).
const FIRST_64: usize = slot(4, 0);

impl IdRegisters {
    /// What guests see on a CPU with these ID registers.
    pub fn from_hardware(mut values: [u64; SLOTS]) -> IdRegisters {
        let hardware = values;
        values[FIRST_64..].fill(0);
        for register in REGISTERS {
            let own = hardware[register.slot];
            values[register.slot] = register.fields.iter().fold(0, |told, field| told | field.apply(own));
        }
        for (index, hidden) in HIDDEN_32 {
            values[index] &= !hidden;
        }
        // ID_DFR1_EL1 speaks of the PMU alone.
        values[slot(3, 5)] = 0;
        IdRegisters(values.map(AtomicU64::new))
    }

    /// The register in `slot` (see `SysReg::id_slot`); unknown ones are 0.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> u64 {
        self.0[slot & (SLOTS - 1)].load(Relaxed)
    }

    /// Whether guests are told of pointer authentication of addresses: ID_AA64ISAR1_EL1.APA, API, ID_AA64ISAR2_EL1.APA3.
    pub fn has_pointer_authentication(&self) -> bool {
        self.get(ISAR1) & (field(4) | field(8)) != 0 || self.get(ISAR2) & field(12) != 0
    }

    /// Keeps what both CPUs have, field by field: guests may run on either. Returns whether that is less than before.
    pub fn restrict_to(&self, other: &IdRegisters) -> bool {
        let mut less = false;
        for (mine, theirs) in self.0.iter().zip(&other.0) {
            let theirs = theirs.load(Relaxed);
            let restrict = |mine: u64| {
                let fields = (0..64).step_by(4).map(|shift| {
                    let (a, b) = (mine >> shift & 0xf, theirs >> shift & 0xf);
                    // 15 means "not there" in the signed fields (FP, AdvSIMD) and nothing in the others.
                    (if a == 15 || b == 15 { 15 } else { a.min(b) }) << shift
                });
                let common = fields.fold(0, |common, field| common | field);
                (common != mine).then_some(common)
            };
            less |= mine.fetch_update(Relaxed, Relaxed, restrict).is_ok();
        }
        less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PFR0: usize = slot(4, 0);
    const PFR1: usize = slot(4, 1);
    const DFR0: usize = slot(5, 0);
    const ISAR0: usize = slot(6, 0);
    const MMFR0: usize = slot(7, 0);
    const MMFR1: usize = slot(7, 1);

    #[test]
    fn trap_30_what_is_not_switched_is_hidden() {
        let all = IdRegisters::from_hardware([0x1111_1111_1111_1111; SLOTS]);
        // SVE, SME, MTE, PMU, RAS.
        assert_eq!(all.get(PFR0) >> 32 & 0xf, 0);
        assert_eq!(all.get(PFR1) >> 24 & 0xf, 0);
        assert_eq!(all.get(PFR1) >> 8 & 0xf, 0);
        assert_eq!(all.get(DFR0) >> 8 & 0xf, 0);
        assert_eq!(all.get(PFR0) >> 28 & 0xf, 0);
        // Debug registers: the fewest that the architecture allows.
        assert_eq!(IdRegisters::from_hardware([u64::MAX; SLOTS]).get(DFR0) & 0xf0f0_f000, 0x0010_1000);
        assert_eq!(all.get(slot(4, 4)), 0, "ID_AA64ZFR0_EL1");
        assert_eq!(all.get(slot(4, 5)), 0, "ID_AA64SMFR0_EL1");
        assert_eq!(all.get(slot(7, 3)), 0, "ID_AA64MMFR3_EL1");
        // Pointer authentication is switched.
        assert!(all.has_pointer_authentication());
        assert!(!IdRegisters::from_hardware([0; SLOTS]).has_pointer_authentication());
        // Kept: atomics (LSE), CRC32, BTI, the physical address range.
        assert_eq!(all.get(ISAR0) >> 20 & 0xf, 1);
        assert_eq!(all.get(ISAR0) >> 16 & 0xf, 1);
        assert_eq!(all.get(PFR1) & 0xf, 1);
        assert_eq!(all.get(MMFR0) & 0xf, 1);
        // A PMU, tracing, breakpoints beyond two, access flags in tables (HAFT), AArch32 at EL1.
        let most = IdRegisters::from_hardware([u64::MAX / 15 * 9; SLOTS]);
        assert_eq!(most.get(DFR0), 0xf0_0010_1006);
        assert_eq!((most.get(MMFR1) & 0xf, most.get(PFR0) >> 4 & 0xf), (2, 1));
        // No EL2, no EL3.
        assert_eq!(all.get(PFR0) & 0xff00, 0);
        assert_eq!(all.get(PFR0) >> 24 & 0xf, 1, "GICv3 system registers");
    }

    #[test]
    fn cpus_that_differ_offer_what_both_have() {
        let both = IdRegisters([0x21; SLOTS].map(AtomicU64::new));
        assert!(both.restrict_to(&IdRegisters([0xf3; SLOTS].map(AtomicU64::new))));
        assert_eq!(both.get(0), 0xf1);
        assert!(!both.restrict_to(&IdRegisters([0xf3; SLOTS].map(AtomicU64::new))));
    }
}
