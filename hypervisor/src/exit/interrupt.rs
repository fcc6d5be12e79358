//! Physical interrupts, while a guest runs and while nothing does.

use crate::arch::{self, context::Held};
use crate::ids::IntId;
use crate::platform::gic::Gic;
use crate::scheduler::{self, Cpu};
use crate::stats::{Reason, collect};
use crate::trace::Tracer;
use crate::vm::Vcpu;
use crate::vm::layout::TIMER_VIRT_INTID;

/// The kick, from another CPU.
const KICK: IntId = IntId(0);
/// From here on: no interrupt was pending.
const NONE: u32 = 1020;

/// An interrupt that took the CPU from a guest.
#[inline(always)]
pub fn handle<T: Tracer>(held: &mut Held) -> Reason {
    let intid = arch::acknowledge();
    let cpu = arch::this_cpu();
    let vcpu = held.vcpu;
    if intid == cpu.system.timers.virt {
        return virtual_timer::<T>(cpu, vcpu, intid);
    }
    if intid == KICK {
        finish(intid);
        scheduler::kick_arrived::<T>(cpu, vcpu);
        return Reason::IrqKick;
    }
    other::<T>(cpu, intid, Some(vcpu))
}

/// All interrupts that have come while the CPU waited.
pub fn handle_while_idle<T: Tracer>(cpu: &'static Cpu) {
    loop {
        let intid = arch::acknowledge();
        if intid.0 >= NONE {
            return;
        }
        if intid == KICK {
            finish(intid);
        } else if intid == cpu.system.timers.virt {
            // Of the vCPU whose registers are still here: it waits for this.
            match cpu.resident.get() {
                Some(vcpu) => {
                    virtual_timer::<T>(cpu, vcpu, intid);
                    wake_if_pending::<T>(cpu, vcpu);
                }
                None => finish(intid),
            }
        } else {
            other::<T>(cpu, intid, None);
        }
    }
}

/// The guest's timer: its completion by the guest deactivates it, so here only the priority drops.
#[inline(always)]
fn virtual_timer<T: Tracer>(cpu: &'static Cpu, vcpu: &'static Vcpu, intid: IntId) -> Reason {
    arch::drop_priority(intid);
    let others = vcpu.vm.vgic.inject_timer(vcpu.index, &T::registers(cpu, vcpu), TIMER_VIRT_INTID, intid);
    scheduler::notify_set(cpu, vcpu, others);
    Reason::IrqTimer
}

/// The resident vCPU waits: ends that if an interrupt for it has come.
fn wake_if_pending<T: Tracer>(cpu: &'static Cpu, vcpu: &'static Vcpu) {
    let (pending, others) = vcpu.vm.vgic.pending_here(vcpu.index, &T::registers(cpu, vcpu));
    scheduler::notify_set(cpu, vcpu, others);
    if pending {
        scheduler::wake_blocked(cpu, vcpu);
    }
}

/// An interrupt of the hypervisor's own is over.
#[inline(always)]
fn finish(intid: IntId) {
    arch::drop_priority(intid);
    arch::deactivate(intid);
}

#[inline(never)]
fn other<T: Tracer>(cpu: &'static Cpu, intid: IntId, running: Option<&'static Vcpu>) -> Reason {
    let system = cpu.system;
    if intid.0 >= NONE {
        return Reason::IrqOther;
    }
    let reason = if intid == system.timers.hyp {
        scheduler::check_timers(cpu, running);
        cpu.system.console.tick(arch::counter());
        Reason::IrqSlice
    } else if intid == system.maintenance {
        if let Some(vcpu) = running.or(cpu.resident.get()) {
            let others = vcpu.vm.vgic.maintenance(vcpu.index, &T::registers(cpu, vcpu));
            scheduler::notify_set(cpu, vcpu, others);
        }
        Reason::IrqMaintenance
    } else if Some(intid) == system.uart {
        system.console.interrupt();
        if system.console.take_report_request() {
            collect::report_now(system);
        }
        Reason::IrqDevice
    } else {
        // Nobody's: it would come again and again.
        Gic::new(arch::devices(), system.gic.dist.base).disable(cpu.sgi_frame.get(), intid);
        log::warn!("{}: interrupt {} belongs to nobody: masked", cpu.shared.id, intid.0);
        Reason::IrqOther
    };
    finish(intid);
    reason
}
