//! Calls to the firmware above or beside us (SMCCC, DEN 0028).

use crate::platform::machine::Conduit;

/// Calls function `function` with three arguments and returns x0.
pub fn firmware_call(conduit: Conduit, function: u32, a: u64, b: u64, c: u64) -> i64 {
    let mut x0 = u64::from(function);
    // SAFETY: x0 to x17 are the registers that SMCCC 1.0 lets a callee change; memory is only touched by the CPU that
    // CPU_ON starts, and through what its caller has published.
    unsafe {
        match conduit {
            Conduit::Smc => {
                core::arch::asm!("smc #0", inout("x0") x0, inout("x1") a => _, inout("x2") b => _, inout("x3") c => _,
                out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _, out("x10") _, out("x11") _,
                out("x12") _, out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _, options(nostack))
            }
            Conduit::Hvc => {
                core::arch::asm!("hvc #0", inout("x0") x0, inout("x1") a => _, inout("x2") b => _, inout("x3") c => _,
                out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _, out("x10") _, out("x11") _,
                out("x12") _, out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _, options(nostack))
            }
        }
    }
    x0 as i64
}
