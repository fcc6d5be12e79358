//! Timed instructions: the counter is read right before and right after, each time behind an `isb`, so that what
//! is between costs what it costs and nothing of the loop around is in it.

use core::arch::asm;

use super::psci;

/// Ticks of one operation, with the cost of the reading itself in it (see [`nothing`]).
macro_rules! timed {
    ($($operation:literal),* ; $($operands:tt)*) => {{
        let (start, end): (u64, u64);
        // SAFETY: each use says.
        unsafe {
            asm!("isb", "mrs {start}, cntvct_el0", $($operation,)* "isb", "mrs {end}, cntvct_el0",
                 start = out(reg) start, end = out(reg) end, $($operands)*)
        };
        end.wrapping_sub(start)
    }};
}

/// Two readings with nothing between.
#[inline(always)]
pub fn nothing() -> u64 {
    // SAFETY: reads the counter.
    timed!(; options(nostack))
}

/// PSCI_VERSION by HVC.
#[inline(always)]
pub fn hypercall_hvc() -> u64 {
    let (start, end): (u64, u64);
    // SAFETY: SMCCC: x0 to x17 may change; the readings are in x20 and x22, which stay.
    unsafe {
        asm!("isb", "mrs x20, cntvct_el0", "hvc #0", "isb", "mrs x22, cntvct_el0",
             inout("x0") psci::VERSION => _, out("x20") start, out("x22") end, clobber_abi("C"), options(nostack))
    };
    end.wrapping_sub(start)
}

/// PSCI_VERSION by SMC.
#[inline(always)]
pub fn hypercall_smc() -> u64 {
    let (start, end): (u64, u64);
    // SAFETY: as above.
    unsafe {
        asm!("isb", "mrs x20, cntvct_el0", "smc #0", "isb", "mrs x22, cntvct_el0",
             inout("x0") psci::VERSION => _, out("x20") start, out("x22") end, clobber_abi("C"), options(nostack))
    };
    end.wrapping_sub(start)
}

/// A 32-bit load from a device register.
#[inline(always)]
pub fn load32(address: usize) -> u64 {
    // SAFETY: callers give the address of a register that reading doesn't change.
    timed!("ldr {value:w}, [{address}]"; value = out(reg) _, address = in(reg) address, options(nostack))
}

/// A read of ID_AA64PFR0_EL1.
#[inline(always)]
pub fn id_register() -> u64 {
    // SAFETY: an identification register.
    timed!("mrs {value}, id_aa64pfr0_el1"; value = out(reg) _, options(nostack))
}

/// Acknowledges the pending interrupt and completes it.
#[inline(always)]
pub fn acknowledge_and_complete() -> u64 {
    // SAFETY: called with an SGI pending that nobody else handles.
    timed!("mrs {intid}, S3_0_C12_C12_0", "msr S3_0_C12_C12_1, {intid}"; intid = out(reg) _, options(nostack))
}

/// Sends an SGI; returns the counter right before.
#[inline(always)]
pub fn send_sgi(value: u64) -> u64 {
    let start: u64;
    // SAFETY: the caller's SGI; the barrier makes it take effect at once.
    unsafe {
        asm!("isb", "mrs {start}, cntvct_el0", "msr S3_0_C12_C11_5, {value}", "isb",
             start = out(reg) start, value = in(reg) value, options(nostack))
    };
    start
}

/// CPU_ON by the conduit; returns the counter right before, and the status.
pub fn cpu_on(affinity: u64, entry: u64, context: u64) -> (u64, i64) {
    let start = super::cpu::counter();
    let status = psci::status(psci::call(psci::CPU_ON, affinity, entry, context));
    (start, status)
}
