//! Zeroing memory and cache maintenance (Arm ARM D7.5).

use super::read_sysreg;
use core::arch::asm;

/// Fills `bytes` from `base` with zeros. Both are multiples of 4 KiB, and memory that nothing refers to.
pub fn zero_pages(base: u64, bytes: u64) {
    let dczid = read_sysreg!("dczid_el0");
    let end = base.saturating_add(bytes);
    if dczid & 1 << 4 == 0 {
        let block = 4u64 << (dczid & 0xf);
        let mut at = base;
        while at < end {
            // SAFETY: the caller's memory, mapped as Normal: DC ZVA zeroes a naturally aligned block of it.
            unsafe { asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags)) };
            at += block;
        }
    } else {
        let mut at = base;
        while at < end {
            // SAFETY: as above.
            unsafe { asm!("stp xzr, xzr, [{}]", in(reg) at, options(nostack, preserves_flags)) };
            at += 16;
        }
    }
}

/// CTR_EL0.IDC: instruction fetches see data without cleaning to the point of unification.
const CTR_IDC: u64 = 1 << 28;
/// CTR_EL0.DIC: and without invalidation of instruction caches.
const CTR_DIC: u64 = 1 << 29;

/// Executes `$op` for each data cache line of `$bytes` from `$base`, and waits until it is done.
macro_rules! each_line {
    ($op:literal, $base:expr, $bytes:expr) => {{
        // CTR_EL0.DminLine: log2 of words.
        let line = 4u64 << (read_sysreg!("ctr_el0") >> 16 & 0xf);
        let end = $base.saturating_add($bytes);
        let mut at = $base & !(line - 1);
        while at < end {
            // SAFETY: cleaning, with or without invalidation, changes no memory as we see it.
            unsafe { asm!(concat!($op, ", {}"), in(reg) at, options(nostack, preserves_flags)) };
            at += line;
        }
        // SAFETY: a barrier: the lines are clean before anything that follows.
        unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
    }};
}

/// Cleans `bytes` from `base` to the point of coherency.
pub fn clean(base: u64, bytes: u64) {
    each_line!("dc cvac", base, bytes)
}

/// Lets guests find what was written to `bytes` from `base`. Where stage 2 can't make a guest's accesses cacheable, that
/// is: clean, and out of the caches, as one with its MMU off writes past them and must not find the old lines again when it turns it on.
/// `code`: and coherent with instruction fetches.
pub fn settle(base: u64, bytes: u64, code: bool) {
    let ctr = read_sysreg!("ctr_el0");
    if !super::write_back_is_forced() {
        each_line!("dc civac", base, bytes)
    } else if code && ctr & CTR_IDC == 0 {
        each_line!("dc cvau", base, bytes)
    }
    if code && ctr & CTR_DIC == 0 {
        invalidate_instructions();
    }
}

/// Drops instruction caches on every CPU: memory that guests execute has been written.
fn invalidate_instructions() {
    // SAFETY: dropping instructions only makes them be fetched again.
    unsafe { asm!("ic ialluis", "dsb ish", "isb", options(nostack, preserves_flags)) };
}
