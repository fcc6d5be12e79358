//! Physical memory: the test's own process'.

use crate::memory::address::Pa;
use crate::memory::phys::{Identity, PhysMemory};

/// Memory of the test's own process.
#[derive(Clone, Copy)]
pub struct Memory(Identity);

impl PhysMemory for Memory {
    fn read(&self, at: Pa) -> u64 {
        self.0.read(at)
    }

    fn write(&self, at: Pa, value: u64) {
        self.0.write(at, value);
    }

    fn read16(&self, at: Pa) -> u16 {
        self.0.read16(at)
    }

    fn write16(&self, at: Pa, value: u16) {
        self.0.write16(at, value);
    }

    fn zero(&self, base: Pa, bytes: u64) {
        self.0.zero(base, bytes);
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        self.0.copy_in(to, bytes);
    }

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        self.0.copy_out(from, bytes);
    }

    fn settle(&self, _: Pa, _: u64, _: bool) {}
}

/// See the real one.
pub fn memory() -> Memory {
    Memory(cached_memory())
}

/// See the real one.
pub fn cached_memory() -> Identity {
    // SAFETY: a simulated machine's frames are a piece of the process' memory that it leaks, and that nothing refers to.
    unsafe { Identity::new() }
}

/// A piece of the process' memory, for a machine's frames.
pub fn allocate(layout: std::alloc::Layout) -> Pa {
    assert_ne!(layout.size(), 0);
    // SAFETY: the size is not 0. It is written before it is read: frames are zeroed when they are given.
    Pa(unsafe { std::alloc::alloc(layout) }.expose_provenance() as u64)
}
