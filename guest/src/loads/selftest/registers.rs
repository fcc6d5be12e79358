//! Registers are the guest's own: nothing that leaves for the hypervisor changes them.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Checks;
use crate::arch::{cpu, features, gic, psci, selfcheck, uart};
use crate::kernel::{cpus, machine};
use crate::samples::ticks;
use crate::sync::Masked;

/// How long registers are held, in nanoseconds: more than a time slice.
const HOLD: u64 = 30_000_000;

static CHANGED: AtomicU64 = AtomicU64::new(0);
static VECTORS_CHANGED: AtomicU64 = AtomicU64::new(0);
static KEYS_CHANGED: AtomicU64 = AtomicU64::new(0);

/// Runs the checks.
pub fn run(checks: &mut Checks) {
    let mut check = |name, changed: u64| checks.note(name, changed == 0, format_args!("{changed:#x}"));
    if machine().psci.is_some() && psci::conduit() == crate::machine::Conduit::Hvc {
        check("registers_over_hvc", selfcheck::registers_over_hvc(psci::VERSION));
    }
    let enable = gic::distributor().address(gic::GICD_ISENABLER);
    check("registers_over_gicd", selfcheck::registers_over_mmio(enable));
    check("registers_over_uart", selfcheck::registers_over_mmio(machine().uart.base as usize + uart::IMSC));
    check("registers_over_id_registers", selfcheck::registers_over_id());
    cpus::run_everywhere(hold);
    check("registers_over_time", CHANGED.load(Ordering::Relaxed));
    check("vectors_over_time", VECTORS_CHANGED.load(Ordering::Relaxed));
    cpus::run_everywhere(sign);
    check("pointer_keys_over_time", KEYS_CHANGED.load(Ordering::Relaxed));
}

/// On each CPU, at the same time: a pointer signed with a key of its own, before time slices and after.
fn sign() {
    let _masked = Masked::new();
    let deadline = cpu::counter() + ticks(HOLD, cpu::frequency());
    // The counter, so that two VMs differ as well.
    let seed = (cpu::counter() << 8) | cpu::index() as u64;
    if features::signatures_over_time(seed, deadline).is_some_and(|(before, after)| before != after) {
        KEYS_CHANGED.fetch_or(1 << cpu::index(), Ordering::Relaxed);
    }
}

/// On each CPU: general registers over time slices and over a wait, then vector registers.
fn hold() {
    let hz = cpu::frequency();
    let masked = Masked::new();
    let until = |part| cpu::counter() + ticks(HOLD / part, hz);
    let mut changed = selfcheck::registers_over_time(until(1));
    cpu::arm_timer(until(10));
    changed |= selfcheck::registers_over_wait();
    let pattern = 0x1000_0000_0000 * (1 + cpu::index() as u64);
    let mut vectors = selfcheck::vectors_over_time(pattern, until(1), false);
    cpu::arm_timer(until(5));
    vectors |= selfcheck::vectors_over_time(pattern, until(10), true);
    cpu::stop_timer();
    drop(masked);
    CHANGED.fetch_or(changed, Ordering::Relaxed);
    VECTORS_CHANGED.fetch_or(vectors, Ordering::Relaxed);
}
