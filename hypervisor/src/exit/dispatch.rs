//! The way in from `vectors.s`, the dispatch table, and the way out.

use super::syndrome::{Syndrome, class};
use super::{abort, call, interrupt, sysreg};
use crate::arch::{self, context::Held};
use crate::scheduler;
use crate::stats::{Reason, record_exit};
use crate::trace::{Kind, Quiet, Traced, Tracer};
use crate::vm::{life, request};
use core::sync::atomic::Ordering;

/// Handles one class of exits.
pub type Handler = fn(&mut Held, Syndrome) -> Reason;

/// The handler of each exception class. What is not named here is undefined for the guest.
static HANDLERS: [Handler; 64] = {
    let mut table: [Handler; 64] = [undefined; 64];
    table[class::WFX as usize] = wait;
    table[class::FP as usize] = floating_point;
    table[class::PAUTH as usize] = pointer_authentication;
    table[class::HVC as usize] = call::hvc;
    table[class::SMC as usize] = call::smc;
    table[class::SYSREG as usize] = sysreg::access;
    table[class::INSTRUCTION_ABORT as usize] = abort::instruction;
    table[class::DATA_ABORT as usize] = abort::data;
    table
};

/// Synchronous exceptions of a guest.
#[inline(always)]
fn sync<T: Tracer>(mut held: Held) -> Held {
    let start = arch::counter();
    let syndrome = Syndrome(arch::syndrome());
    let reason = HANDLERS[(syndrome.class() & 63) as usize](&mut held, syndrome);
    finish::<T>(held, reason, start)
}

/// Physical interrupts while a guest runs.
#[inline(always)]
fn irq<T: Tracer>(mut held: Held) -> Held {
    let start = arch::counter();
    let reason = interrupt::handle::<T>(&mut held);
    finish::<T>(held, reason, start)
}

/// FIQs: group 0 interrupts, of which we have none.
#[inline(always)]
fn fiq<T: Tracer>(held: Held) -> Held {
    let start = arch::counter();
    finish::<T>(held, Reason::IrqOther, start)
}

/// An SError: the guest's own, as EL2's accesses are to memory and devices that exist. It can't go on.
#[inline(always)]
fn serror<T: Tracer>(held: Held) -> Held {
    let start = arch::counter();
    life::fail(&held, "SError", None);
    finish::<T>(held, Reason::Serror, start)
}

macro_rules! entries {
    ($($name:ident = $handler:ident::<$tracer:ty>;)*) => {
        $(
            /// From `vectors.s`.
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $name(held: Held) -> Held {
                $handler::<$tracer>(held)
            }
        )*
    };
}

entries! {
    exit_sync = sync::<Quiet>;
    exit_irq = irq::<Quiet>;
    exit_fiq = fiq::<Quiet>;
    exit_serror = serror::<Quiet>;
    exit_sync_traced = sync::<Traced>;
    exit_irq_traced = irq::<Traced>;
    exit_fiq_traced = fiq::<Traced>;
    exit_serror_traced = serror::<Traced>;
}

/// Counts the exit, and goes back unless something was asked of the vCPU meanwhile.
#[inline(always)]
fn finish<T: Tracer>(mut held: Held, reason: Reason, start: u64) -> Held {
    let vcpu = held.vcpu;
    let cpu = arch::this_cpu();
    // Now that its reason is known: behind what the handler has done, which is later.
    T::record_at(cpu, vcpu, start, Kind::Exit, reason as u8, 0);
    if vcpu.requests.load(Ordering::Relaxed) != 0 || vcpu.vm.vgic.attention(vcpu.index) {
        return scheduler::attend::<T>(held, reason, start);
    }
    let end = arch::counter();
    record_exit(
        &vcpu.stats,
        &cpu.shared.stats,
        reason,
        start.wrapping_sub(held.entered),
        end.wrapping_sub(start),
    );
    held.entered = end;
    T::record_at(cpu, vcpu, end, Kind::Enter, 0, 0);
    held
}

/// Steps over the instruction that trapped.
#[inline(always)]
pub(super) fn step(syndrome: Syndrome) {
    arch::set_guest_pc(arch::guest_pc().wrapping_add(syndrome.length()));
}

/// The same for a trapped MSR, MRS or system instruction, which only AArch64 has: four bytes.
#[inline(always)]
pub(super) fn step_a64() {
    arch::set_guest_pc(arch::guest_pc().wrapping_add(4));
}

/// The guest takes an UNDEFINED exception.
pub(super) fn undefined(_: &mut Held, _: Syndrome) -> Reason {
    // EC 0, IL.
    arch::inject_exception(1 << 25, None);
    Reason::Undefined
}

/// WFI waits; WFE, where it traps, lets others run.
fn wait(held: &mut Held, syndrome: Syndrome) -> Reason {
    step(syndrome);
    held.vcpu.ask(if syndrome.is_wfi() { request::BLOCK } else { request::RESCHEDULE });
    Reason::Wfi
}

/// The first FP/SIMD instruction since the vCPU was loaded: its registers come in, and the instruction is tried again.
fn floating_point(held: &mut Held, _: Syndrome) -> Reason {
    let cpu = arch::this_cpu();
    held.fp_cpu = Some(cpu.shared.id);
    arch::restore_fp(held);
    cpu.fp_owner.set(Some(held.vcpu));
    cpu.fp_used.set(true);
    Reason::Fp
}

/// A pointer authentication instruction, of a vCPU that has not set keys yet.
fn pointer_authentication(held: &mut Held, syndrome: Syndrome) -> Reason {
    if allow_pauth(held) { Reason::Other } else { undefined(held, syndrome) }
}

/// The first use of pointer authentication since the vCPU was started: the instruction is tried again with its own keys. Not
/// where guests aren't told that there is any.
pub(super) fn allow_pauth(held: &mut Held) -> bool {
    if held.uses_pauth || !arch::this_cpu().system.id_registers.has_pointer_authentication() {
        return false;
    }
    held.uses_pauth = true;
    arch::load_pauth(held);
    true
}
