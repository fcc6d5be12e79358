//! Registers and instructions of the CPU that executes them (Arm ARM DDI 0487, D19 and C6).

use core::arch::asm;

/// Reads a system register by its name in assembly.
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: the registers read in this crate have no side effect on memory.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack, preserves_flags)) };
        value
    }};
}
pub(crate) use read_register;

/// Writes a system register by its name in assembly.
macro_rules! write_register {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the registers written so in this crate don't change what memory Rust may touch; where one does
        // (TTBR0_EL1), its caller says why that is right.
        unsafe { core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) value, options(nostack)) };
    }};
}
pub(crate) use write_register;

const DAIF_I: u64 = 1 << 7;

/// Masks interrupts; returns what to give to [`restore_interrupts`].
#[inline(always)]
pub fn mask_interrupts() -> u64 {
    let before = read_register!("daif");
    // SAFETY: masks interrupts. Also a compiler barrier: what follows is not moved before it.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
    before
}

/// Restores the interrupt mask.
#[inline(always)]
pub fn restore_interrupts(before: u64) {
    if before & DAIF_I == 0 {
        unmask_interrupts();
    }
}

/// Takes interrupts from here on.
#[inline(always)]
pub fn unmask_interrupts() {
    // SAFETY: the vectors are installed before anything unmasks.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// One step of a spin loop.
#[inline(always)]
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Waits for an interrupt, masked or not.
#[inline(always)]
pub fn wait_for_interrupt() {
    // SAFETY: a hint; the barrier makes stores visible before the wait.
    unsafe { asm!("dsb sy", "wfi", options(nostack)) };
}

/// Synchronizes the context.
#[inline(always)]
pub fn isb() {
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack)) };
}

/// The virtual counter, not before what precedes it in program order.
#[inline(always)]
pub fn counter() -> u64 {
    isb();
    read_register!("cntvct_el0")
}

/// Ticks of the counter in a second.
pub fn frequency() -> u64 {
    read_register!("cntfrq_el0")
}

/// Arms the virtual timer for a value of the counter.
#[inline(always)]
pub fn arm_timer(compare: u64) {
    write_register!("cntv_cval_el0", compare);
    write_register!("cntv_ctl_el0", 1);
    isb();
}

/// Arms the virtual timer with its interrupt masked (CNTV_CTL.IMASK).
pub fn arm_timer_masked(compare: u64) {
    write_register!("cntv_cval_el0", compare);
    write_register!("cntv_ctl_el0", 3);
    isb();
}

/// Whether the virtual timer's condition is met (CNTV_CTL.ISTATUS).
pub fn timer_expired() -> bool {
    read_register!("cntv_ctl_el0") & 4 != 0
}

/// Switches the virtual timer off.
#[inline(always)]
pub fn stop_timer() {
    write_register!("cntv_ctl_el0", 0);
    isb();
}

/// Whether an interrupt is pending at this CPU (ISR_EL1.I), masked or not.
#[inline(always)]
pub fn interrupt_pending() -> bool {
    read_register!("isr_el1") & (1 << 7) != 0
}

/// This CPU's affinity: MPIDR_EL1 without flag bits.
pub fn affinity() -> u64 {
    read_register!("mpidr_el1") & 0xff_00ff_ffff
}

/// This CPU's index, as set at its start.
#[inline(always)]
pub fn index() -> usize {
    read_register!("tpidr_el1") as usize
}

/// Sets this CPU's index.
pub fn set_index(index: usize) {
    write_register!("tpidr_el1", index as u64);
}

/// Bits of an ASID.
pub fn asid_bits() -> u32 {
    if (read_register!("id_aa64mmfr0_el1") >> 4) & 0xf == 2 { 16 } else { 8 }
}
