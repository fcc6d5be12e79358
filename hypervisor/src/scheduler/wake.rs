//! Making vCPUs ready again, and telling other CPUs.

use super::binding::rebind;
use super::cpu::{Cpu, CpuShared};
use super::housekeeping;
use super::timers::Wake;
use crate::arch;
use crate::arch::context::TimerState;
use crate::ids::{CpuId, VcpuIndex};
use crate::stats::VcpuState;
use crate::sync::moment;
use crate::system::System;
use crate::trace::{self, Tracer};
use crate::vgic::VcpuSet;
use crate::vm::layout::TIMER_PHYS_INTID;
use crate::vm::{RunState, Vcpu, Vm, request};
use core::sync::atomic::Ordering;

/// Something may be deliverable to `target` now: makes the CPU look that runs it, or makes it ready if it waits.
// Not inlined: callers are on the path of every exit, and would keep registers for this.
#[inline(never)]
pub fn notify(cpu: &'static Cpu, target: &'static Vcpu) {
    match target.state.get() {
        RunState::Running(on) if on != cpu.shared.id => kick(cpu, on, target),
        RunState::Blocked => wake_blocked(cpu, target),
        _ => {}
    }
}

/// [`notify`] for each of a VM's vCPUs in `set`, siblings of `vcpu`.
#[inline(always)]
pub fn notify_set(cpu: &'static Cpu, vcpu: &Vcpu, set: VcpuSet) {
    if set != VcpuSet::EMPTY {
        notify_each(cpu, vcpu.vm, set);
    }
}

#[cold]
#[inline(never)]
fn notify_each(cpu: &'static Cpu, vm: &Vm, set: VcpuSet) {
    for index in set {
        notify_index(cpu, vm, index);
    }
}

/// [`notify`] for a VM's vCPU by number.
#[inline(never)]
pub fn notify_index(cpu: &'static Cpu, vm: &Vm, index: VcpuIndex) {
    if let Some(target) = vm.vcpus().get(index.index()).copied() {
        notify(cpu, target);
    }
}

/// Interrupts another CPU on a vCPU's behalf.
fn kick(cpu: &Cpu, on: CpuId, target: &Vcpu) {
    if let Some(other) = cpu.system.cpu(on) {
        kick_cpu(cpu, other, target);
    }
}

/// Ends the wait of a vCPU, if it still waits.
pub fn wake_blocked(cpu: &'static Cpu, target: &'static Vcpu) {
    if target.state.change(RunState::Blocked, RunState::Ready) {
        target.stats.transition(VcpuState::Ready, arch::counter());
        queue(cpu, target);
    }
}

/// Starts a vCPU that is off and whose registers are set.
pub fn start(cpu: &'static Cpu, target: &'static Vcpu) {
    target.stats.transition(VcpuState::Ready, arch::counter());
    target.state.set(RunState::Ready);
    queue(cpu, target);
}

/// Where a vCPU should run that nothing binds to a CPU: where it ran last if that waits, else on any that waits, else
/// where it ran last. One that has not run yet goes where the fewest wait, so that siblings begin apart.
fn choose(system: &System, here: CpuId, target: &Vcpu) -> CpuId {
    match target.last_cpu() {
        Some(last) if system.idle.contains(last) => last,
        last => system.idle.any().or(last).unwrap_or_else(|| {
            let others =
                system.cpus.iter().filter(|cpu| cpu.online.load(Ordering::Relaxed) && cpu.id != here);
            let shortest = others.min_by_key(|cpu| cpu.queued.load(Ordering::Relaxed));
            shortest.map_or(here, |cpu| cpu.id)
        }),
    }
}

/// Queues a ready vCPU where it should run, and has that CPU look.
fn queue(cpu: &'static Cpu, target: &'static Vcpu) {
    let system = cpu.system;
    let here = cpu.shared.id;
    let chosen = target.pin.or(target.resident()).unwrap_or_else(|| choose(system, here, target));
    let Some(shared) = system.cpu(chosen) else { return };
    push(system, shared, target);
    if chosen == here {
        limit_slice(cpu);
    } else if system.idle.clear(chosen) {
        kick_cpu(cpu, shared, target);
        return;
    } else if shared.tickless.load(Ordering::SeqCst) {
        kick_cpu(cpu, shared, target);
    }
    offer(cpu, target);
}

/// A ready vCPU has been queued on a CPU that is busy: a CPU that has begun to wait meanwhile may take it.
pub fn offer(cpu: &Cpu, vcpu: &Vcpu) {
    let system = cpu.system;
    if vcpu.pin.is_none()
        && vcpu.resident().is_none()
        && let Some(idle) = system.idle.any()
        && system.idle.clear(idle)
        && let Some(shared) = system.cpu(idle)
    {
        kick_cpu(cpu, shared, vcpu);
    }
}

fn kick_cpu(cpu: &Cpu, shared: &CpuShared, target: &Vcpu) {
    target.stats.kicks.increment_shared();
    arch::send_kick(shared.kick_target);
    // Last, so that nothing needs to be kept over the call.
    if cpu.ring.is_some() {
        trace::note_kick(cpu, shared, target);
    }
}

/// Puts a vCPU at the end of a CPU's queue.
pub fn push(system: &System, shared: &CpuShared, vcpu: &Vcpu) {
    let mut queue = shared.queue.lock();
    queue.push(&system.links, vcpu.global);
    shared.queued.store(queue.len(), Ordering::SeqCst);
}

/// Another CPU has something for this one, which has left `vcpu`'s guest for it.
pub fn kick_arrived<T: Tracer>(cpu: &Cpu, vcpu: &Vcpu) {
    if cpu.system.vmids.is_called_out(cpu.vmid) {
        rebind::<T>(cpu, vcpu);
    }
    limit_slice(cpu);
}

/// Sets the timer for what comes next: the end of the slice if others wait, and the vCPUs that wait here for their timers.
///
/// Also says whether this CPU must be kicked by who queues something. First it says so, then it looks, so that one that is queued
/// meanwhile is either seen here, or sees that a kick is due. A slice whose end nobody waits for any more (others
/// have taken what was queued) becomes one without a limit again.
pub fn limit_slice(cpu: &Cpu) {
    let shared = cpu.shared;
    shared.tickless.store(true, Ordering::SeqCst);
    moment();
    if shared.queued.load(Ordering::SeqCst) == 0 {
        return arm_timer(cpu, u64::MAX);
    }
    shared.tickless.store(false, Ordering::SeqCst);
    arm_timer(cpu, cpu.slice_end.get());
}

/// Sets the EL2 timer to `limit` or to the earliest wake-up, whichever is first.
pub fn arm_timer(cpu: &Cpu, limit: u64) {
    let earliest = cpu.timers.try_borrow().ok().and_then(|timers| timers.earliest()).unwrap_or(u64::MAX);
    let deadline = limit.min(earliest).min(cpu.housekeeping.get()).min(cpu.guest_timer.get());
    if cpu.armed.replace(deadline) != deadline {
        if deadline == u64::MAX {
            arch::disarm_el2_timer();
        } else {
            arch::arm_el2_timer(deadline);
        }
    }
}

/// A vCPU waits here until `deadline`.
pub fn set_timer(cpu: &Cpu, vcpu: &Vcpu, deadline: u64, wait: u32) {
    if let Ok(mut timers) = cpu.timers.try_borrow_mut() {
        timers.set(Wake { deadline, vcpu: vcpu.global, wait });
    }
}

/// A vCPU does not wait here any more.
pub fn cancel_timer(cpu: &Cpu, vcpu: &Vcpu) {
    if let Ok(mut timers) = cpu.timers.try_borrow_mut() {
        timers.cancel(vcpu.global);
    }
}

/// EL2's timer has expired: wakes whom it is for, and ends the slice if it is over and others wait.
pub fn check_timers(cpu: &'static Cpu, running: Option<&Vcpu>) {
    let now = arch::counter();
    // The interrupt is level-triggered: it goes away when the timer is set anew.
    cpu.armed.set(0);
    loop {
        let due = cpu.timers.try_borrow_mut().ok().and_then(|mut timers| timers.expired(now));
        let Some(wake) = due else { break };
        if let Some(vcpu) = cpu.system.vcpu(wake.vcpu)
            && vcpu.wait.load(Ordering::Relaxed) == wake.wait
        {
            wake_blocked(cpu, vcpu);
        }
    }
    if now >= cpu.guest_timer.get()
        && let Some(vcpu) = cpu.resident.get()
    {
        cpu.guest_timer.set(u64::MAX);
        physical_timer_line(cpu, vcpu, true);
    }
    if now >= cpu.housekeeping.get() {
        housekeeping::run(cpu, now);
    }
    match running {
        Some(vcpu) if now >= cpu.slice_end.get() && cpu.shared.queued.load(Ordering::SeqCst) != 0 => {
            vcpu.ask(request::RESCHEDULE);
            arm_timer(cpu, u64::MAX);
        }
        Some(_) => limit_slice(cpu),
        None => arm_timer(cpu, u64::MAX),
    }
}

/// The line of a vCPU's emulated physical timer changes.
fn physical_timer_line(cpu: &'static Cpu, vcpu: &Vcpu, high: bool) {
    let vm = vcpu.vm;
    vm.vgic.set_ppi_line(vcpu.index, TIMER_PHYS_INTID, high, &mut |index| notify_index(cpu, vm, index));
}

/// The emulated physical timer of the loaded vCPU has changed, or has come with it: sets its line, and the EL2 timer for when
/// it expires.
pub fn follow_physical_timer(cpu: &'static Cpu, vcpu: &Vcpu, timer: TimerState) {
    let expired = timer.armed() && arch::counter() >= timer.cval;
    physical_timer_line(cpu, vcpu, expired);
    cpu.guest_timer.set(if timer.armed() && !expired { timer.cval } else { u64::MAX });
    limit_slice(cpu);
}

/// Collects all vCPUs of a VM that ends: those that run are kicked, those that wait are made ready, and each is retired by the
/// CPU that meets it.
pub fn stop_vm(cpu: &'static Cpu, vm: &'static Vm) {
    for &vcpu in vm.vcpus() {
        vcpu.ask(request::STOP);
        notify(cpu, vcpu);
    }
}
