//! PSCI and SMCCC: versions, error codes, CPUs off and on again.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use super::{Checks, NATIVE, ONE_VCPU, odometer};
use crate::arch::{cpu, psci, selfcheck};
use crate::kernel::{cpus, machine};
use crate::samples::ticks;
use crate::sync::{Masked, relax};

/// An affinity that no vCPU has.
const NOBODY: u64 = 0x00_00fe_fdfc;
/// A function in PSCI's range that doesn't exist.
const NO_FUNCTION: u64 = 0x8400_00fe;

fn call(function: u64, a: u64, b: u64, c: u64) -> i64 {
    psci::status(psci::call(function, a, b, c))
}

fn affinity(index: usize) -> u64 {
    cpus::get(index).affinity.load(Ordering::Relaxed)
}

/// Before the other CPUs are started.
pub fn before_start(checks: &mut Checks) {
    if machine().psci.is_none() {
        return;
    }
    let version = call(psci::VERSION, 0, 0, 0);
    checks.note("psci_version", version >= 2, format_args!("{version:#x}"));
    if cpus::number() > 1 {
        let info = call(psci::AFFINITY_INFO, affinity(1), 0, 0);
        checks.note("affinity_info_off", info == 1, format_args!("{info}"));
    }
}

/// With all CPUs on.
pub fn run(checks: &mut Checks) {
    if machine().psci.is_none() {
        checks.skip("psci", "the device tree names no PSCI");
        return;
    }
    let expect = |checks: &mut Checks, name, status: i64, expected| {
        checks.note(name, status == expected, format_args!("{status}"));
    };
    checks.check("all_vcpus_on", (0..cpus::number()).all(|i| cpus::get(i).is_online()));
    expect(checks, "affinity_info_self", call(psci::AFFINITY_INFO, affinity(0), 0, 0), 0);
    expect(
        checks,
        "affinity_info_unknown",
        call(psci::AFFINITY_INFO, NOBODY, 0, 0),
        psci::INVALID_PARAMETERS,
    );
    let on = |affinity| call(psci::CPU_ON, affinity, cpus::entry(), 0);
    expect(checks, "cpu_on_self", on(affinity(0)), psci::ALREADY_ON);
    expect(checks, "cpu_on_unknown", on(NOBODY), psci::INVALID_PARAMETERS);
    expect(checks, "unknown_function", call(NO_FUNCTION, 0, 0, 0), psci::NOT_SUPPORTED);
    expect(checks, "features_unknown", call(psci::FEATURES, NO_FUNCTION, 0, 0), psci::NOT_SUPPORTED);
    expect(checks, "features_cpu_on", call(psci::FEATURES, psci::CPU_ON, 0, 0), 0);
    suspend(checks);
    if cpus::number() > 1 {
        expect(checks, "cpu_on_running", on(affinity(1)), psci::ALREADY_ON);
        off_and_on(checks);
        on_each_other(checks);
    } else {
        checks.skip("cpu_on_running", ONE_VCPU);
        checks.skip("cpu_off_and_on", ONE_VCPU);
        checks.skip("cpu_on_each_other", ONE_VCPU);
    }
    race(checks);
    by_smc(checks);
    own_functions(checks);
}

/// CPU_SUSPEND to standby ends with an interrupt, here that of the timer.
fn suspend(checks: &mut Checks) {
    let status = {
        let _masked = Masked::new();
        cpu::arm_timer(cpu::counter() + ticks(1_000_000, cpu::frequency()));
        let status = call(psci::CPU_SUSPEND, 0, 0, 0);
        (status, cpus::wait(cpu::interrupt_pending))
    };
    cpu::stop_timer();
    checks.note("cpu_suspend", status == (0, true), format_args!("{status:?}"));
}

fn off_and_on(checks: &mut Checks) {
    let ok = (0..3).all(|_| {
        for index in 1..cpus::number() {
            cpus::run_on(index, cpus::go_off);
        }
        (1..cpus::number()).all(cpus::wait_off) && cpus::start_all()
    });
    checks.check("cpu_off_and_on", ok);
}

static GO: AtomicBool = AtomicBool::new(false);
static ANSWER: AtomicI64 = AtomicI64::new(0);
static TARGET: AtomicU32 = AtomicU32::new(0);

fn start_target() -> i64 {
    let target = TARGET.load(Ordering::Relaxed) as usize;
    call(psci::CPU_ON, affinity(target), cpus::entry(), target as u64)
}

fn start_when_told() {
    while !GO.load(Ordering::Acquire) {
        relax();
    }
    ANSWER.store(start_target(), Ordering::Relaxed);
}

/// vCPU 1 starts vCPU 0 while vCPU 0 starts vCPU 1: both run already.
fn on_each_other(checks: &mut Checks) {
    GO.store(false, Ordering::Relaxed);
    TARGET.store(0, Ordering::Relaxed);
    cpus::run_on(1, start_when_told);
    GO.store(true, Ordering::Release);
    let mine = call(psci::CPU_ON, affinity(1), cpus::entry(), 1);
    let done = cpus::wait(|| cpus::is_done(1));
    let theirs = ANSWER.load(Ordering::Relaxed);
    let ok = done && mine == psci::ALREADY_ON && theirs == psci::ALREADY_ON;
    checks.note("cpu_on_each_other", ok, format_args!("{mine} {theirs}"));
}

/// ON_PENDING.
const ON_PENDING: i64 = -5;

/// Two vCPUs start the same third one at once: one succeeds.
fn race(checks: &mut Checks) {
    if cpus::number() < 3 {
        checks.skip("cpu_on_race", "needs three vCPUs");
        return;
    }
    if !odometer::is_beneath() {
        // QEMU's own PSCI marks the CPU as on only once the CPU itself runs: both calls may succeed.
        checks.skip("cpu_on_race", NATIVE);
        return;
    }
    let mut seen = (0, 0);
    let ok = (0..10).all(|_| {
        cpus::run_on(2, cpus::go_off);
        if !cpus::wait_off(2) {
            return false;
        }
        GO.store(false, Ordering::Relaxed);
        TARGET.store(2, Ordering::Relaxed);
        cpus::run_on(1, start_when_told);
        GO.store(true, Ordering::Release);
        let mine = start_target();
        let done = cpus::wait(|| cpus::is_done(1) && cpus::get(2).is_online());
        seen = (mine, ANSWER.load(Ordering::Relaxed));
        let late = |status| status == psci::ALREADY_ON || status == ON_PENDING;
        done && ((seen.0 == 0 && late(seen.1)) || (late(seen.0) && seen.1 == 0))
    });
    checks.note("cpu_on_race", ok, format_args!("{seen:?}"));
}

fn by_smc(checks: &mut Checks) {
    if !odometer::is_beneath() {
        checks.skip("smc_calls", NATIVE);
        return;
    }
    let by = |function, a, b| {
        let hvc = psci::status(psci::hvc(function, a, b, 0));
        let smc = psci::status(psci::smc(function, a, b, 0));
        (hvc, smc)
    };
    for (name, (hvc, smc)) in [
        ("smc_version", by(psci::VERSION, 0, 0)),
        ("smc_cpu_on_self", by(psci::CPU_ON, affinity(0), cpus::entry())),
        ("smc_cpu_on_unknown", by(psci::CPU_ON, NOBODY, cpus::entry())),
        ("smc_affinity_info", by(psci::AFFINITY_INFO, affinity(0), 0)),
        ("smc_features", by(psci::FEATURES, psci::CPU_ON, 0)),
    ] {
        checks.note(name, hvc == smc, format_args!("{hvc} {smc}"));
    }
    let odd = selfcheck::odd_smc();
    checks.note("smc_unknown", odd == Ok(psci::NOT_SUPPORTED), format_args!("{odd:?}"));
}

/// Odometer's own hypercalls.
fn own_functions(checks: &mut Checks) {
    if !odometer::is_beneath() {
        checks.skip("read_counter", NATIVE);
        return;
    }
    let before = odometer::counter(0);
    for _ in 0..10 {
        psci::call(psci::VERSION, 0, 0, 0);
    }
    let after = odometer::counter(0);
    let ok = matches!((before, after), (Some(before), Some(after)) if after >= before + 10);
    checks.note("read_counter", ok, format_args!("{before:?} {after:?}"));
    let status = |vcpu, id| psci::call(psci::READ_COUNTER, vcpu, id, 0)[0] as i64;
    let bad = (status(200, 0), status(0, 0xffff_ffff), status(1 << 63, 5));
    let ok = bad.0 != 0 && bad.1 != 0 && bad.2 != 0;
    checks.note("read_counter_refused", ok, format_args!("{bad:?}"));
    let unknown = psci::call(psci::MEASURE, 0xffff_ffff, 1, 0)[0] as i64;
    checks.note("measure_refused", unknown != 0, format_args!("{unknown}"));
    let sum = (0..cpus::number() as u64)
        .map(|vcpu| psci::call(psci::READ_COUNTER, vcpu, odometer::SCHEDULE_INS, 0))
        .try_fold(0, |sum, answer| (answer[0] == 0).then_some(sum + answer[1]));
    let whole = odometer::counter(odometer::SCHEDULE_INS);
    let ok = matches!((sum, whole), (Some(sum), Some(whole)) if sum <= whole && whole > 0);
    checks.note("read_counter_sums", ok, format_args!("{sum:?} {whole:?}"));
}
