//! Calls to firmware or hypervisor: PSCI (DEN 0022) and SMCCC (DEN 0028), by the conduit that the device tree
//! names.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::machine::Conduit;

/// PSCI_VERSION.
pub const VERSION: u64 = 0x8400_0000;
/// CPU_SUSPEND.
pub const CPU_SUSPEND: u64 = 0xc400_0001;
/// CPU_OFF.
pub const CPU_OFF: u64 = 0x8400_0002;
/// CPU_ON.
pub const CPU_ON: u64 = 0xc400_0003;
/// AFFINITY_INFO.
pub const AFFINITY_INFO: u64 = 0xc400_0004;
/// SYSTEM_OFF.
pub const SYSTEM_OFF: u64 = 0x8400_0008;
/// SYSTEM_RESET.
pub const SYSTEM_RESET: u64 = 0x8400_0009;
/// PSCI_FEATURES.
pub const FEATURES: u64 = 0x8400_000a;
/// SMCCC_VERSION.
pub const SMCCC_VERSION: u64 = 0x8000_0000;

/// Odometer's vendor range: UID.
pub const VENDOR_UID: u64 = 0x8600_ff01;
/// Give the CPU to another vCPU.
pub const YIELD: u64 = 0xc600_0001;
/// Read one of this VM's counters.
pub const READ_COUNTER: u64 = 0xc600_0002;
/// Measure something inside the hypervisor.
pub const MEASURE: u64 = 0xc600_0003;

/// SMCCC and PSCI NOT_SUPPORTED.
pub const NOT_SUPPORTED: i64 = -1;
/// PSCI INVALID_PARAMETERS.
pub const INVALID_PARAMETERS: i64 = -2;
/// PSCI ALREADY_ON.
pub const ALREADY_ON: i64 = -4;

/// What a call leaves in x0 to x3.
pub type Answer = [u64; 4];

/// Calls by HVC.
pub fn hvc(function: u64, a: u64, b: u64, c: u64) -> Answer {
    let (mut x0, mut x1, mut x2, mut x3) = (function, a, b, c);
    // SAFETY: SMCCC: x0 to x17 may change. The functions called here don't touch this kernel's memory.
    unsafe {
        asm!("hvc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3, clobber_abi("C"),
             options(nostack));
    }
    [x0, x1, x2, x3]
}

/// Calls by SMC.
pub fn smc(function: u64, a: u64, b: u64, c: u64) -> Answer {
    let (mut x0, mut x1, mut x2, mut x3) = (function, a, b, c);
    // SAFETY: as for `hvc`.
    unsafe {
        asm!("smc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3, clobber_abi("C"),
             options(nostack));
    }
    [x0, x1, x2, x3]
}

static BY_SMC: AtomicBool = AtomicBool::new(false);

/// Sets the conduit.
pub fn set_conduit(conduit: Conduit) {
    BY_SMC.store(conduit == Conduit::Smc, Ordering::Relaxed);
}

/// The conduit.
pub fn conduit() -> Conduit {
    if BY_SMC.load(Ordering::Relaxed) { Conduit::Smc } else { Conduit::Hvc }
}

/// Calls by the conduit of the device tree.
pub fn call(function: u64, a: u64, b: u64, c: u64) -> Answer {
    match conduit() {
        Conduit::Hvc => hvc(function, a, b, c),
        Conduit::Smc => smc(function, a, b, c),
    }
}

/// A call's status: x0 as a signed number (32-bit functions leave the upper half undefined).
pub const fn status(answer: Answer) -> i64 {
    answer[0] as u32 as i32 as i64
}

/// Powers the machine off. Returns only where nobody listens.
pub fn system_off() -> ! {
    call(SYSTEM_OFF, 0, 0, 0);
    loop {
        super::cpu::wait_for_interrupt();
    }
}
