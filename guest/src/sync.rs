//! Locks that are safe against the interrupt handler: interrupts are masked while one is held.

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use core::ops::{Deref, DerefMut};

/// Waits in a spin loop by the `yield` instruction, which lets an emulator go on with the CPU that holds the
/// lock (QEMU without a thread for each CPU), and a core with several threads with another one.
pub struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        relax();
    }
}

/// One step of a spin loop.
#[inline(always)]
pub fn relax() {
    #[cfg(target_os = "none")]
    crate::arch::cpu::relax();
    #[cfg(not(target_os = "none"))]
    core::hint::spin_loop();
}

/// Interrupts masked on this CPU until it is dropped, which restores what was before. On the host: nothing.
pub struct Masked {
    #[cfg(target_os = "none")]
    before: u64,
}

impl Masked {
    /// Masks interrupts.
    #[inline(always)]
    #[allow(clippy::new_without_default)] // "default" says nothing about what it does
    pub fn new() -> Masked {
        Masked {
            #[cfg(target_os = "none")]
            before: crate::arch::cpu::mask_interrupts(),
        }
    }
}

impl Drop for Masked {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(target_os = "none")]
        crate::arch::cpu::restore_interrupts(self.before);
    }
}

/// A spin lock around a value; holding it masks interrupts.
pub struct Lock<T>(SpinMutex<T, Yield>);

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Lock<T> {
        Lock(SpinMutex::new(value))
    }

    /// Takes the lock, with interrupts masked from before until after.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let masked = Masked::new();
        Guard { inner: self.0.lock(), _masked: masked }
    }
}

/// A held [`Lock`]. Fields drop in order: first the lock, then the interrupt mask.
pub struct Guard<'a, T> {
    inner: SpinMutexGuard<'a, T, Yield>,
    _masked: Masked,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
