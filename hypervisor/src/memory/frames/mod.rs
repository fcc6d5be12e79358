//! The physical frame allocator: contiguous runs of 4 KiB frames, from one frame to 1 GiB and more.
//!
//! Memory is seen in chunks of 2 MiB. A chunk is wholly free, wholly used, or *split*; only a split chunk's
//! bits for its 512 frames mean anything. So initialising 16 GiB writes 256 words and not half a megabyte,
//! a large run is found among a few words, and small allocations fill chunks that are split already, which keeps
//! the others whole for guests' 2 MiB blocks.
//!
//! Each free range of the [`MemoryPlan`] is a zone with its own bits; a frame outside of all zones (reserved,
//! a hole, a device) can't be given back by mistake. Frees are checked against the bits: what isn't allocated is
//! refused and counted, and nothing changes.
//!
//! Memory can be promised before it is taken: a [`Reservation`] guarantees an amount, not places. [`Frames::alloc`] never gives
//! what is promised to somebody else, so a single frame on a reservation's account is always there; a longer run may not be.

pub mod bits;
mod plan;
#[cfg(test)]
mod tests;

use core::fmt;

use arrayvec::ArrayVec;

use super::address::{BLOCK_2M, PAGE_SIZE, Pa, PaRange, align_up, is_aligned};
pub use plan::{MAX_RANGES, MemoryPlan, PlanError};

/// Frames in a chunk.
const CHUNK_FRAMES: usize = (BLOCK_2M / PAGE_SIZE) as usize;
/// Words of bits for a chunk's frames.
const CHUNK_WORDS: usize = CHUNK_FRAMES / 64;

/// Why an allocator could not be made, or refused an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramesError {
    /// The metadata slice is too short.
    Metadata {
        /// Words that the plan needs.
        needed: usize,
        /// Words that were given.
        given: usize,
    },
    /// The range is empty, or its ends are no multiples of 4 KiB.
    Misaligned(PaRange),
    /// The range is not wholly within memory that this allocator manages.
    Foreign(PaRange),
    /// [`Frames::free`]: part of the range is free already.
    NotAllocated(PaRange),
    /// [`Frames::claim`]: part of the range is allocated.
    NotFree(PaRange),
}

impl fmt::Display for FramesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata { needed, given } => {
                write!(f, "the frame allocator needs {needed} words of metadata and was given {given}")
            }
            Self::Misaligned(range) => write!(f, "{range} is not a range of whole 4 KiB frames"),
            Self::Foreign(range) => write!(f, "{range} is not memory of the frame allocator"),
            Self::NotAllocated(range) => write!(f, "{range} is freed but was not allocated"),
            Self::NotFree(range) => write!(f, "{range} is claimed but was not free"),
        }
    }
}

/// One range of memory without holes.
#[derive(Debug)]
struct Zone {
    range: PaRange,
    /// Number of the first chunk that the range touches: address / 2 MiB.
    first_chunk: u64,
    chunks: usize,
    /// A bit for each chunk: wholly free.
    whole: &'static mut [u64],
    /// A bit for each chunk: some frames are free and some are not (used, or outside of the range).
    split: &'static mut [u64],
    /// [`CHUNK_WORDS`] for each chunk: a bit for each frame, set when free; meaningful in split chunks only.
    frames: &'static mut [u64],
}

/// A part of a chunk: frames `first..first + count` of chunk `chunk` of a zone.
#[derive(Clone, Copy)]
struct Part {
    chunk: usize,
    first: usize,
    count: usize,
}

impl Zone {
    /// The parts of chunks that make up `range`, which lies within the zone.
    fn parts(&self, range: PaRange) -> impl Iterator<Item = Part> + use<> {
        let first_chunk = self.first_chunk;
        let mut frame = range.base.0 / PAGE_SIZE;
        let mut left = range.size / PAGE_SIZE;
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let first = frame % CHUNK_FRAMES as u64;
            let count = left.min(CHUNK_FRAMES as u64 - first);
            let chunk = (frame / CHUNK_FRAMES as u64).saturating_sub(first_chunk) as usize;
            frame += count;
            left -= count;
            Some(Part { chunk, first: first as usize, count: count as usize })
        })
    }

    fn chunk_bits(&self, chunk: usize) -> &[u64] {
        self.frames.get(chunk * CHUNK_WORDS..(chunk + 1) * CHUNK_WORDS).unwrap_or(&[])
    }

    fn chunk_bits_mut(&mut self, chunk: usize) -> &mut [u64] {
        self.frames.get_mut(chunk * CHUNK_WORDS..(chunk + 1) * CHUNK_WORDS).unwrap_or(&mut [])
    }

    fn is_free(&self, part: Part) -> bool {
        bits::get(self.whole, part.chunk)
            || bits::get(self.split, part.chunk)
                && bits::all_set(self.chunk_bits(part.chunk), part.first, part.count)
    }

    fn is_used(&self, part: Part) -> bool {
        !bits::get(self.whole, part.chunk)
            && (!bits::get(self.split, part.chunk)
                || bits::all_clear(self.chunk_bits(part.chunk), part.first, part.count))
    }

    /// Marks a part free; it was used.
    fn give(&mut self, part: Part) {
        if part.count == CHUNK_FRAMES {
            bits::set(self.whole, part.chunk, 1);
            return;
        }
        if !bits::get(self.split, part.chunk) {
            bits::set(self.split, part.chunk, 1);
            self.chunk_bits_mut(part.chunk).fill(0);
        }
        bits::set(self.chunk_bits_mut(part.chunk), part.first, part.count);
        if self.chunk_bits(part.chunk).iter().all(|word| *word == u64::MAX) {
            bits::clear(self.split, part.chunk, 1);
            bits::set(self.whole, part.chunk, 1);
        }
    }

    /// Marks a part used; it was free.
    fn take(&mut self, part: Part) {
        if bits::get(self.whole, part.chunk) {
            bits::clear(self.whole, part.chunk, 1);
            if part.count == CHUNK_FRAMES {
                return;
            }
            bits::set(self.split, part.chunk, 1);
            self.chunk_bits_mut(part.chunk).fill(u64::MAX);
        }
        bits::clear(self.chunk_bits_mut(part.chunk), part.first, part.count);
        if self.chunk_bits(part.chunk).iter().all(|word| *word == 0) {
            bits::clear(self.split, part.chunk, 1);
        }
    }

    fn address(&self, chunk: usize, frame: usize) -> Pa {
        Pa((self.first_chunk + chunk as u64) * BLOCK_2M + frame as u64 * PAGE_SIZE)
    }

    /// A place for `count` frames inside one split chunk.
    fn find_in_split(&self, count: usize, align: u64) -> Option<Pa> {
        let mut from = 0;
        while let Some(chunk) = bits::first_set(self.split, from, self.chunks) {
            if let Some(frame) = bits::find_run(self.chunk_bits(chunk), CHUNK_FRAMES, count, align, 0) {
                return Some(self.address(chunk, frame));
            }
            from = chunk + 1;
        }
        None
    }

    /// The first of `count` free chunks in a row, aligned to `align` chunks.
    fn find_whole(&self, count: usize, align: u64) -> Option<Pa> {
        bits::find_run(self.whole, self.chunks, count, align, self.first_chunk)
            .map(|chunk| self.address(chunk, 0))
    }
}

/// Memory that is promised: bytes that [`Frames::alloc_reserved`] gives out for its owner alone.
///
/// It comes back through [`Frames::cancel`]; dropping it leaves the memory promised for ever.
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    left: u64,
}

impl Reservation {
    /// What has not been taken yet, in bytes.
    pub fn left(&self) -> u64 {
        self.left
    }
}

/// The allocator. Not shared: its owner wraps it in a lock, and no exit of a guest needs it but the first touch of a piece of
/// its memory.
#[derive(Debug)]
pub struct Frames {
    zones: ArrayVec<Zone, MAX_RANGES>,
    total: u64,
    free: u64,
    /// Of what is free, what is promised.
    reserved: u64,
    refused: u64,
}

impl Frames {
    /// An allocator for all that is free in `plan`. `metadata` holds its bits: as many words
    /// as [`MemoryPlan::metadata_words`] said before they were carved, in memory that is not part of the plan any more. What they
    /// contain doesn't matter.
    ///
    /// # Errors
    ///
    /// [`FramesError::Metadata`] where the slice is too short.
    pub fn new(plan: &MemoryPlan, metadata: &'static mut [u64]) -> Result<Self, FramesError> {
        let error = FramesError::Metadata { needed: plan.exact_metadata_words(), given: metadata.len() };
        let mut frames = Self { zones: ArrayVec::new(), total: 0, free: 0, reserved: 0, refused: 0 };
        let mut rest = metadata;
        for &range in plan.ranges() {
            let chunks = plan::chunks(range);
            let (whole, tail) = rest.split_at_mut_checked(chunks.div_ceil(64)).ok_or(error)?;
            let (split, tail) = tail.split_at_mut_checked(chunks.div_ceil(64)).ok_or(error)?;
            let (bits, tail) = tail.split_at_mut_checked(chunks * CHUNK_WORDS).ok_or(error)?;
            rest = tail;
            whole.fill(0);
            split.fill(0);
            let first_chunk = range.base.0 / BLOCK_2M;
            let mut zone = Zone { range, first_chunk, chunks, whole, split, frames: bits };
            // The ends of the range may share their chunks with what is not ours; all between is whole.
            let last = chunks.saturating_sub(1);
            for chunk in [0, last] {
                let base = zone.address(chunk, 0).max(range.base);
                let end = zone.address(chunk + 1, 0).min(Pa(range.base.0 + range.size));
                for part in zone.parts(PaRange::new(base, end.0.saturating_sub(base.0))) {
                    zone.give(part);
                }
            }
            bits::set(zone.whole, 1, last.saturating_sub(1));
            frames.total += range.size;
            // A plan holds no more ranges than this has zones.
            let _ = frames.zones.try_push(zone);
        }
        frames.free = frames.total;
        Ok(frames)
    }

    /// Allocates `size` bytes of contiguous memory, rounded up to whole frames, aligned to `align` (a power of
    /// two). What it contains is undefined. `None` where there is no such run, or `size` is 0.
    ///
    /// A run of less than 2 MiB lies within one naturally aligned chunk of 2 MiB. A longer one, or one aligned to
    /// more than 2 MiB, starts a chunk and is found where all chunks that it touches are wholly free; what it leaves
    /// of the last one stays free. First fit, small runs preferring chunks that are split already.
    pub fn alloc(&mut self, size: u64, align: u64) -> Option<Pa> {
        let size = align_up(size, PAGE_SIZE)?;
        if size > self.available_bytes() {
            return None;
        }
        self.find(size, align)
    }

    /// Promises `size` bytes, rounded up to whole frames, if that much is free and not promised yet.
    pub fn reserve(&mut self, size: u64) -> Option<Reservation> {
        let size = align_up(size, PAGE_SIZE)?;
        if size > self.available_bytes() {
            return None;
        }
        self.reserved += size;
        Some(Reservation { left: size })
    }

    /// [`Frames::alloc`] on the account of a reservation, which must have as much left. With `size` 4 KiB it always succeeds then.
    pub fn alloc_reserved(&mut self, from: &mut Reservation, size: u64, align: u64) -> Option<Pa> {
        let size = align_up(size, PAGE_SIZE)?;
        let left = from.left.checked_sub(size)?;
        let base = self.find(size, align)?;
        from.left = left;
        self.reserved -= size;
        Some(base)
    }

    /// [`Frames::free`], and the bytes are promised to `to` again.
    ///
    /// # Errors
    ///
    /// As [`Frames::free`].
    pub fn free_reserved(&mut self, to: &mut Reservation, base: Pa, size: u64) -> Result<(), FramesError> {
        self.free(base, size)?;
        let size = align_up(size, PAGE_SIZE).unwrap_or(0);
        self.reserved += size;
        to.left += size;
        Ok(())
    }

    /// Ends a promise: what is left of it is anybody's.
    pub fn cancel(&mut self, reservation: Reservation) {
        self.reserved -= reservation.left;
    }

    /// Finds and takes `size` bytes, whole frames, whoever they are promised to.
    fn find(&mut self, size: u64, align: u64) -> Option<Pa> {
        if size == 0 || !align.is_power_of_two() {
            return None;
        }
        let base = if size < BLOCK_2M && align <= BLOCK_2M {
            let (count, align) = ((size / PAGE_SIZE) as usize, (align / PAGE_SIZE).max(1));
            let split = self.zones.iter().find_map(|zone| zone.find_in_split(count, align));
            split.or_else(|| self.zones.iter().find_map(|zone| zone.find_whole(1, 1)))
        } else {
            let chunks = usize::try_from(size.div_ceil(BLOCK_2M)).ok()?;
            let align = (align / BLOCK_2M).max(1);
            self.zones.iter().find_map(|zone| zone.find_whole(chunks, align))
        }?;
        self.claim(PaRange::new(base, size)).ok()?;
        Some(base)
    }

    /// Takes a particular range that is free, as [`Frames::alloc`] would: for what boot code put somewhere and
    /// wants to give back later.
    ///
    /// # Errors
    ///
    /// [`FramesError::Misaligned`], [`FramesError::Foreign`], [`FramesError::NotFree`]; nothing changes then.
    pub fn claim(&mut self, range: PaRange) -> Result<(), FramesError> {
        let zone = Self::zone(&mut self.zones, range)?;
        if !zone.parts(range).all(|part| zone.is_free(part)) {
            return Err(FramesError::NotFree(range));
        }
        for part in zone.parts(range) {
            zone.take(part);
        }
        self.free -= range.size;
        Ok(())
    }

    /// Gives back `size` bytes (rounded up to whole frames) from `base` on. They need not be exactly what
    /// one [`Frames::alloc`] gave: a part of it or several neighbours will do.
    ///
    /// # Errors
    ///
    /// [`FramesError::Misaligned`], [`FramesError::Foreign`], [`FramesError::NotAllocated`]; nothing changes then
    /// but [`Frames::refused`].
    pub fn free(&mut self, base: Pa, size: u64) -> Result<(), FramesError> {
        let range = PaRange::new(base, align_up(size, PAGE_SIZE).unwrap_or(u64::MAX));
        let result = self.try_free(range);
        self.refused += u64::from(result.is_err());
        result
    }

    fn try_free(&mut self, range: PaRange) -> Result<(), FramesError> {
        let zone = Self::zone(&mut self.zones, range)?;
        if !zone.parts(range).all(|part| zone.is_used(part)) {
            return Err(FramesError::NotAllocated(range));
        }
        for part in zone.parts(range) {
            zone.give(part);
        }
        self.free += range.size;
        Ok(())
    }

    /// The zone that holds all of `range`.
    fn zone(zones: &mut [Zone], range: PaRange) -> Result<&mut Zone, FramesError> {
        let whole = range.size != 0 && is_aligned(range.base.0 | range.size, PAGE_SIZE);
        if !whole {
            return Err(FramesError::Misaligned(range));
        }
        let within = |zone: &Zone| match (range.end(), zone.range.end()) {
            (Some(end), Some(zone_end)) => zone.range.base <= range.base && end <= zone_end,
            _ => false,
        };
        zones.iter_mut().find(|zone| within(zone)).ok_or(FramesError::Foreign(range))
    }

    /// All memory that is managed, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// What is free, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free
    }

    /// What is free and promised to nobody, in bytes.
    pub fn available_bytes(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// What is allocated, in bytes: `total_bytes - free_bytes`.
    pub fn used_bytes(&self) -> u64 {
        self.total - self.free
    }

    /// How many frees were refused: other than 0, it tells of a fault in the hypervisor.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
