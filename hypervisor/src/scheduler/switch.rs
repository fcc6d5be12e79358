//! Giving the CPU from one vCPU to the next.

use super::binding::{bind, unbind};
use super::cpu::Cpu;
use super::housekeeping;
use super::wake;
use crate::arch::{self, HardwareListRegisters, context::Held, context::TimerState};
use crate::exit::interrupt;
use crate::stats::{Reason, VcpuState, record_exit};
use crate::trace::{Kind, Quiet, Traced, Tracer};
use crate::vm::layout::{TIMER_PHYS_INTID, TIMER_VIRT_INTID};
use crate::vm::watchdog::NO_TIMER;
use crate::vm::{RunState, Vcpu, life, request};
use core::sync::atomic::Ordering;

/// The end of an exit that something was asked of: interrupts to deliver, or the CPU to give away.
#[inline(never)]
pub fn attend<T: Tracer>(mut held: Held, reason: Reason, start: u64) -> Held {
    let vcpu = held.vcpu;
    // Relaxed: mostly nothing is asked.
    if vcpu.requests.load(Ordering::Relaxed) != 0 {
        return give_up::<T>(held, reason, start);
    }
    let cpu = arch::this_cpu();
    let others = vcpu.vm.vgic.flush(vcpu.index, &T::registers(cpu, vcpu));
    wake::notify_set(cpu, vcpu, others);
    let end = arch::counter();
    let guest = start.wrapping_sub(held.entered);
    record_exit(&vcpu.stats, &cpu.shared.stats, reason, guest, end.wrapping_sub(start));
    held.entered = end;
    T::record_at(cpu, vcpu, end, Kind::Enter, 0, 0);
    held
}

/// The end of an exit after which the vCPU may not go on.
#[inline(never)]
fn give_up<T: Tracer>(held: Held, reason: Reason, start: u64) -> Held {
    let cpu = arch::this_cpu();
    let vcpu = held.vcpu;
    // Acquire: what was written before the request is seen.
    let requests = vcpu.requests.swap(0, Ordering::Acquire);
    let now = arch::counter();
    let guest = start.wrapping_sub(held.entered);
    record_exit(&vcpu.stats, &cpu.shared.stats, reason, guest, now.wrapping_sub(start));
    cpu.set_mark(now);
    const HOPELESS: u32 = request::STUCK | request::PANICKED;
    if requests & (request::STOP | request::OFF | HOPELESS) != 0 || !vcpu.vm.is_running() {
        if requests & (request::STOP | request::OFF) == 0 && requests & HOPELESS != 0 {
            housekeeping::stop_hopeless(&held, requests);
        }
        retire::<T>(cpu, vcpu);
        return next::<T>(cpu);
    }
    if requests & request::BLOCK != 0 {
        return block::<T>(cpu, held);
    }
    yield_to_others::<T>(cpu, held)
}

/// The first vCPU of a CPU that has none yet; does not return.
pub fn run(cpu: &'static Cpu) -> ! {
    let held = if cpu.ring.is_some() { next::<Traced>(cpu) } else { next::<Quiet>(cpu) };
    arch::enter(held.as_ptr())
}

/// So many WFIs in a row that find an interrupt pending, and leave it so, are a loop with interrupts masked: the CPUs that a Linux parks
/// when it stops do that, until the one that stops it has its turn. A kernel that idles takes what has come before the next WFI.
const VAIN_WAITS: u32 = 8;

/// The guest waits for an interrupt.
fn block<T: Tracer>(cpu: &'static Cpu, held: Held) -> Held {
    let vcpu = held.vcpu;
    let (pending, others) = vcpu.vm.vgic.pending_here(vcpu.index, &T::registers(cpu, vcpu));
    wake::notify_set(cpu, vcpu, others);
    if pending {
        let vain = cpu.vain_waits.get();
        cpu.vain_waits.set((vain + 1) % VAIN_WAITS);
        return if vain + 1 < VAIN_WAITS { resume::<T>(cpu, held) } else { others_turn::<T>(cpu, held) };
    }
    cpu.vain_waits.set(0);
    vcpu.wait.fetch_add(1, Ordering::Relaxed);
    vcpu.stats.transition(VcpuState::Blocked, cpu.mark.get());
    vcpu.state.set(RunState::Blocked);
    // From here on a waker may take it. What came before it could is seen now.
    if (vcpu.vm.vgic.attention(vcpu.index) || vcpu.requests.load(Ordering::SeqCst) != 0)
        && vcpu.state.change(RunState::Blocked, RunState::Running(cpu.shared.id))
    {
        vcpu.stats.transition(VcpuState::Running, cpu.mark.get());
        return resume::<T>(cpu, held);
    }
    next::<T>(cpu)
}

/// A copy of its own, out of the way of those that yield often.
#[inline(never)]
fn others_turn<T: Tracer>(cpu: &'static Cpu, held: Held) -> Held {
    yield_to_others::<T>(cpu, held)
}

/// The guest's slice is over, or it yields.
#[inline(always)]
fn yield_to_others<T: Tracer>(cpu: &'static Cpu, held: Held) -> Held {
    if cpu.shared.queued.load(Ordering::SeqCst) == 0 {
        begin_slice(cpu);
        return resume::<T>(cpu, held);
    }
    let vcpu = held.vcpu;
    vcpu.stats.transition(VcpuState::Ready, cpu.mark.get());
    vcpu.state.set(RunState::Ready);
    wake::push(cpu.system, cpu.shared, vcpu);
    next::<T>(cpu)
}

/// Goes on with the vCPU that is loaded and bound.
fn resume<T: Tracer>(cpu: &'static Cpu, mut held: Held) -> Held {
    let vcpu = held.vcpu;
    if vcpu.vm.vgic.attention(vcpu.index) {
        wake::notify_set(cpu, vcpu, vcpu.vm.vgic.flush(vcpu.index, &T::registers(cpu, vcpu)));
    }
    // Asked for something while it was on its way here, so that nobody has kicked it: an exit as soon as it is entered.
    if vcpu.requests.load(Ordering::SeqCst) != 0 {
        arch::send_kick(cpu.shared.kick_target);
        T::record(cpu, vcpu, Kind::Kick, 0, cpu.shared.id.0);
    }
    held.entered = account(cpu, Some(vcpu));
    T::record_at(cpu, vcpu, held.entered, Kind::Enter, 0, 0);
    cpu.shared.stats.switching_ends();
    held
}

/// Adds the time since the CPU's mark as hypervisor time, of `vcpu` too, and moves the mark to now.
fn account(cpu: &Cpu, vcpu: Option<&Vcpu>) -> u64 {
    let now = arch::counter();
    let spent = now.wrapping_sub(cpu.mark.get());
    cpu.shared.stats.add_switching(spent);
    if let Some(vcpu) = vcpu {
        vcpu.stats.add_switching(spent);
    }
    cpu.set_mark(now);
    now
}

/// Leaves whoever ran, waits for work if there is none, and loads the next vCPU.
fn next<T: Tracer>(cpu: &'static Cpu) -> Held {
    unbind::<T>(cpu);
    loop {
        let Some(vcpu) = pick(cpu).or_else(|| idle::<T>(cpu)) else { continue };
        if !vcpu.vm.is_running() {
            retire::<T>(cpu, vcpu);
            continue;
        }
        // SAFETY: the vCPU was taken from a queue, so it is this CPU's, and it is not resident on another: see `pick`.
        let Some(mut held) = (unsafe { Held::of(vcpu) }) else { continue };
        let now = account(cpu, None);
        vcpu.stats.transition(VcpuState::Running, now);
        if vcpu.stolen.is_wanted() {
            tell_stolen(cpu, vcpu);
        }
        let id = cpu.shared.id;
        if cpu.resident.get().is_none_or(|resident| !core::ptr::eq(resident, vcpu)) {
            unload(cpu);
            load(cpu, &mut held);
        }
        bind::<T>(cpu, vcpu);
        vcpu.state.set(RunState::Running(id));
        vcpu.on_pending.store(false, Ordering::Relaxed);
        vcpu.stats.schedule_ins.increment();
        cpu.shared.stats.schedule_ins.increment();
        if vcpu.last_cpu() != Some(id) {
            if vcpu.last_cpu().is_some() {
                vcpu.stats.migrations.increment();
            }
            vcpu.set_last_cpu(id);
        }
        begin_slice(cpu);
        return resume::<T>(cpu, held);
    }
}

/// The next ready vCPU: this CPU's own, or one of another CPU's that has more than it can do.
fn pick(cpu: &Cpu) -> Option<&'static Vcpu> {
    let system = cpu.system;
    let shared = cpu.shared;
    if shared.queued.load(Ordering::SeqCst) != 0 {
        let mut queue = shared.queue.lock();
        let most = system.options.vmid_affinity;
        let next = match most {
            0 => queue.pop(&system.links),
            _ => queue.pop_preferred(&system.links, most, |index| {
                system.vcpu(index).is_some_and(|vcpu| system.vmids.holds(&vcpu.vm.vmid))
            }),
        };
        if let Some(index) = next {
            shared.queued.store(queue.len(), Ordering::SeqCst);
            return system.vcpu(index);
        }
    }
    let start = shared.id.index() + 1;
    let count = system.cpus.len();
    for other in (start..start + count - 1).filter_map(|at| system.cpus.get(at % count)) {
        if other.queued.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let Some(mut queue) = other.queue.try_lock() else { continue };
        // One that is still in its CPU's registers, or pinned, must stay.
        let index = queue.take_first(&system.links, |index| {
            system.vcpu(index).is_some_and(|vcpu| vcpu.pin.is_none() && vcpu.resident().is_none())
        });
        other.queued.store(queue.len(), Ordering::SeqCst);
        if let Some(index) = index {
            return system.vcpu(index);
        }
    }
    None
}

/// Waits for an interrupt, and handles it; or gives the vCPU that has come at the last moment.
#[inline(never)]
fn idle<T: Tracer>(cpu: &'static Cpu) -> Option<&'static Vcpu> {
    let shared = cpu.shared;
    shared.tickless.store(false, Ordering::SeqCst);
    cpu.system.idle.set(shared.id);
    // Who queues something after this look sees the bit and kicks.
    let late = pick(cpu);
    if late.is_none() {
        wake::arm_timer(cpu, u64::MAX);
        let now = account(cpu, None);
        shared.stats.idle_begin(now);
        T::record_idle(cpu, now, Kind::IdleBegin);
        arch::wait_for_interrupt();
        let now = arch::counter();
        shared.stats.idle_end(now);
        T::record_idle(cpu, now, Kind::IdleEnd);
        cpu.set_mark(now);
    }
    cpu.system.idle.clear(shared.id);
    if late.is_none() {
        interrupt::handle_while_idle::<T>(cpu);
    }
    late
}

/// Puts the resident vCPU's registers away, if there is one.
// Inlined into both of its callers, with and without a trace: a call costs every switch a dozen instructions. So the next one.
#[inline(always)]
fn unload(cpu: &'static Cpu) {
    let Some(vcpu) = cpu.resident.take() else { return };
    // SAFETY: it is resident here, so no other CPU takes it until `set_resident(None)` below.
    let Some(mut held) = (unsafe { Held::of(vcpu) }) else { return };
    let asserted = arch::virtual_timer_asserts();
    arch::save_context(&mut held);
    let saved = vcpu.vm.vgic.save(vcpu.index, &HardwareListRegisters, asserted);
    if saved.timer_active {
        // The interrupt is the vCPU's, not this CPU's: the next vCPU's timer must be able to fire.
        arch::deactivate(cpu.system.timers.virt);
    }
    if cpu.fp_used.replace(false) {
        arch::save_fp(&mut held);
    }
    if held.uses_pauth {
        arch::save_pauth(&mut held);
    }
    let timer = held.timer;
    let physical = held.physical_timer;
    let wait = vcpu.wait.load(Ordering::Relaxed);
    let blocked = vcpu.state.get() == RunState::Blocked;
    if cpu.system.options.watchdog_ms != 0 {
        housekeeping::note_timers(vcpu, timer, if physical.armed() { physical.cval } else { NO_TIMER });
    }
    // `held` is not used from here on: another CPU may take the vCPU.
    vcpu.set_resident(None);
    wake::notify_set(cpu, vcpu, saved.wake);
    if blocked {
        // A timer whose interrupt the guest has disabled ends no wait: it would be woken again and again.
        let counts = |timer: TimerState, intid| timer.armed() && vcpu.vm.vgic.is_enabled(vcpu.index, intid);
        let virt = counts(timer, TIMER_VIRT_INTID)
            .then(|| timer.cval.saturating_add(vcpu.vm.cntvoff.load(Ordering::Relaxed)));
        let physical = counts(physical, TIMER_PHYS_INTID).then_some(physical.cval);
        if let Some(deadline) = virt.into_iter().chain(physical).min() {
            wake::set_timer(cpu, vcpu, deadline, wait);
        }
    } else {
        wake::offer(cpu, vcpu);
    }
}

/// Loads a vCPU's registers into this CPU.
#[inline(always)]
fn load(cpu: &'static Cpu, held: &mut Held) {
    let vcpu = held.vcpu;
    held.cpu_stack = cpu.stack;
    if vcpu.vm.vgic.load(vcpu.index, &HardwareListRegisters) {
        // Its list register is linked with this CPU's interrupt now: active, so that it does not fire meanwhile.
        arch::activate_private(cpu.sgi_frame.get(), cpu.system.timers.virt);
    }
    arch::load_context(held, vcpu.vm.cntvoff.load(Ordering::Relaxed));
    wake::cancel_timer(cpu, vcpu);
    let keeps_fp = held.fp_cpu == Some(cpu.shared.id)
        && cpu.fp_owner.get().is_some_and(|owner| core::ptr::eq(owner, vcpu));
    arch::fp_trap(!keeps_fp);
    if held.uses_pauth {
        arch::load_pauth(held);
    }
    cpu.fp_used.set(keeps_fp);
    cpu.resident.set(Some(vcpu));
    vcpu.set_resident(Some(cpu.shared.id));
    cpu.guest_timer.set(u64::MAX);
    if held.physical_timer.armed() {
        wake::follow_physical_timer(cpu, vcpu, held.physical_timer);
    }
}

/// The vCPU runs no more: nothing of it stays in this CPU's registers. The last one of its VM takes that down.
#[cold]
fn retire<T: Tracer>(cpu: &'static Cpu, vcpu: &'static Vcpu) {
    if cpu.resident.get().is_some_and(|resident| core::ptr::eq(resident, vcpu)) {
        unbind::<T>(cpu);
        arch::stop_virtual_timer();
        let saved = vcpu.vm.vgic.save(vcpu.index, &HardwareListRegisters, false);
        if saved.timer_active {
            arch::deactivate(cpu.system.timers.virt);
        }
        wake::notify_set(cpu, vcpu, saved.wake);
        cpu.fp_used.set(false);
        arch::deny_pauth();
        cpu.guest_timer.set(u64::MAX);
        cpu.resident.set(None);
        vcpu.set_resident(None);
    }
    // Shared interrupts that it had not acknowledged may go elsewhere by now.
    wake::notify_set(cpu, vcpu, vcpu.vm.vgic.reset_vcpu(vcpu.index));
    if cpu.fp_owner.get().is_some_and(|owner| core::ptr::eq(owner, vcpu)) {
        cpu.fp_owner.set(None);
    }
    wake::cancel_timer(cpu, vcpu);
    vcpu.requests.store(0, Ordering::Relaxed);
    vcpu.stats.transition(VcpuState::Off, cpu.mark.get());
    vcpu.state.set(RunState::Off);
    if vcpu.vm.leave() {
        life::finish(cpu, vcpu.vm);
    }
}

/// Tells the guest how long its vCPU has been without a CPU.
#[inline(never)]
fn tell_stolen(cpu: &Cpu, vcpu: &Vcpu) {
    vcpu.stolen.update(&arch::memory(), vcpu.stats.ready_ticks(), cpu.system.rate());
}

/// A new time slice; without a limit if nobody else waits.
fn begin_slice(cpu: &Cpu) {
    cpu.slice_end.set(cpu.mark.get().saturating_add(cpu.system.slice_ticks));
    wake::limit_slice(cpu);
}
