//! What a CPU does from time to time, on its EL2 timer: periodic reports, and the watchdog (`vm.watchdog_ms`).
//!
//! Each CPU notes when the timers of the vCPU expire that it holds, as nobody else can read them; the boot CPU then looks
//! for VMs that show no sign of life. Nothing of this is on the path of an exit.

use super::cpu::Cpu;
use super::wake;
use crate::arch;
use crate::arch::context::{Held, TimerState};
use crate::ids::CpuId;
use crate::platform::options::Afterwards;
use crate::stats::collect;
use crate::vm::watchdog::{NO_TIMER, Sample, own_exits};
use crate::vm::{RunState, Vcpu, Vm, life, request};
use core::sync::atomic::Ordering;

/// Something is due.
#[cold]
#[inline(never)]
pub fn run(cpu: &'static Cpu, now: u64) {
    if now >= cpu.next_report.get() {
        let period = cpu.system.report_ticks().unwrap_or(u64::MAX);
        collect::report_now(cpu.system);
        // From its end on: a report that takes longer than the period must not be all that the machine does.
        cpu.next_report.set(arch::counter().saturating_add(period));
    }
    if now >= cpu.next_watch.get() {
        if let Some(vcpu) = cpu.resident.get() {
            note_timers(vcpu, arch::virtual_timer(), cpu.guest_timer.get());
        }
        if cpu.shared.id == CpuId::BOOT {
            // No guest can mask EL2's timer: if its interrupt is late, the machine has stood still, and all guests with it.
            watch(cpu, now, now.saturating_sub(cpu.next_watch.get()));
        }
        cpu.next_watch.set(now.saturating_add(cpu.system.watch_period().unwrap_or(u64::MAX)));
    }
    cpu.housekeeping.set(cpu.next_report.get().min(cpu.next_watch.get()));
}

/// Notes when the timers of a vCPU that this CPU holds expire; `physical` is the emulated one's expiry.
pub fn note_timers(vcpu: &Vcpu, timer: TimerState, physical: u64) {
    let offset = vcpu.vm.cntvoff.load(Ordering::Relaxed);
    let virt = if timer.armed() { timer.cval.saturating_add(offset) } else { NO_TIMER };
    vcpu.watch.note_timer(virt.min(physical));
}

/// Has each VM stopped that shows no sign of life. `late`: for how many ticks this should have been done already.
fn watch(cpu: &'static Cpu, now: u64, late: u64) {
    let Some(limit) = cpu.system.watchdog_ticks() else { return };
    for vm in cpu.system.vms().iter().filter(|vm| vm.is_running()) {
        if let Some(vcpu) = stuck(vm, now, late, limit) {
            vcpu.ask(request::STUCK);
            wake::notify(cpu, vcpu);
        }
    }
}

/// If none of the VM's vCPUs has shown a sign of life for `limit` ticks: one of them, preferably one that spins.
fn stuck(vm: &'static Vm, now: u64, late: u64, limit: u64) -> Option<&'static Vcpu> {
    let mut alive = false;
    let mut named: Option<&'static Vcpu> = None;
    for &vcpu in vm.vcpus() {
        let state = vcpu.state.get();
        if state == RunState::Off {
            vcpu.watch.forget();
            continue;
        }
        let sample =
            Sample { now, late, exits: own_exits(&vcpu.stats.exits), ready: vcpu.stats.totals(now).ready };
        // All are asked, so that each has its own time.
        alive |= vcpu.watch.quiet(sample) < limit;
        if named.is_none() || state != RunState::Blocked {
            named = Some(vcpu);
        }
    }
    named.filter(|_| !alive)
}

/// The vCPU that is held was found stuck, or its kernel has panicked: reports it, and ends its VM or starts it again, as the
/// options say.
#[cold]
#[inline(never)]
pub fn stop_hopeless(held: &Held, requests: u32) {
    let options = &arch::this_cpu().system.options;
    let (what, then) = if requests & request::PANICKED != 0 {
        ("its kernel has panicked", options.panic.unwrap_or(Afterwards::End))
    } else {
        ("watchdog: no exit and no timer programmed for vm.watchdog_ms", options.watchdog)
    };
    life::give_up(held, what, then);
}
