//! Loads that do little: `idle`, `spin`, `yield`.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::odometer;
use crate::arch::cpu;
use crate::kernel::console::report;
use crate::kernel::{cpus, error, machine};
use crate::samples::nanoseconds;
use crate::sync::Masked;

/// When the load ends, in the counter's ticks.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
/// Turns of all CPUs' loops.
static TURNS: AtomicU64 = AtomicU64::new(0);
static MASKED: AtomicBool = AtomicBool::new(false);

fn set_deadline(milliseconds: u64) -> u64 {
    let start = cpu::counter();
    DEADLINE.store(start + milliseconds * cpu::frequency() / 1000, Ordering::Relaxed);
    start
}

/// All vCPUs wait by WFI; vCPU 0 arms its timer for the end, the others have none.
pub fn idle(milliseconds: u64) -> bool {
    if !cpus::start_all() {
        return false;
    }
    let start = set_deadline(milliseconds);
    let timer = machine().timer;
    let before = cpus::this().arrivals(timer);
    cpu::arm_timer(DEADLINE.load(Ordering::Relaxed));
    let mut waits = 0u64;
    loop {
        let _masked = Masked::new();
        if cpus::this().arrivals(timer) != before {
            break;
        }
        cpu::wait_for_interrupt();
        waits += 1;
    }
    let time = nanoseconds(cpu::counter() - start, cpu::frequency());
    report!("idle", "\"vcpus\":{},\"time_ns\":{},\"waits\":{},\"ok\":true", cpus::number(), time, waits);
    true
}

fn spin_job() {
    let masked = MASKED.load(Ordering::Relaxed).then(Masked::new);
    let deadline = DEADLINE.load(Ordering::Relaxed);
    let mut turns = 0u64;
    while cpu::counter() < deadline {
        for _ in 0..1000 {
            turns = core::hint::black_box(turns + 1);
        }
    }
    TURNS.fetch_add(turns, Ordering::Relaxed);
    drop(masked);
}

/// All vCPUs compute until the time is over.
pub fn spin(milliseconds: u64, masked: bool) -> bool {
    if !cpus::start_all() {
        return false;
    }
    MASKED.store(masked, Ordering::Relaxed);
    let start = set_deadline(milliseconds);
    cpus::run_everywhere(spin_job);
    let time = nanoseconds(cpu::counter() - start, cpu::frequency());
    report!(
        "spin",
        "\"vcpus\":{},\"masked\":{},\"time_ns\":{},\"turns\":{},\"ok\":true",
        cpus::number(),
        masked,
        time,
        TURNS.load(Ordering::Relaxed)
    );
    true
}

/// Gives the CPU away `n` times.
pub fn give_away(n: u32) -> bool {
    if !odometer::is_beneath() {
        error(format_args!("load yield needs Odometer beneath: nobody else answers its YIELD"));
        return false;
    }
    let start = cpu::counter();
    for _ in 0..n {
        odometer::give_cpu_away();
    }
    let time = nanoseconds(cpu::counter() - start, cpu::frequency());
    report!("yield", "\"n\":{},\"time_ns\":{},\"ok\":true", n, time);
    true
}
