//! The ID registers that guests see: the CPU's, less what Odometer does not switch.
//!
//! A feature is offered only if its state goes in and out with the vCPU or it has none; all else is hidden here and traps, or
//! is undefined, when used nonetheless. Field positions are those of the Arm ARM, D19.2. Registers that are not known
//! read as zero, as the architecture wants of reserved ones.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Slots of the table: CRm 0 to 7, op2 0 to 7.
pub const SLOTS: usize = 64;

const fn slot(crm: usize, op2: usize) -> usize {
    crm * 8 + op2
}

const PFR0: usize = slot(4, 0);
const PFR1: usize = slot(4, 1);
const DFR0: usize = slot(5, 0);
const ISAR0: usize = slot(6, 0);
const ISAR1: usize = slot(6, 1);
const ISAR2: usize = slot(6, 2);
const MMFR0: usize = slot(7, 0);
const MMFR1: usize = slot(7, 1);
const MMFR2: usize = slot(7, 2);

/// What guests read, by slot. Each CPU takes away what it lacks before the first guest runs; from then on nothing changes.
pub struct IdRegisters([AtomicU64; SLOTS]);

/// A 4-bit field of an ID register at this bit.
const fn field(shift: u32) -> u64 {
    0xf << shift
}

/// Fields that are taken away, for each register that has one.
const HIDDEN: [(usize, u64); 8] = [
    // EL2, EL3, RAS, SVE, SEL2, MPAM, AMU, RME, CSV2_2 (SCXTNUM) is kept to 1 below.
    (PFR0, field(8) | field(12) | field(28) | field(32) | field(36) | field(40) | field(44) | field(52)),
    // MTE, RAS_frac, MPAM_frac, SME, CSV2_frac, NMI, MTE_frac, GCS, THE, MTEX, PFAR.
    (
        PFR1,
        field(8)
            | field(12)
            | field(16)
            | field(24)
            | field(32)
            | field(36)
            | field(40)
            | field(44)
            | field(48)
            | field(52)
            | field(60),
    ),
    // TraceVer, PMUVer, PMSVer, DoubleLock, TraceFilt, TraceBuffer, MTPMU, BRBE, HPMN0.
    (
        DFR0,
        field(4)
            | field(8)
            | field(32)
            | field(36)
            | field(40)
            | field(44)
            | field(48)
            | field(52)
            | field(60),
    ),
    // TME.
    (ISAR0, field(24)),
    // LS64, XS.
    (ISAR1, field(56) | field(60)),
    // WFxT, MOPS, SYSREG_128, SYSINSTR_128.
    (ISAR2, field(0) | field(16) | field(32) | field(36)),
    // ECV, FGT.
    (MMFR0, field(60) | field(56)),
    // VH, LO, XNX stays, TWED, HCX, TIDCP1, AFP.
    (MMFR1, field(8) | field(16) | field(32) | field(40) | field(44) | field(52)),
];

/// Of ID_AA64MMFR2_EL1: NV, FWB, EVT.
const MMFR2_HIDDEN: u64 = field(24) | field(40) | field(56);

/// Registers that guests may read at all: AArch32's (CRm 1 to 3) and those above; the others (SVE's, SME's, MMFR3, MMFR4, DFR1,
/// ...) speak of features that are hidden or not known here.
fn is_offered(index: usize) -> bool {
    index < slot(4, 0) || [PFR0, PFR1, DFR0, ISAR0, ISAR1, ISAR2, MMFR0, MMFR1, MMFR2].contains(&index)
}

impl IdRegisters {
    /// What guests see on a CPU with these ID registers.
    pub fn from_hardware(mut values: [u64; SLOTS]) -> IdRegisters {
        for (index, value) in values.iter_mut().enumerate() {
            if !is_offered(index) {
                *value = 0;
            }
        }
        for (index, hidden) in HIDDEN {
            values[index] &= !hidden;
        }
        values[MMFR2] &= !MMFR2_HIDDEN;
        // Breakpoints and watchpoints, which don't work: as few as there can be, two of each, one of them for contexts.
        // (BRPs, WRPs, CTX_CMPs.) An operating system sets each of them up when a CPU starts.
        let debug = field(12) | field(20) | field(28);
        values[DFR0] = values[DFR0] & !debug | 1 << 12 | 1 << 20;
        // CSV2: 2 and above offer SCXTNUM_ELx, which is not switched.
        let csv2 = values[PFR0] >> 56 & 0xf;
        values[PFR0] = values[PFR0] & !field(56) | csv2.min(1) << 56;
        // SSBS 2 is MSR/MRS access: it lives in PSTATE and is kept.
        // The GIC's system register interface is what the vGIC offers.
        values[PFR0] = values[PFR0] & !field(24) | 1 << 24;
        // AArch32 debug: PerfMon and trace as above (ID_DFR0_EL1: PerfMon, CopTrc, MMapTrc, MProfDbg, TraceFilt).
        values[slot(1, 2)] &= !(field(24) | field(12) | field(16) | field(28));
        // ID_PFR0_EL1: RAS, AMU, CSV2 as above. ID_PFR1_EL1: Virtualization, Security; GenTimer and GIC stay.
        values[slot(1, 0)] &= !(field(28) | field(20));
        values[slot(1, 1)] &= !(field(4) | field(12));
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
