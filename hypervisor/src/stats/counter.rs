//! The smallest part: a number that one CPU writes and others read.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A 64-bit counter with one writer at a time. An addition is a load, an add and a store: with two writers at once
/// an addition may be lost, but a reader never sees half a value.
#[derive(Default, Debug)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter that starts at zero.
    pub const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    /// The value now.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Replaces the value.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds `n`; wraps after 2^64.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Adds one.
    #[inline(always)]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds one, where several CPUs may do so at once: an atomic operation, for counts that are off the path of most exits.
    #[inline]
    pub fn increment_shared(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Keeps the larger of the value and `n`.
    #[inline(always)]
    pub fn raise_to(&self, n: u64) {
        if n > self.get() {
            self.set(n);
        }
    }
}
