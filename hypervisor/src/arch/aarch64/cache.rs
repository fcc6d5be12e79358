//! Zeroing memory and cache maintenance (Arm ARM D7.5).

use super::read_sysreg;
use core::arch::asm;

/// Fills `bytes` from `base` with zeros, and cleans them out of the caches to where a guest sees them that runs with its
/// MMU off. Both are multiples of 4 KiB, and memory that nothing refers to.
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
    clean(base, bytes);
}

/// Cleans `bytes` from `base` to the point of coherency.
pub fn clean(base: u64, bytes: u64) {
    // CTR_EL0.DminLine: log2 of words.
    let line = 4u64 << (read_sysreg!("ctr_el0") >> 16 & 0xf);
    let end = base.saturating_add(bytes);
    let mut at = base & !(line - 1);
    while at < end {
        // SAFETY: cleaning changes no memory as we see it.
        unsafe { asm!("dc cvac, {}", in(reg) at, options(nostack, preserves_flags)) };
        at += line;
    }
    // SAFETY: a barrier: the lines are clean before anything that follows.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Drops instruction caches on every CPU: memory that guests execute has been written.
pub fn invalidate_instructions() {
    // SAFETY: dropping instructions only makes them be fetched again.
    unsafe { asm!("ic ialluis", "dsb ish", "isb", options(nostack, preserves_flags)) };
}
