//! Switching a CPU between vCPUs: what is loaded into EL1 and what is put away.

use super::{fp_trap, read_sysreg, write_sysreg};
use core::arch::asm;

use crate::arch::context::{Context, FpState, TimerState};

unsafe extern "C" {
    fn fp_save(state: *mut FpState);
    fn fp_restore(state: *const FpState);
}

/// Puts the loaded vCPU's system registers and timer into `context`, and leaves the timer off.
#[inline(always)]
pub fn save_context(context: &mut Context) {
    context.el1.save();
    context.timer = virtual_timer();
    write_sysreg!("cntv_ctl_el0", 0);
}

/// Loads `context`'s system registers and timer. `cntvoff` is the VM's clock: physical minus virtual count.
#[inline(always)]
pub fn load_context(context: &Context, cntvoff: u64) {
    context.el1.restore();
    write_sysreg!("cntvoff_el2", cntvoff);
    write_sysreg!("cntv_cval_el0", context.timer.cval);
    write_sysreg!("cntv_ctl_el0", context.timer.ctl);
}

/// The loaded vCPU's virtual timer.
#[inline(always)]
pub fn virtual_timer() -> TimerState {
    TimerState { ctl: read_sysreg!("cntv_ctl_el0"), cval: read_sysreg!("cntv_cval_el0") }
}

/// Whether the loaded vCPU's virtual timer asserts its interrupt (CNTV_CTL_EL0: ENABLE, ISTATUS, not IMASK).
#[inline(always)]
pub fn virtual_timer_asserts() -> bool {
    read_sysreg!("cntv_ctl_el0") & 7 == 5
}

/// Stops the virtual timer: nobody is loaded.
pub fn stop_virtual_timer() {
    write_sysreg!("cntv_ctl_el0", 0);
}

/// Saves the FP/SIMD registers, which are `context`'s.
pub fn save_fp(context: &mut Context) {
    fp_trap(false);
    super::isb(); // the registers are accessible to EL2
    // SAFETY: `fp_save` stores exactly an FpState.
    unsafe { fp_save(&raw mut context.fp) }
}

/// Loads `context`'s FP/SIMD registers, and lets its guest use them.
pub fn restore_fp(context: &Context) {
    fp_trap(false);
    super::isb();
    // SAFETY: `fp_restore` loads exactly an FpState.
    unsafe { fp_restore(&raw const context.fp) }
}

/// ESR_EL2: why the guest stopped.
#[inline(always)]
pub fn syndrome() -> u64 {
    read_sysreg!("esr_el2")
}

/// FAR_EL2: the virtual address of an abort.
#[inline(always)]
pub fn fault_address() -> u64 {
    read_sysreg!("far_el2")
}

/// HPFAR_EL2: the page of an abort, as an intermediate physical address.
#[inline(always)]
pub fn fault_ipa_page() -> u64 {
    (read_sysreg!("hpfar_el2") & 0x0fff_ffff_fff0) << 8
}

/// Where the loaded guest's own tables lead from the virtual address `address`, which it just wrote to; `None` where they lead
/// nowhere any more. HPFAR_EL2 does not say so for a permission fault (Arm ARM D24.2.63).
pub fn guest_translation(address: u64) -> Option<u64> {
    /// PAR_EL1.F: it could not be translated.
    const FAULT: u64 = 1;
    let par = read_sysreg!("par_el1");
    let found: u64;
    // SAFETY: the walk reads the guest's tables through stage 2, and its result goes to PAR_EL1, which is put back.
    unsafe {
        asm!(
            "at s1e1r, {}",
            "isb", // PAR_EL1 holds the result
            "mrs {}, par_el1",
            in(reg) address,
            out(reg) found,
            options(nostack, preserves_flags)
        )
    };
    write_sysreg!("par_el1", par);
    (found & FAULT == 0).then_some(found & 0xffff_ffff_f000)
}

/// The loaded guest's program counter.
#[inline(always)]
pub fn guest_pc() -> u64 {
    read_sysreg!("elr_el2")
}

/// Whether the loaded guest's program counter is in its table of exception vectors (VBAR_EL1, 2 KiB).
pub fn at_guest_vectors() -> bool {
    guest_pc().wrapping_sub(read_sysreg!("vbar_el1") & !0x7ff) < 0x800
}

/// Sets the loaded guest's program counter.
#[inline(always)]
pub fn set_guest_pc(pc: u64) {
    write_sysreg!("elr_el2", pc);
}

/// The loaded guest's PSTATE.
#[inline(always)]
pub fn guest_pstate() -> u64 {
    read_sysreg!("spsr_el2")
}

/// Lets the loaded guest take an exception at EL1 when it is entered: `esr` to ESR_EL1, `far` to FAR_EL1, and PC and PSTATE as
/// the CPU would set them (Arm ARM, AArch64.TakeException).
pub fn inject_exception(esr: u64, far: Option<u64>) {
    let pstate = guest_pstate();
    write_sysreg!("esr_el1", esr);
    if let Some(far) = far {
        write_sysreg!("far_el1", far);
    }
    write_sysreg!("elr_el1", guest_pc());
    write_sysreg!("spsr_el1", pstate);
    let entry = crate::exit::inject::entry(pstate, read_sysreg!("vbar_el1"), read_sysreg!("sctlr_el1"));
    set_guest_pc(entry.pc);
    write_sysreg!("spsr_el2", entry.pstate);
}
