//! The switch from one task's stack to another's (vectors.S).

use core::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    fn switch_stacks(save: *mut usize, next: usize);
    fn task_start();
}

/// Words that a switch keeps on the stack: x29, x30, x27, x28, ... x19, x20.
const SAVED: usize = 12;

/// Prepares a stack so that the first switch to it calls `guest_task(task)`; returns its stack pointer.
pub fn prepare(stack: &mut [u64], task: usize) -> usize {
    let top = stack.len() & !1;
    let frame = &mut stack[top - SAVED..top];
    frame.fill(0);
    frame[1] = task_start as *const () as u64;
    frame[10] = task as u64;
    frame.as_ptr() as usize
}

/// Leaves this stack, keeping its pointer in `save`, and goes on at `next`. Returns when somebody switches back,
/// perhaps on another CPU. Interrupts are masked.
#[inline(always)]
pub fn switch(save: &AtomicUsize, next: &AtomicUsize) {
    let next = next.load(Ordering::Relaxed);
    // SAFETY: `next` came from `prepare` or from an earlier switch, and the scheduler lets one CPU at a time use
    // a task's stack (`on_cpu`). switch_stacks keeps what the calling convention wants kept.
    unsafe { switch_stacks(save.as_ptr(), next) };
}
