//! Which memory is whose at boot: banks, less what is reserved, less what boot code takes for itself.
//!
//! A [`MemoryPlan`] works with the MMU off and without a heap. Boot code fills it from the device tree,
//! reserves its own image, the device tree and the bundle, carves out stacks, heap, tables and the frame
//! allocator's metadata, and gives the rest to [`super::Frames`].

use core::fmt;

use arrayvec::ArrayVec;

use crate::memory::address::{BLOCK_2M, MAX_ADDRESS_BITS, PAGE_SIZE, Pa, PaRange, align_down, align_up};

/// Most separate ranges of free memory.
pub const MAX_RANGES: usize = 64;

/// Why a plan could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// More than [`MAX_RANGES`] separate ranges of memory are left between reservations.
    TooManyRanges,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRanges => {
                write!(
                    f,
                    "memory is in more than {MAX_RANGES} pieces: fewer banks or reservations are needed"
                )
            }
        }
    }
}

/// Free ranges of physical memory: whole pages, ascending, neither overlapping nor touching.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlan {
    ranges: ArrayVec<PaRange, MAX_RANGES>,
}

/// Memory from here on can't be mapped with a 4 KiB granule and is left out.
const LIMIT: u64 = 1 << MAX_ADDRESS_BITS;

/// `range` cut to what can be mapped.
fn clip(range: PaRange) -> (u64, u64) {
    let base = range.base.0.min(LIMIT);
    (base, base.saturating_add(range.size).min(LIMIT))
}

fn range(base: u64, end: u64) -> PaRange {
    PaRange::new(Pa(base), end.saturating_sub(base))
}

impl MemoryPlan {
    /// A plan of no memory.
    pub const fn new() -> Self {
        Self { ranges: ArrayVec::new_const() }
    }

    /// Adds a bank of RAM. Parts of pages at its ends are left out, as is what lies beyond 2^48. Banks may touch
    /// or overlap each other, and come in any order. All banks are added before anything is reserved.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooManyRanges`].
    pub fn add(&mut self, bank: PaRange) -> Result<(), PlanError> {
        let (base, end) = clip(bank);
        let Some(mut base) = align_up(base, PAGE_SIZE) else { return Ok(()) };
        let mut end = align_down(end, PAGE_SIZE);
        if base >= end {
            return Ok(());
        }
        // Swallow whatever touches the new range, then insert the union in its place.
        self.ranges.retain(|other| {
            let (other_base, other_end) = clip(*other);
            let apart = other_end < base || end < other_base;
            if !apart {
                base = base.min(other_base);
                end = end.max(other_end);
            }
            apart
        });
        self.insert(range(base, end))
    }

    /// Takes `reserved` out, and all of each page that it touches. It may lie anywhere: outside of all
    /// banks, across several, over what is reserved already.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooManyRanges`].
    pub fn reserve(&mut self, reserved: PaRange) -> Result<(), PlanError> {
        let (base, end) = clip(reserved);
        if base >= end {
            return Ok(());
        }
        let base = align_down(base, PAGE_SIZE);
        let end = align_up(end, PAGE_SIZE).unwrap_or(LIMIT);
        let mut at = 0;
        while let Some(free) = self.ranges.get(at).copied() {
            let (free_base, free_end) = clip(free);
            if free_end <= base || end <= free_base {
                at += 1;
                continue;
            }
            self.ranges.pop_at(at);
            if free_base < base {
                self.insert(range(free_base, base))?;
                at += 1;
            }
            if end < free_end {
                self.insert(range(end, free_end))?;
                at += 1;
            }
        }
        Ok(())
    }

    /// Puts `new` where it belongs; every later range moves up by one.
    fn insert(&mut self, new: PaRange) -> Result<(), PlanError> {
        if self.ranges.is_full() {
            return Err(PlanError::TooManyRanges);
        }
        let mut moving = new;
        for slot in self.ranges.iter_mut().skip_while(|other| other.base < new.base) {
            core::mem::swap(slot, &mut moving);
        }
        self.ranges.try_push(moving).map_err(|_| PlanError::TooManyRanges)
    }

    /// Takes `size` bytes, rounded up to pages and aligned to `align` (a power of two, at least a page is
    /// used), for good. They come from the smallest range that has them, so that large ranges stay whole.
    /// `None` where no range has them.
    pub fn carve(&mut self, size: u64, align: u64) -> Option<Pa> {
        let size = align_up(size.max(1), PAGE_SIZE)?;
        let fit = |free: &PaRange| {
            let start = free.base.align_up(align.max(PAGE_SIZE))?;
            let end = start.checked_add(size)?;
            (end <= free.end()?).then_some(start)
        };
        let best = self.ranges.iter().filter(|free| fit(free).is_some()).min_by_key(|free| free.size)?;
        let start = fit(best)?;
        self.reserve(PaRange::new(start, size)).ok()?;
        Some(start)
    }

    /// What is free.
    pub fn ranges(&self) -> &[PaRange] {
        &self.ranges
    }

    /// How much is free.
    pub fn free_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.size).sum()
    }

    /// How many words of metadata [`super::Frames::new`] needs for this plan, also after one more range was
    /// carved out of it: for the metadata itself.
    pub fn metadata_words(&self) -> usize {
        // Carving may split a range, in the midst of a chunk even, and then there is a chunk more.
        CARVE_WORDS + self.exact_metadata_words()
    }

    /// How many words the plan takes as it is.
    pub(super) fn exact_metadata_words(&self) -> usize {
        self.ranges.iter().map(|range| metadata_words(*range)).sum()
    }
}

/// How many chunks of 2 MiB a range touches.
pub(super) fn chunks(range: PaRange) -> usize {
    let (base, end) = clip(range);
    let first = base / BLOCK_2M;
    let last = end.div_ceil(BLOCK_2M);
    last.saturating_sub(first) as usize
}

/// What one more range may cost: a chunk's frames, and a word more for each of the two kinds of chunk bits.
const CARVE_WORDS: usize = 8 + 2;

/// Words of metadata for one range: two bits for each chunk, and a bit for each of its frames.
pub(super) fn metadata_words(range: PaRange) -> usize {
    let chunks = chunks(range);
    2 * chunks.div_ceil(64) + 8 * chunks
}
