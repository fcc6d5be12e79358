//! `micro`: what single operations cost, by the counter.
//!
//! Each sample is the difference of two readings right around the operation, less what two readings with nothing
//! between them cost; for interrupts the second reading is the handler's first act once registers are saved. The
//! loops around are not in it. With a counter at 1 GHz under `-icount shift=0` a nanosecond is an instruction.

use core::sync::atomic::{AtomicBool, Ordering};

use super::odometer;
use crate::arch::{cpu, gic, measure, psci, uart};
use crate::arguments::{Op, Ops};
use crate::kernel::console::report;
use crate::kernel::cpus::{self, SGI_MEASURE};
use crate::kernel::machine;
use crate::machine::Conduit;
use crate::samples::{Samples, mean, nanoseconds, ticks};
use crate::sync::{Masked, relax};

/// How long a target is given to settle in WFI, in nanoseconds.
const SETTLE: u64 = 20_000;
/// How far ahead the timer is set, in nanoseconds.
const AHEAD: u64 = 20_000;
/// Rounds before the first one that counts.
const WARM_UP: u32 = 8;

/// What came of an operation.
enum Outcome {
    Measured(Samples),
    /// Only the sum: ticks for so many operations.
    Total(u64, u64),
    Skipped(&'static str),
    Failed(&'static str),
}

/// Runs the chosen operations; false when one failed.
pub fn run(ops: Ops, n: u32) -> bool {
    let mut ok = true;
    for op in Op::ALL.into_iter().filter(|op| ops.contains(*op)) {
        let outcome = one(op, n);
        let (name, hz) = (op.name(), cpu::frequency());
        match outcome {
            Outcome::Measured(samples) => report!(
                "micro",
                "\"op\":\"{}\",\"n\":{},\"unit\":\"ns\",\"mean\":{},\"min\":{},\"max\":{}",
                name,
                samples.count(),
                samples.mean(hz),
                nanoseconds(samples.min(), hz),
                nanoseconds(samples.max(), hz)
            ),
            Outcome::Total(ticks, n) => report!(
                "micro",
                "\"op\":\"{}\",\"n\":{},\"unit\":\"ns\",\"mean\":{}",
                name,
                n,
                mean(ticks, n, hz)
            ),
            Outcome::Skipped(why) => {
                report!("micro", "\"op\":\"{}\",\"skipped\":true,\"reason\":\"{}\"", name, why);
            }
            Outcome::Failed(why) => {
                ok = false;
                report!("micro", "\"op\":\"{}\",\"failed\":true,\"reason\":\"{}\"", name, why);
            }
        }
    }
    ok
}

fn one(op: Op, n: u32) -> Outcome {
    match op {
        Op::Hypercall if machine().psci.is_none() => Outcome::Skipped("the machine has no PSCI"),
        Op::Hypercall if psci::conduit() == Conduit::Hvc => repeat(n, measure::hypercall_hvc),
        Op::Hypercall => repeat(n, measure::hypercall_smc),
        Op::GicTrap => {
            let address = gic::distributor().address(gic::GICD_TYPER);
            repeat(n, || measure::load32(address))
        }
        Op::Mmio => {
            let address = machine().uart.base as usize + uart::FR;
            repeat(n, || measure::load32(address))
        }
        Op::SysregTrap => repeat(n, measure::id_register),
        Op::SgiSelf => sgi_self(n),
        Op::Ipi => ipi(n, spin_for_sgis),
        Op::IpiWfi => ipi(n, wait_for_sgis),
        Op::Timer => timer(n, spin_for_timer),
        Op::TimerWfi => timer(n, wait_for_timer),
        Op::IrqCompletion => irq_completion(n),
        Op::CpuOn => cpu_on(n),
        Op::VmSwitch => vm_switch(n),
        Op::VmidFast => vmid_fast(n),
    }
}

/// The ticks of two readings with nothing between: the least of a few.
fn baseline() -> u64 {
    (0..16).map(|_| measure::nothing()).min().unwrap_or(0)
}

/// Measures `operation` n times with interrupts masked, less the baseline.
#[inline(always)]
fn repeat(n: u32, mut operation: impl FnMut() -> u64) -> Outcome {
    let _masked = Masked::new();
    let baseline = baseline();
    let mut samples = Samples::new();
    for _ in 0..WARM_UP.min(n) {
        operation();
    }
    for _ in 0..n {
        samples.add(operation().saturating_sub(baseline));
    }
    Outcome::Measured(samples)
}

/// Adds what `sample` returns, n times after warming up; `None` from it is a failure.
fn collect(n: u32, why: &'static str, mut sample: impl FnMut() -> Option<u64>) -> Outcome {
    let mut samples = Samples::new();
    for round in 0..n + WARM_UP.min(n) {
        let Some(ticks) = sample() else { return Outcome::Failed(why) };
        if round >= WARM_UP.min(n) {
            samples.add(ticks);
        }
    }
    Outcome::Measured(samples)
}

fn sgi_self(n: u32) -> Outcome {
    let me = cpus::this();
    let value = gic::sgi_value(cpu::affinity(), SGI_MEASURE);
    collect(n, "the SGI did not come", || {
        let before = me.arrivals(SGI_MEASURE);
        let start = measure::send_sgi(value);
        cpus::wait(|| me.arrivals(SGI_MEASURE) != before)
            .then(|| me.arrived(SGI_MEASURE).saturating_sub(start))
    })
}

/// Tells vCPU 1's jobs to end.
static STOP: AtomicBool = AtomicBool::new(false);
/// Rises while vCPU 1 is in its job.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// vCPU 1: a plain loop.
fn spin_for_sgis() {
    INSIDE.store(true, Ordering::Release);
    while !STOP.load(Ordering::Relaxed) {
        relax();
    }
}

/// vCPU 1: waits by WFI.
fn wait_for_sgis() {
    INSIDE.store(true, Ordering::Release);
    loop {
        // WFI ends with the interrupt pending and masked; it is taken when the mask goes.
        let _masked = Masked::new();
        if STOP.load(Ordering::Relaxed) {
            break;
        }
        cpu::wait_for_interrupt();
    }
}

fn busy_wait(nanoseconds: u64) {
    let start = cpu::counter();
    let limit = ticks(nanoseconds, cpu::frequency());
    while cpu::counter().wrapping_sub(start) < limit {
        relax();
    }
}

fn ipi(n: u32, target: fn()) -> Outcome {
    if cpus::number() < 2 {
        return Outcome::Skipped("needs two vCPUs");
    }
    if !cpus::get(1).is_online() && cpus::start(1).is_err() {
        return Outcome::Failed("vCPU 1 could not be started");
    }
    STOP.store(false, Ordering::Relaxed);
    INSIDE.store(false, Ordering::Relaxed);
    cpus::run_on(1, target);
    if !cpus::wait(|| INSIDE.load(Ordering::Acquire)) {
        return Outcome::Failed("vCPU 1 did not take its job");
    }
    let other = cpus::get(1);
    let value = gic::sgi_value(other.affinity.load(Ordering::Relaxed), SGI_MEASURE);
    let outcome = collect(n, "the SGI did not come", || {
        busy_wait(SETTLE);
        let before = other.arrivals(SGI_MEASURE);
        let start = measure::send_sgi(value);
        cpus::wait(|| other.arrivals(SGI_MEASURE) != before)
            .then(|| other.arrived(SGI_MEASURE).saturating_sub(start))
    });
    STOP.store(true, Ordering::Relaxed);
    cpus::send(1, SGI_MEASURE);
    if !cpus::wait(|| cpus::is_done(1)) {
        return Outcome::Failed("vCPU 1 did not end its job");
    }
    outcome
}

fn spin_for_timer(done: &dyn Fn() -> bool) -> bool {
    let start = cpu::counter();
    let limit = cpus::PATIENCE * cpu::frequency();
    while !done() {
        if cpu::counter().wrapping_sub(start) > limit {
            return false;
        }
    }
    true
}

fn wait_for_timer(done: &dyn Fn() -> bool) -> bool {
    loop {
        let _masked = Masked::new();
        if done() {
            return true;
        }
        cpu::wait_for_interrupt();
    }
}

fn timer(n: u32, wait: fn(&dyn Fn() -> bool) -> bool) -> Outcome {
    let me = cpus::this();
    let intid = machine().timer;
    let ahead = ticks(AHEAD, cpu::frequency());
    collect(n, "the timer's interrupt did not come", || {
        let before = me.arrivals(intid);
        let due = cpu::counter() + ahead;
        cpu::arm_timer(due);
        wait(&|| me.arrivals(intid) != before).then(|| me.arrived(intid).saturating_sub(due))
    })
}

fn irq_completion(n: u32) -> Outcome {
    let value = gic::sgi_value(cpu::affinity(), SGI_MEASURE);
    let _masked = Masked::new();
    let baseline = baseline();
    collect(n, "the SGI did not come", || {
        gic::send_sgi(value);
        cpus::wait(cpu::interrupt_pending)
            .then(|| measure::acknowledge_and_complete().saturating_sub(baseline))
    })
}

fn cpu_on(n: u32) -> Outcome {
    if cpus::number() < 2 {
        return Outcome::Skipped("needs two vCPUs");
    }
    let off = || {
        cpus::run_on(1, cpus::go_off);
        cpus::wait_off(1)
    };
    if cpus::get(1).is_online() && !off() {
        return Outcome::Failed("vCPU 1 did not go off");
    }
    let affinity = cpus::get(1).affinity.load(Ordering::Relaxed);
    collect(n, "vCPU 1 did not start or did not go off", || {
        let (start, status) = measure::cpu_on(affinity, cpus::entry(), 1);
        let up = status == 0 && cpus::wait(|| cpus::get(1).is_online());
        let started = cpus::get(1).started.load(Ordering::Relaxed);
        (up && off()).then(|| started.saturating_sub(start))
    })
}

/// Yields before a partner must have shown up.
const PARTNER_YIELDS: u32 = 200_000;

fn vm_switch(n: u32) -> Outcome {
    if !odometer::is_beneath() {
        return Outcome::Skipped("needs Odometer beneath");
    }
    let schedule_ins = || odometer::counter(odometer::SCHEDULE_INS).unwrap_or(0);
    // The partner is there once each yield brings a schedule-in of our own.
    let partner = (0..PARTNER_YIELDS / 8).any(|_| {
        let before = schedule_ins();
        (0..8).for_each(|_| odometer::give_cpu_away());
        schedule_ins() - before >= 8
    });
    if !partner {
        return Outcome::Skipped("needs a partner VM with load=yield on the same CPU");
    }
    let _masked = Masked::new();
    let before = schedule_ins();
    let start = cpu::counter();
    for _ in 0..n {
        odometer::give_cpu_away();
    }
    let total = cpu::counter() - start;
    if schedule_ins() - before < u64::from(n) - u64::from(n) / 10 {
        return Outcome::Failed("the partner went away, or not every yield switched");
    }
    Outcome::Total(total, 2 * u64::from(n))
}

fn vmid_fast(n: u32) -> Outcome {
    if !odometer::is_beneath() {
        return Outcome::Skipped("needs Odometer beneath");
    }
    match odometer::measure(odometer::MEASURE_VMID, u64::from(n)) {
        Some((with, without)) => Outcome::Total(with.saturating_sub(without), u64::from(n)),
        None => Outcome::Skipped("the hypervisor has no MEASURE"),
    }
}
