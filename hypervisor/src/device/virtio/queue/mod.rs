//! A split virtqueue, from the device's side (Virtio 1.2, 2.7).
//!
//! Three tables in guest memory: descriptors, the ring of chains that the driver has made available, and the ring of chains that
//! the device has used. All of it may change under our hands, so that each number is read once, checked, and then kept: a
//! chain is copied out whole ([`Queue::pop`]) before anything is done with it.
//!
//! With VIRTIO_F_EVENT_IDX (2.7.7 and 2.7.10) each side says at which index of the other's ring it wants to hear of it next. The device
//! wants to hear of the next chain always, and of buffers for what it has to give ("quiet" queues) never. What is gained are the
//! interrupts: a driver that frees its buffers now and then only gets one for many.
//!
//! Order (2.7.13): the index of the available ring is read before its entries (acquire); entries and data of the used ring are
//! written before its index (release); and the index before the driver's wish for interrupts is read (a full barrier,
//! [`Queue::wants_interrupt`]).

mod chain;

use super::memory::{GuestAddress, GuestMemory, NoMemory};
use alloc::vec::Vec;
use chain::Segment;
pub use chain::{Chain, Part};
use core::sync::atomic::{Ordering, fence};

/// A descriptor has a successor.
const NEXT: u16 = 1;
/// The device writes to it; else it reads from it.
const WRITE: u16 = 2;
/// It names a table of descriptors: not offered.
const INDIRECT: u16 = 4;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
/// In the flags of the available ring: the driver wants no interrupts.
const NO_INTERRUPT: u16 = 1;
/// In the flags of the used ring: the device wants no notifications.
const NO_NOTIFY: u16 = 1;
/// How many chains a quiet queue takes between two updates of the index at which it wants to hear of new ones, which is to stay out of
/// reach: far less than 2^16.
const QUIET_STEP: u16 = 1 << 12;

/// The driver has broken a rule: the device needs a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A size that is no power of two, or larger than the queue may be.
    Size,
    /// A table that is not aligned.
    Alignment,
    /// A table, a descriptor or data outside of RAM.
    Memory,
    /// More chains made available than the queue holds.
    Available,
    /// An index beyond the descriptor table.
    Index,
    /// A chain longer than the queue: a loop.
    Loop,
    /// A table of descriptors, which was not offered.
    Indirect,
    /// Something to read behind something to write.
    Order,
    /// More than 2^32 - 1 bytes in a chain.
    Length,
    /// What the device's protocol asks for is missing.
    Protocol,
}

impl From<NoMemory> for Broken {
    fn from(_: NoMemory) -> Self {
        Broken::Memory
    }
}

/// A split virtqueue.
#[derive(Debug)]
pub struct Queue {
    /// Most descriptors.
    max: u16,
    /// Descriptors, as the driver says.
    size: u16,
    /// QueueReady.
    ready: bool,
    /// Its chains may be taken: it is ready and checked, and the driver runs.
    live: bool,
    /// No notifications are wanted.
    quiet: bool,
    /// VIRTIO_F_EVENT_IDX.
    event_index: bool,
    /// `next_used` when it was last decided whether to interrupt.
    decided: u16,
    descriptors: GuestAddress,
    available: GuestAddress,
    used: GuestAddress,
    /// The next entry to be taken from the available ring, modulo 2^16.
    next_available: u16,
    /// The next entry to be written in the used ring.
    next_used: u16,
    /// Bytes of the next chain that the device is done with already: see [`Queue::put_back`].
    pub progress: u32,
    chain: Chain,
}

impl Queue {
    /// A queue of at most `max` descriptors, a power of two. Allocates; nothing else here does. With `quiet`, the driver is told that
    /// notifications are not wanted.
    pub fn new(max: u16, quiet: bool) -> Queue {
        Queue {
            max,
            size: 0,
            ready: false,
            live: false,
            quiet,
            event_index: false,
            decided: 0,
            descriptors: GuestAddress(0),
            available: GuestAddress(0),
            used: GuestAddress(0),
            next_available: 0,
            next_used: 0,
            progress: 0,
            chain: Chain {
                head: 0,
                segments: Vec::with_capacity(usize::from(max)),
                readable: 0,
                len: [0; 2],
            },
        }
    }

    /// Bytes of heap for a queue of at most `max` descriptors.
    pub const fn heap_bytes(max: u16) -> usize {
        max as usize * size_of::<Segment>()
    }

    /// As after a reset of the device.
    pub fn reset(&mut self) {
        self.size = 0;
        self.ready = false;
        self.live = false;
        self.descriptors = GuestAddress(0);
        self.available = GuestAddress(0);
        self.used = GuestAddress(0);
        self.event_index = false;
        self.next_available = 0;
        self.next_used = 0;
        self.decided = 0;
        self.progress = 0;
        self.chain.segments.clear();
    }

    /// Most descriptors.
    pub fn max(&self) -> u16 {
        self.max
    }

    /// Sets the number of descriptors. Ignored while the queue is ready; judged when it becomes so.
    pub fn set_size(&mut self, size: u32) {
        if !self.ready {
            self.size = u16::try_from(size).unwrap_or(0);
        }
    }

    /// Changes the address of one of the tables. Ignored while the queue is ready.
    pub fn set_address(&mut self, table: Table, change: impl FnOnce(&mut u64)) {
        if !self.ready {
            change(match table {
                Table::Descriptors => &mut self.descriptors.0,
                Table::Available => &mut self.available.0,
                Table::Used => &mut self.used.0,
            });
        }
    }

    /// QueueReady.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The driver says that all is set. Indices begin at 0.
    pub fn set_ready(&mut self, ready: bool) {
        if ready && !self.ready {
            self.next_available = 0;
            self.next_used = 0;
            self.decided = 0;
            self.progress = 0;
        }
        self.ready = ready;
        self.live &= ready;
    }

    /// The driver runs: if the queue is ready, its chains may be taken from now on. `event_index`: it has accepted
    /// VIRTIO_F_EVENT_IDX.
    ///
    /// # Errors
    /// The queue can't be as the driver has set it up.
    pub fn start(&mut self, memory: &impl GuestMemory, event_index: bool) -> Result<(), Broken> {
        if !self.ready || self.live {
            return Ok(());
        }
        let size = u64::from(self.size);
        if !self.size.is_power_of_two() || self.size > self.max {
            return Err(Broken::Size);
        }
        // Flags, index, entries; the word behind them is for event indices, and is there in any case.
        let tables = [
            (self.descriptors, 16, DESCRIPTOR * size),
            (self.available, 2, 6 + 2 * size),
            (self.used, 4, 6 + 8 * size),
        ];
        for (at, alignment, bytes) in tables {
            if !at.is_aligned(alignment) {
                return Err(Broken::Alignment);
            }
            if !memory.contains(at, bytes) {
                return Err(Broken::Memory);
            }
        }
        self.event_index = event_index;
        self.live = true;
        match (event_index, self.quiet) {
            (true, true) => self.announce(memory, self.next_available.wrapping_sub(1)),
            (true, false) => self.announce(memory, self.next_available),
            (false, true) => Ok(memory.write16(self.used, NO_NOTIFY)?),
            (false, false) => Ok(()),
        }
    }

    /// Takes no chains any more, until a reset.
    pub fn stop(&mut self) {
        self.live = false;
    }

    /// Whether chains may be taken.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Tells the driver at which index of the available ring to ring the bell (`avail_event`).
    fn announce(&self, memory: &impl GuestMemory, index: u16) -> Result<(), Broken> {
        Ok(memory.write16(self.used.plus(4 + 8 * u64::from(self.size)), index)?)
    }

    /// The device needs no more chains for now than those that wait: the bell isn't rung until [`take_notice`](Self::take_notice)
    /// is called again.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn silence(&self, memory: &impl GuestMemory) -> Result<(), Broken> {
        if self.event_index && self.live {
            // Passed long ago: comes again only after 2^16 chains, of which each that is taken leads to `take_notice`.
            self.announce(memory, self.next_available.wrapping_sub(1))?;
        }
        Ok(())
    }

    /// How many chains wait, for a device that takes all of them now: the bell is rung again for the first one that comes after
    /// these.
    ///
    /// # Errors
    /// More than the queue holds, or an index that won't stand still.
    pub fn take_notice(&mut self, memory: &impl GuestMemory) -> Result<u16, Broken> {
        let mut waiting = self.waiting(memory)?;
        if !self.event_index || !self.live {
            return Ok(waiting);
        }
        // What came before the driver could see this is counted, what comes after it rings: its index is written before ours is
        // read, and the other way round at the driver. An index only grows, by no more than the queue holds.
        for _ in 0..=self.size {
            self.announce(memory, self.next_available.wrapping_add(waiting))?;
            fence(Ordering::SeqCst);
            let now = self.waiting(memory)?;
            if now == waiting {
                return Ok(waiting);
            }
            waiting = now;
        }
        Err(Broken::Available)
    }

    /// How many chains the driver has made available that were not taken: at most the queue's size.
    ///
    /// # Errors
    /// More than the queue holds.
    pub fn waiting(&self, memory: &impl GuestMemory) -> Result<u16, Broken> {
        if !self.live {
            return Ok(0);
        }
        let index = memory.read16(self.available.plus(2))?;
        let waiting = index.wrapping_sub(self.next_available);
        if waiting > self.size {
            return Err(Broken::Available);
        }
        Ok(waiting)
    }

    /// Takes the next chain, if there is one. It stays until the next call.
    ///
    /// # Errors
    /// The chain is malformed.
    pub fn pop(&mut self, memory: &impl GuestMemory) -> Result<Option<&Chain>, Broken> {
        if self.waiting(memory)? == 0 {
            return Ok(None);
        }
        fence(Ordering::Acquire);
        let entry = u64::from(self.next_available & (self.size - 1));
        let head = memory.read16(self.available.plus(4 + 2 * entry))?;
        self.gather(memory, head)?;
        self.next_available = self.next_available.wrapping_add(1);
        if self.quiet && self.event_index && self.next_available.is_multiple_of(QUIET_STEP) {
            self.announce(memory, self.next_available.wrapping_sub(1))?;
        }
        Ok(Some(&self.chain))
    }

    /// Puts back the chain that was taken last, of which `progress` bytes are done: the next [`pop`](Self::pop) takes it
    /// again. The driver may have changed it by then; if so, it gets what it deserves.
    pub fn put_back(&mut self, progress: u32) {
        self.next_available = self.next_available.wrapping_sub(1);
        self.progress = progress;
    }

    /// Copies the chain that begins at `head`.
    fn gather(&mut self, memory: &impl GuestMemory, head: u16) -> Result<(), Broken> {
        let chain = &mut self.chain;
        chain.head = head;
        chain.readable = 0;
        chain.len = [0; 2];
        chain.segments.clear();
        let mut index = head;
        loop {
            if index >= self.size {
                return Err(Broken::Index);
            }
            // As many as there are descriptors: one is met for the second time. (The room never grows.)
            if chain.segments.len() >= usize::from(self.size) {
                return Err(Broken::Loop);
            }
            let mut raw = [0; DESCRIPTOR as usize];
            memory.read(self.descriptors.plus(DESCRIPTOR * u64::from(index)), &mut raw)?;
            let raw = u128::from_le_bytes(raw);
            let (at, len) = (GuestAddress(raw as u64), (raw >> 64) as u32);
            let (flags, next) = ((raw >> 96) as u16, (raw >> 112) as u16);
            if flags & INDIRECT != 0 {
                return Err(Broken::Indirect);
            }
            if !memory.contains(at, u64::from(len)) {
                return Err(Broken::Memory);
            }
            let written = usize::from(flags & WRITE != 0);
            if written == 0 {
                if chain.readable != chain.segments.len() {
                    return Err(Broken::Order);
                }
                chain.readable += 1;
            }
            chain.len[written] = chain.len[written].checked_add(len).ok_or(Broken::Length)?;
            chain.segments.push(Segment { at, len });
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = next;
        }
    }

    /// Gives the chain `head` back, of which the first `written` writable bytes were written.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn push(&mut self, memory: &impl GuestMemory, head: u16, written: u32) -> Result<(), Broken> {
        if !self.live {
            return Ok(());
        }
        let entry = u64::from(self.next_used & (self.size - 1));
        let element = u64::from(written) << 32 | u64::from(head);
        memory.write(self.used.plus(4 + 8 * entry), &element.to_le_bytes())?;
        self.next_used = self.next_used.wrapping_add(1);
        self.progress = 0;
        fence(Ordering::Release);
        memory.write16(self.used.plus(2), self.next_used)?;
        Ok(())
    }

    /// Whether the driver wants an interrupt for what has been given back since this was last asked.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn wants_interrupt(&mut self, memory: &impl GuestMemory) -> Result<bool, Broken> {
        if !self.live {
            return Ok(false);
        }
        let before = core::mem::replace(&mut self.decided, self.next_used);
        // Our index before its wish, and the other way round at the driver: one of the two sees the other.
        fence(Ordering::SeqCst);
        if !self.event_index {
            return Ok(memory.read16(self.available)? & NO_INTERRUPT == 0);
        }
        // Whether we have passed the index that it wants to hear of (`used_event`).
        let wanted = memory.read16(self.available.plus(4 + 2 * u64::from(self.size)))?;
        let passed = self.next_used.wrapping_sub(wanted).wrapping_sub(1);
        Ok(passed < self.next_used.wrapping_sub(before))
    }
}

/// A table of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// The descriptors.
    Descriptors,
    /// The ring that the driver fills.
    Available,
    /// The ring that the device fills.
    Used,
}
