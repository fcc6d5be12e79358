//! PSCI 1.1 (DEN 0022) as guests see it: which function a call is, and what it may return.

/// The version that guests are told: 1.1.
pub const VERSION: u64 = 1 << 16 | 1;
/// SMCCC_VERSION's answer: 1.1.
pub const SMCCC_VERSION: u64 = 1 << 16 | 1;

/// Return values (DEN 0022, 5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
pub enum Status {
    /// Done.
    Success = 0,
    /// The function does not exist.
    NotSupported = -1,
    /// No such CPU, affinity level or state.
    InvalidParameters = -2,
    /// The CPU runs.
    AlreadyOn = -4,
    /// CPU_ON was called for it and it has not run yet.
    OnPending = -5,
    /// It did not work out.
    InternalFailure = -6,
    /// The entry point is not in memory.
    InvalidAddress = -9,
}

impl Status {
    /// The value for x0.
    pub const fn value(self) -> u64 {
        self as i64 as u64
    }
}

/// A call, with its arguments as the guest gave them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// PSCI_VERSION.
    Version,
    /// CPU_SUSPEND: a wait for an interrupt here, whatever power state is asked for, as the specification lets it be.
    CpuSuspend,
    /// CPU_OFF.
    CpuOff,
    /// CPU_ON.
    CpuOn {
        /// MPIDR of the CPU.
        target: u64,
        /// Where it begins.
        entry: u64,
        /// Its x0.
        context: u64,
    },
    /// AFFINITY_INFO.
    AffinityInfo {
        /// MPIDR of the CPU, or of its cluster.
        target: u64,
        /// Lowest affinity level of the question.
        level: u64,
    },
    /// MIGRATE_INFO_TYPE: there is no trusted OS to migrate.
    MigrateInfoType,
    /// SYSTEM_OFF.
    SystemOff,
    /// SYSTEM_RESET, or SYSTEM_RESET2 with the architectural warm reset.
    SystemReset,
    /// PSCI_FEATURES of this function.
    Features(u32),
    /// SMCCC_VERSION.
    SmcccVersion,
    /// SMCCC_ARCH_FEATURES of this function (SMCCC 7.3).
    ArchFeatures(u32),
    /// PV_TIME_FEATURES of this function (DEN 0057A, 3.1).
    PvTimeFeatures(u32),
    /// PV_TIME_ST: where is the caller's record of stolen time (DEN 0057A, 3.2)?
    StolenTime,
    /// A function of ours, in the vendor-specific hypervisor range.
    Vendor(u32),
    /// None of these.
    Unknown,
}

/// Vendor-specific hypervisor service calls (SMCCC 6.6): owner 6, 32-bit and 64-bit.
const OWNER_MASK: u32 = 0xbf00_0000;
const VENDOR_OWNER: u32 = 0x8600_0000;

/// The function PSCI_VERSION.
pub const VERSION_ID: u32 = 0x8400_0000;
const CPU_SUSPEND_32: u32 = 0x8400_0001;
const CPU_SUSPEND_64: u32 = 0xc400_0001;
const CPU_OFF: u32 = 0x8400_0002;
const CPU_ON_32: u32 = 0x8400_0003;
const CPU_ON_64: u32 = 0xc400_0003;
const AFFINITY_INFO_32: u32 = 0x8400_0004;
const AFFINITY_INFO_64: u32 = 0xc400_0004;
const MIGRATE_INFO_TYPE: u32 = 0x8400_0006;
const SYSTEM_OFF: u32 = 0x8400_0008;
const SYSTEM_RESET: u32 = 0x8400_0009;
const FEATURES: u32 = 0x8400_000a;
const SYSTEM_RESET2_32: u32 = 0x8400_0012;
const SYSTEM_RESET2_64: u32 = 0xc400_0012;
const SMCCC_VERSION_ID: u32 = 0x8000_0000;
const ARCH_FEATURES: u32 = 0x8000_0001;
/// Standard hypervisor service calls (DEN 0057A).
const PV_TIME_FEATURES: u32 = 0xc500_0020;
const PV_TIME_ST: u32 = 0xc500_0021;

/// What the call with `function` in w0 and these arguments is. 32-bit functions use the lower halves.
#[inline]
pub fn decode(function: u32, x1: u64, x2: u64, x3: u64) -> Call {
    let low = |value: u64| value & 0xffff_ffff;
    match function {
        VERSION_ID => Call::Version,
        CPU_SUSPEND_32 | CPU_SUSPEND_64 => Call::CpuSuspend,
        CPU_OFF => Call::CpuOff,
        CPU_ON_64 => Call::CpuOn { target: x1, entry: x2, context: x3 },
        CPU_ON_32 => Call::CpuOn { target: low(x1), entry: low(x2), context: low(x3) },
        AFFINITY_INFO_64 => Call::AffinityInfo { target: x1, level: x2 },
        AFFINITY_INFO_32 => Call::AffinityInfo { target: low(x1), level: low(x2) },
        MIGRATE_INFO_TYPE => Call::MigrateInfoType,
        SYSTEM_OFF => Call::SystemOff,
        SYSTEM_RESET => Call::SystemReset,
        SYSTEM_RESET2_32 | SYSTEM_RESET2_64 if low(x1) == 0 => Call::SystemReset,
        FEATURES => Call::Features(x1 as u32),
        SMCCC_VERSION_ID => Call::SmcccVersion,
        ARCH_FEATURES => Call::ArchFeatures(x1 as u32),
        PV_TIME_FEATURES => Call::PvTimeFeatures(x1 as u32),
        PV_TIME_ST => Call::StolenTime,
        _ if function & OWNER_MASK == VENDOR_OWNER => Call::Vendor(function),
        _ => Call::Unknown,
    }
}

/// PSCI_FEATURES: 0 where the function exists (CPU_SUSPEND: with the original format of power states), else NOT_SUPPORTED.
pub fn features(function: u32) -> u64 {
    match decode(function, 0, 0, 0) {
        Call::Unknown
        | Call::Vendor(_)
        | Call::ArchFeatures(_)
        | Call::PvTimeFeatures(_)
        | Call::StolenTime => Status::NotSupported.value(),
        _ => 0,
    }
}

/// SMCCC_ARCH_FEATURES: 0 where the function exists; what it is to be asked of is the convention's own, and PV_TIME_FEATURES.
pub fn arch_features(function: u32) -> u64 {
    match function {
        SMCCC_VERSION_ID | ARCH_FEATURES | PV_TIME_FEATURES => 0,
        _ => Status::NotSupported.value(),
    }
}

/// PV_TIME_FEATURES: 0 where the function exists.
pub fn pv_time_features(function: u32) -> u64 {
    match function {
        PV_TIME_FEATURES | PV_TIME_ST => 0,
        _ => Status::NotSupported.value(),
    }
}

/// The vCPU that an MPIDR names: affinity 0 is its index, all other levels are 0, and reserved bits are clear.
pub fn target_index(mpidr: u64, vcpus: usize) -> Option<usize> {
    (mpidr < vcpus as u64).then_some(mpidr as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_decode_and_the_narrow_one_is_cut() {
        assert_eq!(decode(0xc400_0003, 1 << 40, 2, 3), Call::CpuOn { target: 1 << 40, entry: 2, context: 3 });
        assert_eq!(decode(0x8400_0003, 1 << 40 | 1, 2, 3), Call::CpuOn { target: 1, entry: 2, context: 3 });
        assert_eq!(decode(0x8400_0009, 0, 0, 0), Call::SystemReset);
        assert_eq!(decode(0xc400_0012, 0, 0, 0), Call::SystemReset);
        assert_eq!(decode(0xc400_0012, 0x8000_0000, 0, 0), Call::Unknown);
    }

    #[test]
    fn trap_33_unknown_functions_are_not_taken_for_known_ones() {
        for function in
            [0x8400_001f, 0xc400_0000, 0x8600_0000 | 1 << 30 | 1 << 24, 0, 0xffff_ffff, 0x8500_0001]
        {
            assert!(
                !matches!(decode(function, 0, 0, 0), Call::Vendor(_)) || function >> 24 & 0x3f == 6,
                "{function:#x}"
            );
        }
        assert_eq!(decode(0x8400_001f, 0, 0, 0), Call::Unknown);
        assert_eq!(decode(0xc600_0001, 0, 0, 0), Call::Vendor(0xc600_0001));
        assert_eq!(decode(0x8600_ff01, 0, 0, 0), Call::Vendor(0x8600_ff01));
    }

    #[test]
    fn features_tell_what_there_is() {
        assert_eq!(features(0x8400_0002), 0);
        assert_eq!(features(0x8000_0000), 0);
        assert_eq!(features(0xc400_000e), Status::NotSupported.value());
    }

    #[test]
    fn stolen_time_is_found_by_asking_step_by_step() {
        let none = Status::NotSupported.value();
        assert_eq!(decode(0x8000_0001, 0xc500_0020, 0, 0), Call::ArchFeatures(0xc500_0020));
        assert_eq!(decode(0xc500_0020, 0xc500_0021, 0, 0), Call::PvTimeFeatures(0xc500_0021));
        assert_eq!(decode(0xc500_0021, 0, 0, 0), Call::StolenTime);
        assert_eq!(
            (arch_features(0xc500_0020), arch_features(0x8000_0001), arch_features(0x8000_0000)),
            (0, 0, 0)
        );
        assert_eq!((pv_time_features(0xc500_0020), pv_time_features(0xc500_0021)), (0, 0));
        // ARCH_WORKAROUND_1, the 32-bit form, and the live migration calls that there aren't.
        for function in [0x8000_8000, 0x8500_0020, 0xc500_0022, 0x8400_0000] {
            assert_eq!((arch_features(function), pv_time_features(function)), (none, none), "{function:#x}");
        }
        assert_eq!(decode(0x8500_0021, 0, 0, 0), Call::Unknown);
        assert_eq!(features(0xc500_0021), none);
    }

    #[test]
    fn trap_20_targets_are_vcpus_that_exist() {
        assert_eq!(target_index(1, 2), Some(1));
        assert_eq!(target_index(2, 2), None);
        assert_eq!(target_index(1 << 8, 2), None);
        assert_eq!(target_index(1 << 31 | 1, 2), None);
        assert_eq!(target_index(u64::MAX, 8), None);
    }
}
