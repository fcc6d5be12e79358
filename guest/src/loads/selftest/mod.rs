//! `selftest`: checks of the machine beneath, for the system tests. Each prints a line; some need Odometer or
//! several vCPUs and are skipped, with the reason, where there are none.

mod calls;
mod instructions;
mod interrupts;
mod memory;
mod registers;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use super::odometer::{self, HVC_EXITS};
use crate::arch::{cpu, psci, selfcheck};
use crate::arguments::End;
use crate::json::Escaped;
use crate::kernel::console::report;
use crate::kernel::{self, console, cpus};
use crate::sync::Masked;

/// What has come out so far.
#[derive(Default)]
pub struct Checks {
    done: u32,
    failed: u32,
    skipped: u32,
}

impl Checks {
    /// A check without more to say.
    pub fn check(&mut self, name: &str, ok: bool) {
        self.note(name, ok, format_args!(""));
    }

    /// A check with what was seen.
    pub fn note(&mut self, name: &str, ok: bool, seen: fmt::Arguments<'_>) {
        self.done += 1;
        self.failed += u32::from(!ok);
        report!("check", "\"name\":\"{}\",\"ok\":{},\"seen\":\"{}\"", name, ok, Escaped(seen));
    }

    /// A check that can't be made here.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        report!("check", "\"name\":\"{}\",\"ok\":true,\"skipped\":true,\"reason\":\"{}\"", name, why);
    }
}

/// Why a check is skipped on one vCPU.
const ONE_VCPU: &str = "needs two vCPUs";
/// Why a check is skipped elsewhere.
const NATIVE: &str = "needs Odometer beneath";

/// Runs all checks; ends as `end` says. Returns whether all passed.
pub fn run(end: End) -> bool {
    if matches!(end, End::Reset | End::Hang | End::Panic) && is_second_boot() {
        report!("check", "\"name\":\"started_again\",\"ok\":true,\"seen\":\"{:?}\"", end);
        return true;
    }
    let mut checks = Checks::default();
    calls::before_start(&mut checks);
    if !cpus::start_all() {
        return false;
    }
    calls::run(&mut checks);
    interrupts::run(&mut checks);
    registers::run(&mut checks);
    instructions::run(&mut checks);
    memory::run(&mut checks);
    report!(
        "selftest",
        "\"vcpus\":{},\"odometer\":{},\"checks\":{},\"failed\":{},\"skipped\":{}",
        cpus::number(),
        odometer::is_beneath(),
        checks.done,
        checks.failed,
        checks.skipped
    );
    let ok = checks.failed == 0;
    match end {
        End::Off => ok,
        End::Vcpu1 => end_on_vcpu1(ok),
        End::Reset => ok && reset(),
        End::Hang => ok && hang(),
        End::Panic => ok && panic(),
    }
}

static RESULT: AtomicU64 = AtomicU64::new(0);

/// vCPU 0 goes off; vCPU 1 sees that and ends the machine.
fn end_on_vcpu1(ok: bool) -> bool {
    if cpus::number() < 2 {
        kernel::error(format_args!("end=vcpu1 needs two vCPUs"));
        return false;
    }
    RESULT.store(u64::from(ok), Ordering::Relaxed);
    cpus::run_on(1, || {
        let off = cpus::wait_off(0);
        report!("check", "\"name\":\"vcpu0_off\",\"ok\":{}", off);
        kernel::end(off && RESULT.load(Ordering::Relaxed) != 0);
    });
    cpus::go_off();
    false
}

/// Where the mark is that a plain machine keeps over a reset: RAM below the image.
const MARK_AT: usize = 0x4000_8000;
const MARK: u64 = 0x5e5e_7000_0d0e_0001;
/// More hypercalls than the kernel makes before a load begins: Odometer zeroes RAM at a reset, but a VM's
/// counters go on.
const MANY: u64 = 2000;

fn is_second_boot() -> bool {
    // SAFETY: mapped RAM that nothing else uses.
    let mark = unsafe { core::ptr::read_volatile(MARK_AT as *const u64) };
    mark == MARK || (odometer::is_beneath() && odometer::counter(HVC_EXITS).is_some_and(|n| n > MANY))
}

/// Leaves what [`is_second_boot`] looks for.
fn mark() {
    if odometer::is_beneath() {
        (0..2 * MANY).for_each(|_| _ = psci::call(psci::VERSION, 0, 0, 0));
    }
    // SAFETY: as in `is_second_boot`.
    unsafe { core::ptr::write_volatile(MARK_AT as *mut u64, MARK) };
    selfcheck::clean(MARK_AT);
    console::drain();
}

/// Waits deaf and without a timer, as a kernel that has parked its CPU.
fn hang() -> bool {
    mark();
    let _masked = Masked::new();
    cpu::stop_timer();
    loop {
        cpu::wait_for_interrupt();
    }
}

/// Linux's last words when it has panicked with `panic=0`; then it spins, and its timer ticks.
fn panic() -> bool {
    mark();
    console::emergency(format_args!("---[ end Kernel panic - not syncing: selftest ]---"));
    loop {
        cpu::arm_timer(cpu::counter() + cpu::frequency() / 100);
        cpu::wait_for_interrupt();
    }
}

fn reset() -> bool {
    mark();
    let status = psci::status(psci::call(psci::SYSTEM_RESET, 0, 0, 0));
    kernel::error(format_args!("SYSTEM_RESET returned {status}"));
    false
}
