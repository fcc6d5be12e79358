//! What drives a device of the fake machine, as a guest would.

use super::super::memory::{GuestAddress, GuestMemory};
use super::super::registers::{VERSION_1, status};
use super::{FakeMachine, RAM, Ram};
use crate::device::AccessSize;
use std::sync::atomic::Ordering::SeqCst;

/// One queue as the driver sees it: its tables lie at `base`, descriptors first.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub base: u64,
    pub size: u16,
    /// Next descriptor to be used, and the ring's indices.
    next: u16,
    available: u16,
    used: u16,
}

pub const DESC_NEXT: u16 = 1;
pub const DESC_WRITE: u16 = 2;

impl Ring {
    pub fn available(&self) -> u64 {
        self.base + 16 * u64::from(self.size)
    }

    pub fn used(&self) -> u64 {
        (self.available() + 6 + 2 * u64::from(self.size)).next_multiple_of(4)
    }
}

/// A driver of one window.
pub struct Driver<'a> {
    pub machine: &'a FakeMachine,
    pub vm: usize,
    pub window: u32,
    pub rings: [Ring; 2],
}

/// A piece of a chain: address, length, whether the device writes.
pub type Piece = (u64, u32, bool);

impl<'a> Driver<'a> {
    /// A driver that has done nothing yet. Its rings lie from `RAM + 0x1_0000 * (window + 1)` on.
    pub fn new(machine: &'a FakeMachine, vm: usize, window: u32, size: u16) -> Self {
        let base = RAM + 0x1_0000 * (u64::from(window) + 1);
        let ring = |index: u64| Ring { base: base + 0x4000 * index, size, next: 0, available: 0, used: 0 };
        Driver { machine, vm, window, rings: [ring(0), ring(1)] }
    }

    /// A driver that runs.
    pub fn running(machine: &'a FakeMachine, vm: usize, window: u32, size: u16) -> Self {
        let mut driver = Driver::new(machine, vm, window, size);
        driver.start(VERSION_1);
        driver
    }

    pub fn register(&self, offset: u64) -> u32 {
        self.machine.read(self.vm, self.window, offset, AccessSize::Word) as u32
    }

    pub fn set(&self, offset: u64, value: u32) {
        self.machine.write(self.vm, self.window, offset, value);
    }

    pub fn ram(&self) -> Ram<'a> {
        self.machine.ram(self.vm)
    }

    /// Status as the device has it.
    pub fn status(&self) -> u32 {
        self.register(0x70)
    }

    pub fn needs_reset(&self) -> bool {
        self.status() & status::NEEDS_RESET != 0
    }

    /// Negotiates; whether the device has agreed.
    pub fn negotiate(&self, features: u64) -> bool {
        self.set(0x70, 0);
        self.set(0x70, 1);
        self.set(0x70, 1 | 2);
        for half in 0..2 {
            self.set(0x24, half);
            self.set(0x20, (features >> (32 * half)) as u32);
        }
        self.set(0x70, 1 | 2 | status::FEATURES_OK);
        self.status() & status::FEATURES_OK != 0
    }

    /// Sets up a queue.
    pub fn set_up(&mut self, queue: usize) {
        let ring = &mut self.rings[queue];
        (ring.next, ring.available, ring.used) = (0, 0, 0);
        let ring = self.rings[queue];
        self.ram().put(ring.available(), &[0; 4]);
        self.ram().put(ring.used(), &[0; 4]);
        self.set(0x30, queue as u32);
        self.set(0x38, ring.size.into());
        for (offset, at) in [(0x80, ring.base), (0x90, ring.available()), (0xa0, ring.used())] {
            self.set(offset, at as u32);
            self.set(offset + 4, (at >> 32) as u32);
        }
        self.set(0x44, 1);
    }

    /// From reset to DRIVER_OK.
    pub fn start(&mut self, features: u64) {
        assert!(self.negotiate(features));
        for queue in 0..2 {
            self.set_up(queue);
        }
        self.set(0x70, 1 | 2 | status::FEATURES_OK | status::DRIVER_OK);
    }

    /// Writes a descriptor.
    pub fn descriptor(&self, queue: usize, index: u16, at: u64, len: u32, flags: u16, next: u16) {
        let raw = u128::from(at) | u128::from(len) << 64 | u128::from(flags) << 96 | u128::from(next) << 112;
        self.ram().put(self.rings[queue].base + 16 * u64::from(index), &raw.to_le_bytes());
    }

    /// Makes the chain that begins at `head` available, whatever that is.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let ring = &mut self.rings[queue];
        let entry = ring.available() + 4 + 2 * u64::from(ring.available % ring.size);
        ring.available = ring.available.wrapping_add(1);
        let (index, at) = (ring.available, ring.available());
        self.ram().put(entry, &head.to_le_bytes());
        self.ram().put(at + 2, &index.to_le_bytes());
    }

    /// Puts a chain together, and makes it available; its head.
    pub fn add(&mut self, queue: usize, pieces: &[Piece]) -> u16 {
        let size = self.rings[queue].size;
        let first = self.rings[queue].next;
        for (n, (at, len, write)) in (0..).zip(pieces) {
            let index = (first + n) % size;
            let last = usize::from(n) + 1 == pieces.len();
            let flags = if *write { DESC_WRITE } else { 0 } | if last { 0 } else { DESC_NEXT };
            self.descriptor(queue, index, *at, *len, flags, (index + 1) % size);
        }
        self.rings[queue].next = (first + pieces.len() as u16) % size;
        self.offer(queue, first);
        first
    }

    /// Whether the bell is to be rung after `added` chains were made available (VIRTIO_F_EVENT_IDX).
    pub fn must_ring(&self, queue: usize, added: u16) -> bool {
        let ring = &self.rings[queue];
        let at = GuestAddress(ring.used() + 4 + 8 * u64::from(ring.size));
        std::sync::atomic::fence(SeqCst);
        let event = self.ram().read16(at).unwrap();
        ring.available.wrapping_sub(event).wrapping_sub(1) < added
    }

    /// Asks for an interrupt when the used ring's index passes `index` (VIRTIO_F_EVENT_IDX).
    pub fn want_event(&self, queue: usize, index: u16) {
        let ring = &self.rings[queue];
        self.ram().put(ring.available() + 4 + 2 * u64::from(ring.size), &index.to_le_bytes());
    }

    /// Rings the bell.
    pub fn kick(&self, queue: u32) {
        self.set(0x50, queue);
    }

    /// The next chain that came back: head and bytes written.
    pub fn done(&mut self, queue: usize) -> Option<(u32, u32)> {
        let ring = &mut self.rings[queue];
        let memory = self.machine.ram(self.vm);
        let index = memory.read16(GuestAddress(ring.used() + 2)).unwrap();
        if index == ring.used {
            return None;
        }
        let entry = memory.bytes(ring.used() + 4 + 8 * u64::from(ring.used % ring.size), 8);
        ring.used = ring.used.wrapping_add(1);
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        Some((word(0), word(4)))
    }

    /// Says whether it wants interrupts.
    pub fn want_interrupts(&self, queue: usize, wanted: bool) {
        self.ram().put(self.rings[queue].available(), &[u8::from(!wanted), 0]);
    }

    /// Reads and acknowledges the interrupt status.
    pub fn acknowledge(&self) -> u32 {
        let status = self.register(0x60);
        self.set(0x64, status);
        status
    }
}
