//! The lock that the hypervisor uses.
//!
//! `spin`'s, with a wait that fits: YIELD (Arm ARM C6.2, "a hint that the task could be swapped out"), which lets an SMT sibling
//! go on, and which an emulator that runs all CPUs on one thread takes as the moment to run another. What
//! `core::hint::spin_loop` gives on AArch64 is an ISB, which does neither. At EL2 interrupts are masked all the time,
//! so a lock needs no masking of its own.

use spin::RelaxStrategy;

/// A spin lock.
pub type Mutex<T> = spin::mutex::SpinMutex<T, Yield>;
/// What [`Mutex::lock`](spin::mutex::SpinMutex::lock) gives.
pub type MutexGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T, Yield>;

/// Waiting with YIELD.
#[derive(Debug)]
pub struct Yield;

impl RelaxStrategy for Yield {
    #[inline(always)]
    fn relax() {
        relax();
    }
}

/// Between two steps of an order that CPUs rely on: where unit tests let other CPUs run. Nothing on the target.
#[inline(always)]
pub fn moment() {
    #[cfg(all(test, not(target_os = "none")))]
    crate::arch::fake::step();
}

/// One turn of a loop that waits for another CPU.
#[inline(always)]
pub fn relax() {
    #[cfg(any(target_os = "none", test))]
    crate::arch::yield_cpu();
    #[cfg(not(any(target_os = "none", test)))]
    core::hint::spin_loop();
}
