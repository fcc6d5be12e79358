//! `reset`: boots and resets itself over and over. Nothing of one boot may be left for the next.

use super::odometer::{self, HVC_EXITS};
use crate::arch::{cpu, psci};
use crate::kernel::console::{self, report};
use crate::kernel::{cpus, error, machine};
use crate::sync::Masked;

/// Hypercalls that each boot makes, the kernel's own included: the VM's counters go on over a reset, and so tell which boot this is.
/// (All else that a guest could remember by must be gone.)
const CALLS: u64 = 64;
/// Where each boot leaves a mark in RAM, which must read as zero in the next: below the image, in no table of the kernel's.
const MARK_AT: usize = 0x4000_8000;
/// The SGI that is left pending.
const SGI: u32 = 5;

/// Resets until `n` boots have gone by; whether all of them found everything as new.
pub fn run(n: u32) -> bool {
    if !odometer::is_beneath() {
        error(format_args!("load reset needs Odometer beneath: elsewhere nothing counts the boots"));
        return false;
    }
    let Some(calls) = odometer::counter(HVC_EXITS) else {
        error(format_args!("READ_COUNTER does not answer"));
        return false;
    };
    // SAFETY: mapped RAM that nothing else uses.
    let mark = unsafe { core::ptr::read_volatile(MARK_AT as *const u64) };
    let timer = cpus::this().arrivals(machine().timer);
    let sgi = cpus::this().arrivals(SGI);
    if mark != 0 || timer != 0 || sgi != 0 || cpu::timer_expired() || cpu::interrupt_pending() {
        error(format_args!("left from the boot before: mark {mark:#x}, timer {timer}, SGI {sgi}"));
        return false;
    }
    let boot = calls / CALLS;
    if boot >= u64::from(n) {
        report!("reset", "\"n\":{},\"ok\":true", boot);
        return true;
    }
    // A second vCPU, if there is one, is left running.
    if !cpus::start_all() {
        return false;
    }
    // Each question is a hypercall.
    while odometer::counter(HVC_EXITS).is_some_and(|calls| calls / CALLS == boot) {}
    // SAFETY: as above.
    unsafe { core::ptr::write_volatile(MARK_AT as *mut u64, 0x5e5e_7000_0d0e_0001) };
    let _masked = Masked::new();
    cpus::send(0, SGI);
    cpu::arm_timer(cpu::counter());
    if !cpus::wait(cpu::interrupt_pending) {
        error(format_args!("neither timer nor SGI came"));
        return false;
    }
    console::drain();
    let status = psci::status(psci::call(psci::SYSTEM_RESET, 0, 0, 0));
    error(format_args!("SYSTEM_RESET returned {status}"));
    false
}
