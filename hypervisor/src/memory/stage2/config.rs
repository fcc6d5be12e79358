//! The shape of a machine's stage-2 tables, from its ID registers: VTCR_EL2 and VTTBR_EL2.

use core::fmt;

use crate::ids::Vmid;
use crate::memory::address::{MAX_ADDRESS_BITS, Pa};
use crate::memory::tables::{LAST_LEVEL, TABLE_BYTES, TABLE_ENTRIES, shift};

/// Why stage 2 can't be configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The CPU has no 4 KiB granule at the stage of translation in question (ID_AA64MMFR0_EL1.TGran4,
    /// TGran4_2).
    NoGranule,
    /// A guest needs more intermediate physical address bits than the CPU has physical ones.
    IpaTooWide {
        /// Bits that are needed.
        needed: u8,
        /// Bits that the CPU offers.
        available: u8,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGranule => {
                write!(f, "the CPU has no 4 KiB translation granule (ID_AA64MMFR0_EL1.TGran4)")
            }
            Self::IpaTooWide { needed, available } => write!(
                f,
                "a guest needs {needed} bits of intermediate physical address and the CPU has {available}: \
                 give it less memory"
            ),
        }
    }
}

/// `width` bits of `value` from `low` on: a field of a register.
const fn field(value: u64, low: u32, width: u32) -> u64 {
    (value >> low) & ((1 << width) - 1)
}

/// Physical address bits that tables with a 4 KiB granule can use, and the encoding of that number in
/// TCR_EL2.PS and VTCR_EL2.PS, from ID_AA64MMFR0_EL1.PARange (Arm ARM D24.2.80). 52 and 56 bits need
/// FEAT_LPA2 descriptors with this granule, so they count as 48.
pub const fn physical_bits(id_aa64mmfr0: u64) -> (u8, u64) {
    match field(id_aa64mmfr0, 0, 4) {
        0 => (32, 0),
        1 => (36, 1),
        2 => (40, 2),
        3 => (42, 3),
        4 => (44, 4),
        _ => (MAX_ADDRESS_BITS, 5),
    }
}

/// Whether stage 1 has the 4 KiB granule: ID_AA64MMFR0_EL1.TGran4, 0 or 1 where it has.
pub const fn has_stage1_granule(id_aa64mmfr0: u64) -> bool {
    field(id_aa64mmfr0, 28, 4) <= 1
}

/// Whether stage 2 has the 4 KiB granule: TGran4_2, where 0 means "as stage 1", 1 "no", 2 and 3 "yes".
pub const fn has_stage2_granule(id_aa64mmfr0: u64) -> bool {
    match field(id_aa64mmfr0, 40, 4) {
        0 => has_stage1_granule(id_aa64mmfr0),
        1 => false,
        _ => true,
    }
}

/// VMID bits from ID_AA64MMFR1_EL1.VMIDBits: 8 or 16. Never found out by writing VTTBR_EL2 and reading it back.
pub const fn vmid_bits(id_aa64mmfr1: u64) -> u8 {
    if field(id_aa64mmfr1, 4, 4) == 2 { 16 } else { 8 }
}

/// Whether the CPU has FEAT_S2FWB (ID_AA64MMFR2_EL1.FWB): stage 2 can make RAM write-back cacheable whatever stage 1 says.
pub const fn has_forced_write_back(id_aa64mmfr2: u64) -> bool {
    field(id_aa64mmfr2, 40, 4) != 0
}

/// Bits that addresses below `end` take: `ipa_bits_for(0x1_0000_0000)` is 32.
pub const fn ipa_bits_for(end: u64) -> u8 {
    (64 - end.saturating_sub(1).leading_zeros()) as u8
}

/// VTTBR_EL2: the VM's root table and its VMID (Arm ARM D24.2.191). CnP is 0.
pub const fn vttbr(root: Pa, vmid: Vmid) -> u64 {
    (vmid.0 as u64) << 48 | root.0
}

/// Smallest IPA width that is used. The architecture allows 31 with a level-1 root; 32 is what the smallest PARange
/// has, and the tables are no larger.
const MIN_IPA_BITS: u8 = 32;
/// Widest IPA with a level-1 root: 39 bits for one table, 4 more for 16 concatenated ones.
const LEVEL1_MAX_BITS: u8 = 43;

/// Shape of the stage-2 tables, and with it the value of VTCR_EL2. All CPUs of a machine use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage2Config {
    ipa_bits: u8,
    pa_bits: u8,
    ps: u64,
    start_level: u8,
    vmid_bits: u8,
    forces_write_back: bool,
}

impl Stage2Config {
    /// The smallest shape that translates `needed_ipa_bits` on a CPU with these values of ID_AA64MMFR0_EL1,
    /// ID_AA64MMFR1_EL1 and ID_AA64MMFR2_EL1. Walks start at level 1, with as many concatenated tables as it takes; above 43
    /// bits at level 0.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: no 4 KiB granule, or more bits than the CPU has.
    pub const fn from_id(
        id_aa64mmfr0: u64,
        id_aa64mmfr1: u64,
        id_aa64mmfr2: u64,
        needed_ipa_bits: u8,
    ) -> Result<Self, ConfigError> {
        if !has_stage2_granule(id_aa64mmfr0) {
            return Err(ConfigError::NoGranule);
        }
        let (pa_bits, ps) = physical_bits(id_aa64mmfr0);
        let ipa_bits = if needed_ipa_bits < MIN_IPA_BITS { MIN_IPA_BITS } else { needed_ipa_bits };
        if ipa_bits > pa_bits {
            return Err(ConfigError::IpaTooWide { needed: needed_ipa_bits, available: pa_bits });
        }
        let start_level = if ipa_bits <= LEVEL1_MAX_BITS { 1 } else { 0 };
        Ok(Self {
            ipa_bits,
            pa_bits,
            ps,
            start_level,
            vmid_bits: vmid_bits(id_aa64mmfr1),
            forces_write_back: has_forced_write_back(id_aa64mmfr2),
        })
    }

    /// VTCR_EL2 (Arm ARM D24.2.190): 4 KiB granule; walks are write-back, write-allocate and inner shareable;
    /// hardware updates neither access flag nor dirty state; VS where VMIDs have 16 bits.
    pub const fn vtcr(&self) -> u64 {
        let t0sz = 64 - self.ipa_bits as u64;
        // SL0 for the 4 KiB granule: 0 = level 2, 1 = level 1, 2 = level 0.
        let sl0 = 2 - self.start_level as u64;
        let irgn0 = 0b01 << 8;
        let orgn0 = 0b01 << 10;
        let sh0 = 0b11 << 12;
        let vs = (self.vmid_bits == 16) as u64;
        let res1 = 1 << 31;
        t0sz | sl0 << 6 | irgn0 | orgn0 | sh0 | self.ps << 16 | vs << 19 | res1
    }

    /// Bits of intermediate physical address.
    pub const fn ipa_bits(&self) -> u8 {
        self.ipa_bits
    }

    /// Bits of physical address that descriptors can hold on this CPU.
    pub const fn pa_bits(&self) -> u8 {
        self.pa_bits
    }

    /// VMID bits of the hardware: 8 or 16. The allocator may use fewer.
    pub const fn vmid_bits(&self) -> u8 {
        self.vmid_bits
    }

    /// Whether descriptors are for HCR_EL2.FWB = 1, which must be set accordingly: on all CPUs alike.
    pub const fn forces_write_back(&self) -> bool {
        self.forces_write_back
    }

    /// The level at which a walk starts.
    pub const fn start_level(&self) -> u8 {
        self.start_level
    }

    /// Descriptors in the root, all concatenated tables together.
    pub const fn root_entries(&self) -> u64 {
        1 << (self.ipa_bits as u32).saturating_sub(shift(self.start_level))
    }

    /// Bytes of the root, which is aligned to them: one table, or up to 16 concatenated ones.
    pub const fn root_bytes(&self) -> u64 {
        let entries = self.root_entries();
        if entries <= TABLE_ENTRIES { TABLE_BYTES } else { entries / TABLE_ENTRIES * TABLE_BYTES }
    }
}

const _: () = assert!(LAST_LEVEL == 3, "SL0 and T0SZ above are for walks that end at level 3");
