//! What the lock protects: the bitmap of VMIDs, the reserved ids, and the rollover.

use super::TlbHardware;
use super::counters::Events;
use super::id::Id;
use super::slot::CpuSlot;
use super::sync::{AtomicU64, Relaxed};
use alloc::boxed::Box;
use alloc::vec;

/// The VMIDs of the current generation.
pub(super) struct Pool {
    /// A bit for each index from 0 to `usable`; set: not to be given. Index 0's is always set.
    used: Box<[u64]>,
    /// Indices that may be given to VMs: 1 to this.
    usable: u32,
    /// Of these, the ones whose bit is clear.
    free: u32,
    /// Where the search for a free index begins.
    cursor: u32,
    /// For each CPU, the id that it was running when the last rollover came, or [`Id::NONE`].
    pub(super) reserved: Box<[Id]>,
}

impl Pool {
    /// All of 1..=`usable` free. The caller has checked that there are more of them than CPUs.
    pub(super) fn new(usable: u32, cpus: usize) -> Self {
        let words = usable as usize / 64 + 1;
        let mut pool = Pool {
            used: vec![0; words].into_boxed_slice(),
            usable,
            free: 0,
            cursor: 1,
            reserved: vec![Id::NONE; cpus].into_boxed_slice(),
        };
        pool.clear();
        pool
    }

    /// Frees every index but 0.
    fn clear(&mut self) {
        self.used.fill(0);
        if let Some(word) = self.used.first_mut() {
            *word = 1;
        }
        self.free = self.usable;
        self.cursor = 1;
    }

    /// Marks an index as not to be given. Whether it was free.
    fn take(&mut self, index: u16) -> bool {
        let bit = 1u64 << (index % 64);
        match self.used.get_mut(index as usize / 64) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                self.free -= 1;
                true
            }
            _ => false,
        }
    }

    /// Marks an index as free again. Only for one that was taken.
    pub(super) fn give_back(&mut self, index: u16) {
        let bit = 1u64 << (index % 64);
        if let Some(word) = self.used.get_mut(index as usize / 64)
            && *word & bit != 0
        {
            *word &= !bit;
            self.free += 1;
        }
    }

    /// Whether an index is not to be given.
    #[cfg(test)]
    pub(super) fn is_used(&self, index: u16) -> bool {
        self.used[index as usize / 64] & (1 << (index % 64)) != 0
    }

    /// Takes the first free index from the cursor on, or else from 1 on; `None` if there is none.
    fn take_next(&mut self) -> Option<u16> {
        if self.free == 0 {
            return None;
        }
        let index = self.first_free(self.cursor, self.usable).or_else(|| self.first_free(1, self.cursor))?;
        self.cursor = index;
        self.take(index as u16).then_some(index as u16)
    }

    /// The first free index in `from..=to`.
    fn first_free(&self, from: u32, to: u32) -> Option<u32> {
        let first = from as usize / 64;
        let words = self.used.get(first..)?;
        for (n, &used) in words.iter().enumerate() {
            let below = if n == 0 { (1u64 << (from % 64)) - 1 } else { 0 };
            let free = !(used | below);
            if free != 0 {
                let index = ((first + n) * 64) as u32 + free.trailing_zeros();
                return (index <= to).then_some(index);
            }
        }
        None
    }
}

/// A VM without a valid id has the lock, and all that is needed to give it one.
pub(super) struct Renewal<'a, H> {
    pub(super) pool: &'a mut Pool,
    pub(super) generation: &'a AtomicU64,
    pub(super) slots: &'a [CpuSlot],
    pub(super) events: &'a Events,
    pub(super) hw: &'a H,
}

impl<H: TlbHardware> Renewal<'_, H> {
    /// An id of the current generation for a VM whose id, `old`, is of an older one or none.
    ///
    /// The VM keeps its index if that is reserved (some CPU has run it under this VMID all along) or happens
    /// to be free still. Otherwise it gets the next free one, after a rollover if there is none.
    pub(super) fn by_generations(&mut self, old: Id) -> Id {
        if old != Id::NONE {
            let new = Id::new(self.current(), old.index());
            if self.keep_reserved(old, new) {
                self.events.reserved.increment();
                return new;
            }
            if self.pool.take(old.index()) {
                self.events.allocations.increment();
                return new;
            }
        }
        self.events.allocations.increment();
        loop {
            if let Some(index) = self.pool.take_next() {
                return Id::new(self.current(), index);
            }
            // Leaves at least one index free, as there are more of them than CPUs: the loop ends.
            self.rollover();
        }
    }

    /// Only the lock's holder writes it: relaxed.
    fn current(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Replaces `old` by `new` in *every* reserved slot that holds it. Whether there was one.
    ///
    /// Each of them: several CPUs may have been running the VM when the rollover came, and one of them may sleep
    /// through the next one too. That one must find the id that the VM then has.
    fn keep_reserved(&mut self, old: Id, new: Id) -> bool {
        let mut found = false;
        for reserved in &mut self.pool.reserved {
            if *reserved == old {
                *reserved = new;
                found = true;
            }
        }
        found
    }

    /// Begins a new generation in which only what CPUs run right now has a VMID.
    fn rollover(&mut self) {
        // Relaxed: a CPU that doesn't see the new generation yet either gets its compare-exchange in before
        // the exchange below, and is reserved, or finds the 0, and takes the lock, behind which it sees it.
        self.generation.store(Id::next_generation(self.current()), Relaxed);
        self.pool.clear();
        for (cpu, slot) in self.slots.iter().enumerate() {
            // Relaxed: against the fast path's compare-exchange only the order within this one location counts.
            let active = Id(slot.active.swap(Id::NONE.0, Relaxed));
            let Some(reserved) = self.pool.reserved.get_mut(cpu) else { continue };
            if active != Id::NONE {
                *reserved = if active == Id::INVALID { Id::NONE } else { active };
            }
            // Else the CPU has seen a rollover and not been back since: it still runs what is reserved for it
            // ("suspended animation").
            let index = reserved.index();
            if index != 0 {
                self.pool.take(index);
            }
        }
        self.hw.invalidate_all();
        self.events.rollovers.increment();
    }
}
