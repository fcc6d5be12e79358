//! Exceptions: a probe that expects one goes on behind the instruction; any other is fatal and shown.

use core::arch::asm;
use core::sync::atomic::Ordering;

use super::cpu::{self, read_register};
use crate::kernel::{console, cpus};

/// What vectors.S saves.
#[repr(C)]
pub struct Frame {
    x: [u64; 31],
    elr: u64,
    spsr: u64,
    sp: u64,
}

const _: () = assert!(size_of::<Frame>() == 272 && core::mem::offset_of!(Frame, elr) == 248);

/// A synchronous exception from our own level.
const SYNCHRONOUS: u64 = 4;

#[unsafe(no_mangle)]
extern "C" fn guest_exception(frame: &mut Frame, kind: u64) {
    let esr = read_register!("esr_el1");
    let cpu = cpus::this();
    if kind == SYNCHRONOUS && cpu.expects_fault.swap(false, Ordering::Relaxed) {
        cpu.fault.store(esr, Ordering::Relaxed);
        frame.elr += 4;
        return;
    }
    // On demand: the access is made again.
    let far = read_register!("far_el1") as usize;
    if kind == SYNCHRONOUS && class(esr) == CLASS_DATA_ABORT && super::shadow::fault(far) {
        return;
    }
    let names = ["synchronous", "interrupt", "fast interrupt", "SError"];
    console::emergency(format_args!(
        "@guest {{\"schema\":1,\"kind\":\"error\",\"message\":\"{} exception (vector {kind}) on vCPU {}: \
         esr {esr:#x} far {:#x} elr {:#x} spsr {:#x} sp {:#x}\"}}",
        names[kind as usize & 3],
        cpu::index(),
        read_register!("far_el1"),
        frame.elr,
        frame.spsr,
        frame.sp,
    ));
    for (i, pair) in frame.x.chunks(4).enumerate() {
        let at = |n: usize| pair.get(n).copied().unwrap_or(0);
        console::emergency(format_args!(
            "x{:<2} {:#018x} {:#018x} {:#018x} {:#018x}",
            4 * i,
            at(0),
            at(1),
            at(2),
            at(3)
        ));
    }
    backtrace(frame);
    console::emergency(format_args!("@guest {{\"schema\":1,\"kind\":\"end\",\"ok\":false}}"));
    super::psci::system_off();
}

/// Prints return addresses along the chain of frame pointers, while it stays in RAM.
fn backtrace(frame: &Frame) {
    let mut at = frame.x[29];
    for _ in 0..16 {
        if !at.is_multiple_of(16) || at < crate::machine::RAM_BASE || at >= crate::kernel::memory::end() {
            break;
        }
        // SAFETY: within RAM, which is mapped, and aligned. Whatever is there is only printed.
        let (next, back) = unsafe { (*(at as *const u64), *((at + 8) as *const u64)) };
        console::emergency(format_args!("called from {back:#x}"));
        if next <= at {
            break;
        }
        at = next;
    }
}

/// Runs `f`, which executes one instruction that may fault; returns the syndrome if it did. Interrupts are
/// masked meanwhile, so that the fault is `f`'s.
pub fn probe(f: impl FnOnce()) -> Option<u64> {
    let _masked = crate::sync::Masked::new();
    let cpu = cpus::this();
    cpu.fault.store(0, Ordering::Relaxed);
    cpu.expects_fault.store(true, Ordering::Relaxed);
    // SAFETY: barriers: a late abort is taken here.
    unsafe { asm!("dsb sy", "isb", options(nostack)) };
    f();
    // SAFETY: as above.
    unsafe { asm!("dsb sy", "isb", options(nostack)) };
    let faulted = !cpu.expects_fault.swap(false, Ordering::Relaxed);
    faulted.then(|| cpu.fault.load(Ordering::Relaxed))
}

/// The exception class of a syndrome.
pub const fn class(esr: u64) -> u64 {
    (esr >> 26) & 0x3f
}

/// Class: unknown reason (an undefined instruction).
pub const CLASS_UNKNOWN: u64 = 0;

/// Class: a data abort from our own level.
pub const CLASS_DATA_ABORT: u64 = 0x25;

/// A panic is a fault of this kernel: said, and the end.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    console::emergency(format_args!(
        "@guest {{\"schema\":1,\"kind\":\"error\",\"message\":\"{}\"}}",
        crate::json::Escaped(info)
    ));
    console::emergency(format_args!("@guest {{\"schema\":1,\"kind\":\"end\",\"ok\":false}}"));
    super::psci::system_off()
}
