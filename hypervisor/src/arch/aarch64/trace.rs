//! EL2's own state when something is wrong with it.

use super::{image_layout, own_stacks, read_sysreg, this_cpu};
use crate::platform::options::DebugFault;
use core::arch::asm;

/// What the CPU says of an exception that EL2 took from itself.
#[derive(Clone, Copy, Default)]
pub struct OwnException {
    /// ELR_EL2.
    pub pc: u64,
    /// SPSR_EL2.
    pub pstate: u64,
    /// ESR_EL2.
    pub esr: u64,
    /// FAR_EL2.
    pub far: u64,
}

/// The exception just taken.
pub fn own_exception() -> OwnException {
    OwnException {
        pc: read_sysreg!("elr_el2"),
        pstate: read_sysreg!("spsr_el2"),
        esr: read_sysreg!("esr_el2"),
        far: read_sysreg!("far_el2"),
    }
}

/// This function's caller's frame (AAPCS64 6.4.6).
#[inline(always)]
pub fn frame_pointer() -> u64 {
    let fp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, x29", out(reg) fp, options(nomem, nostack, preserves_flags)) };
    fp
}

/// Follows frame records from `fp` on and stores return addresses in `into`; how many there are. Stops at whatever is not a
/// record in a stack of this image.
pub fn backtrace(mut fp: u64, into: &mut [u64]) -> usize {
    let image = image_layout();
    let mut depth = 0;
    for slot in into {
        let on_a_stack = own_stacks().contains(crate::memory::address::Pa(fp))
            || image.data.contains(crate::memory::address::Pa(fp));
        if !on_a_stack || !fp.is_multiple_of(16) {
            break;
        }
        // SAFETY: the record is in a stack or in .bss, which are mapped; a guard page is never 16 bytes below the end of one.
        let (next, address) = unsafe {
            let record = core::ptr::with_exposed_provenance::<u64>(fp as usize);
            (record.read_volatile(), record.add(1).read_volatile())
        };
        if !image.text.contains(crate::memory::address::Pa(address)) {
            break;
        }
        *slot = address;
        depth += 1;
        if next <= fp {
            break;
        }
        fp = next;
    }
    depth
}

/// A fault on purpose (`debug.fault`): a panic is not among them.
pub fn provoke(fault: DebugFault) {
    let text = image_layout().text.base.0;
    let data = image_layout().data.base.0;
    // SAFETY: each of these faults, which is what the caller wants; nothing runs after it. That they do is what the map and its
    // guard pages are for.
    unsafe {
        match fault {
            // Elsewhere.
            DebugFault::Panic | DebugFault::Differ | DebugFault::NoTlbi => {}
            DebugFault::Null => asm!("ldr xzr, [{}]", in(reg) 0u64, options(nostack)),
            DebugFault::WriteCode => asm!("str xzr, [{}]", in(reg) text, options(nostack)),
            DebugFault::RunData => asm!("br {}", in(reg) data, options(nostack)),
            // On this CPU's own stack, downwards until its guard page.
            DebugFault::Overflow => {
                asm!("mov sp, {}", "2: stp xzr, xzr, [sp, #-16]!", "b 2b", in(reg) this_cpu().stack, options(noreturn))
            }
        }
    }
}
