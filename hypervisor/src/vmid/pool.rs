//! What the lock protects: the bitmap of VMIDs, the reserved ids, and whose VMIDs they are.

use super::id::Id;
use super::tenure::Tenures;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

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
    /// Indices that belong to one VM for good.
    pinned: Vec<u16>,
    /// For each CPU, the id that it was running when the last rollover came, or [`Id::NONE`].
    pub(super) reserved: Box<[Id]>,
    /// For each CPU, whether it has entries of an ended generation, and must invalidate them before it runs a guest.
    pub(super) pending: Box<[bool]>,
    /// For policies that take VMIDs one by one.
    pub(super) tenures: Tenures,
}

impl Pool {
    /// All of 1..=`usable` free. The caller has checked that there are more of them than CPUs. `reclaims`: VMIDs are taken
    /// one by one, and account is kept of each.
    pub(super) fn new(usable: u32, cpus: usize, reclaims: bool) -> Self {
        let words = usable as usize / 64 + 1;
        let mut pool = Pool {
            used: vec![0; words].into_boxed_slice(),
            usable,
            free: 0,
            cursor: 1,
            pinned: Vec::new(),
            reserved: vec![Id::NONE; cpus].into_boxed_slice(),
            pending: vec![false; cpus].into_boxed_slice(),
            tenures: Tenures::new(if reclaims { usable } else { 0 }),
        };
        pool.clear();
        pool
    }

    /// Frees every index but 0 and those that are pinned.
    pub(super) fn clear(&mut self) {
        self.used.fill(0);
        if let Some(word) = self.used.first_mut() {
            *word = 1;
        }
        self.free = self.usable;
        self.cursor = 1;
        for at in 0..self.pinned.len() {
            self.take(self.pinned[at]);
        }
    }

    /// Takes a free index for good. The caller has checked that enough are left.
    pub(super) fn pin_next(&mut self) -> Option<u16> {
        let index = self.take_next()?;
        self.pinned.push(index);
        Some(index)
    }

    /// How many are pinned.
    pub(super) fn pinned(&self) -> usize {
        self.pinned.len()
    }

    /// Marks an index as not to be given. Whether it was free.
    pub(super) fn take(&mut self, index: u16) -> bool {
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
    pub(super) fn take_next(&mut self) -> Option<u16> {
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
