//! What a CPU holds of a vCPU: EL1's registers, the virtual timer, FP/SIMD, keys; and what it says of an exit.

use super::{here, step};
use crate::arch::context::{Context, TimerState};

/// See the real one.
pub fn save_context(context: &mut Context) {
    here(|here| {
        context.el1 = here.el1.borrow().clone();
        context.timer = here.virtual_timer.take();
    });
    step();
}

/// See the real one.
pub fn load_context(context: &Context, cntvoff: u64) {
    here(|here| {
        *here.el1.borrow_mut() = context.el1.clone();
        here.cntvoff.set(cntvoff);
        here.virtual_timer.set(context.timer);
    });
    step();
}

/// See the real one.
pub fn virtual_timer() -> TimerState {
    here(|here| here.virtual_timer.get())
}

/// See the real one.
pub fn virtual_timer_asserts() -> bool {
    here(|here| {
        let now = here.machine.get().map_or(0, |machine| machine.now());
        here.virtual_deadline().is_some_and(|deadline| deadline <= now)
    })
}

/// See the real one.
pub fn stop_virtual_timer() {
    here(|here| here.virtual_timer.take());
}

/// See the real one.
pub fn fp_trap(on: bool) {
    here(|here| here.fp_traps.set(on));
}

/// See the real one: one register stands for all.
pub fn save_fp(context: &mut Context) {
    fp_trap(false);
    context.fp.q[0] = here(|here| here.fp.get());
}

/// See the real one.
pub fn restore_fp(context: &Context) {
    fp_trap(false);
    here(|here| here.fp.set(context.fp.q[0]));
}

/// See the real one.
pub fn save_pauth(context: &mut Context) {
    context.pauth_keys = here(|here| here.pauth_keys.get());
    deny_pauth();
}

/// See the real one.
pub fn deny_pauth() {
    here(|here| here.pauth_traps.set(true));
}

/// See the real one.
pub fn load_pauth(context: &Context) {
    here(|here| {
        here.pauth_traps.set(false);
        here.pauth_keys.set(context.pauth_keys);
    });
}

/// See the real one.
pub fn syndrome() -> u64 {
    here(|here| here.syndrome.get())
}

/// See the real one.
pub fn fault_address() -> u64 {
    here(|here| here.fault_address.get())
}

/// See the real one.
pub fn fault_ipa_page() -> u64 {
    here(|here| here.fault_ipa.get() & !0xfff)
}

/// The guests' own tables map everything one to one.
pub fn guest_translation(address: u64) -> Option<u64> {
    Some(address & !0xfff)
}

/// See the real one.
pub fn guest_pc() -> u64 {
    here(|here| here.el1.borrow().elr_el2)
}

/// See the real one.
pub fn at_guest_vectors() -> bool {
    here(|here| here.el1.borrow().elr_el2.wrapping_sub(here.el1.borrow().vbar & !0x7ff) < 0x800)
}

/// See the real one.
pub fn set_guest_pc(pc: u64) {
    here(|here| here.el1.borrow_mut().elr_el2 = pc);
}

/// See the real one.
pub fn guest_pstate() -> u64 {
    here(|here| here.el1.borrow().spsr_el2)
}

/// See the real one.
pub fn inject_exception(esr: u64, far: Option<u64>) {
    here(|here| {
        let mut el1 = here.el1.borrow_mut();
        el1.esr = esr;
        el1.far = far.unwrap_or(el1.far);
        el1.elr = el1.elr_el2;
        el1.spsr = el1.spsr_el2;
        let entry = crate::exit::inject::entry(el1.spsr_el2, el1.vbar, el1.sctlr);
        el1.elr_el2 = entry.pc;
        el1.spsr_el2 = entry.pstate;
    });
}
