//! Atomics and the lock, through one door: `--cfg loom` puts loom's in their place, so that the model checker
//! runs the same allocator that the hypervisor runs.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A lock around `T`. At EL2 interrupts are masked all the time, so it needs no masking of its own.
pub(super) struct Lock<T>(Inner<T>);

#[cfg(not(loom))]
type Inner<T> = crate::sync::Mutex<T>;
#[cfg(loom)]
type Inner<T> = loom::sync::Mutex<T>;

#[cfg(not(loom))]
pub(super) type Guard<'a, T> = crate::sync::MutexGuard<'a, T>;
#[cfg(loom)]
pub(super) type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Lock(Inner::new(value))
    }

    /// Takes the lock.
    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.lock_noting().0
    }

    /// Takes the lock; says whether it had to wait for that.
    #[cfg(not(loom))]
    pub(super) fn lock_noting(&self) -> (Guard<'_, T>, bool) {
        match self.0.try_lock() {
            Some(guard) => (guard, false),
            None => (self.0.lock(), true),
        }
    }

    /// Takes the lock. The wait is the model's business.
    #[cfg(loom)]
    pub(super) fn lock_noting(&self) -> (Guard<'_, T>, bool) {
        (self.0.lock().expect("a model that has panicked is not run on"), false)
    }
}

/// Keeps what CPUs write often off the cache lines of what others read.
///
/// 128 bytes: two lines of most cores, as some fetch lines in pairs, and one line of those with long ones.
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);
