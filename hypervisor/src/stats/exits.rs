//! Exits by reason: count, time, maximum, histogram.
//!
//! A record is on the path of every exit, so it is as few instructions as it can be: no count is kept beside the
//! histogram, since the buckets' sum is the count; and all readers work on a copy, [`ExitSnapshot`].

use super::{Counter, Reason};
use core::sync::atomic::{Ordering, fence};

/// Buckets of a histogram of ticks. Bucket `k` holds times of `2^k` to `2^(k+1) - 1` ticks; bucket 0 also holds
/// times of 0 ticks, and the last one everything longer (from 8.4 ms on at 1 GHz).
pub const BUCKETS: usize = 24;

/// Slots that the record path uses: one for each number of leading zeroes from `LONGEST` (the last bucket) to 64
/// (zero ticks). So a record needs no case for 0, and the order is the reverse of the buckets'.
const SLOTS: usize = BUCKETS + 1;
/// Leading zeroes of the shortest time in the last bucket.
const LONGEST: u32 = 64 - BUCKETS as u32;

/// The slot of a time in ticks: below [`SLOTS`].
#[inline(always)]
fn slot_of(ticks: u64) -> usize {
    ticks.leading_zeros().saturating_sub(LONGEST) as usize
}

/// The bucket that a slot belongs to.
const fn bucket_of_slot(slot: usize) -> usize {
    (BUCKETS - 1).saturating_sub(slot)
}

/// How long each of many events took: those of one reason for exits, or others. One writer at a time, as with [`Counter`].
#[derive(Default, Debug)]
#[repr(C)]
pub struct Durations {
    slots: [Counter; SLOTS],
    total: Counter,
    max: Counter,
}

impl Durations {
    /// Nothing counted yet.
    pub const fn new() -> Self {
        Durations { slots: [const { Counter::new() }; SLOTS], total: Counter::new(), max: Counter::new() }
    }

    /// Counts one event that took `ticks`.
    #[inline(always)]
    pub fn record(&self, ticks: u64) {
        self.record_in(slot_of(ticks), ticks);
    }

    #[inline(always)]
    fn record_in(&self, slot: usize, ticks: u64) {
        if let Some(counter) = self.slots.get(slot) {
            counter.increment();
        }
        self.total.add(ticks);
        self.max.raise_to(ticks);
    }

    /// How many events.
    pub fn count(&self) -> u64 {
        self.slots.iter().fold(0, |sum, slot| sum.wrapping_add(slot.get()))
    }

    /// Their time together, in ticks.
    pub fn total_ticks(&self) -> u64 {
        self.total.get()
    }

    /// The longest, in ticks.
    pub fn max_ticks(&self) -> u64 {
        self.max.get()
    }

    /// A copy.
    pub fn snapshot(&self) -> DurationsSnapshot {
        let mut copy = DurationsSnapshot::EMPTY;
        self.add_to(&mut copy);
        copy
    }

    /// Adds what was recorded to a copy; returns the number of events.
    fn add_to(&self, copy: &mut DurationsSnapshot) -> u64 {
        let mut sum = 0u64;
        for (slot, counter) in self.slots.iter().enumerate() {
            let n = counter.get();
            let bucket = &mut copy.histogram[bucket_of_slot(slot)];
            *bucket = bucket.wrapping_add(n);
            sum = sum.wrapping_add(n);
        }
        copy.total_ticks = copy.total_ticks.wrapping_add(self.total_ticks());
        copy.max_ticks = copy.max_ticks.max(self.max_ticks());
        sum
    }
}

/// Exits by reason, and their number kept apart from the reasons'.
#[derive(Default, Debug)]
pub struct ExitStats {
    reasons: [Durations; Reason::COUNT],
    total: Counter,
}

impl ExitStats {
    /// Nothing counted yet.
    pub const fn new() -> Self {
        ExitStats { reasons: [const { Durations::new() }; Reason::COUNT], total: Counter::new() }
    }

    /// Counts one exit that took `ticks`.
    #[inline(always)]
    pub fn record(&self, reason: Reason, ticks: u64) {
        self.record_in(reason, slot_of(ticks), ticks);
    }

    /// Counts one exit in `self` and in `other`: the bucket is found once.
    #[inline(always)]
    pub(super) fn record_both(&self, other: &ExitStats, reason: Reason, ticks: u64) {
        let slot = slot_of(ticks);
        self.record_in(reason, slot, ticks);
        other.record_in(reason, slot, ticks);
    }

    #[inline(always)]
    fn record_in(&self, reason: Reason, slot: usize, ticks: u64) {
        self.reasons[reason.index()].record_in(slot, ticks);
        // After the reason's numbers: see `ExitSnapshot::add`.
        self.total.increment();
    }

    /// What is known of one reason.
    pub fn reason(&self, reason: Reason) -> &Durations {
        &self.reasons[reason.index()]
    }

    /// Exits of all reasons.
    pub fn total(&self) -> u64 {
        self.total.get()
    }

    /// Time in exits of all reasons, in ticks.
    pub fn total_ticks(&self) -> u64 {
        self.reasons.iter().fold(0, |sum, reason| sum.wrapping_add(reason.total_ticks()))
    }
}

/// [`Durations`], copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DurationsSnapshot {
    /// Events for each bucket: see [`BUCKETS`].
    pub histogram: [u64; BUCKETS],
    /// Time of all events, in ticks.
    pub total_ticks: u64,
    /// The longest event, in ticks.
    pub max_ticks: u64,
}

impl DurationsSnapshot {
    const EMPTY: Self = DurationsSnapshot { histogram: [0; BUCKETS], total_ticks: 0, max_ticks: 0 };

    /// How many events.
    pub fn count(&self) -> u64 {
        self.histogram.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
}

/// A copy of one or more [`ExitStats`], added up. Some 5 KiB: allocate it once, and [`clear`](Self::clear) it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExitSnapshot {
    reasons: [DurationsSnapshot; Reason::COUNT],
    total: u64,
}

impl Default for ExitSnapshot {
    fn default() -> Self {
        Self::new()
    }
}

impl ExitSnapshot {
    /// Nothing.
    pub const fn new() -> Self {
        ExitSnapshot { reasons: [DurationsSnapshot::EMPTY; Reason::COUNT], total: 0 }
    }

    /// Back to nothing.
    pub fn clear(&mut self) {
        self.reasons.fill(DurationsSnapshot::EMPTY);
        self.total = 0;
    }

    /// Adds what `stats` has counted.
    ///
    /// Exits may be counted meanwhile. The total is read before and after: while it stands still, it is taken as it is, so
    /// that a difference to the reasons' sum would show; when it moved, the sum is a total of a moment between
    /// the two readings, and what is taken is the sum if it lies there.
    pub fn add(&mut self, stats: &ExitStats) {
        let before = stats.total();
        fence(Ordering::SeqCst);
        let mut sum = 0u64;
        for (copy, reason) in self.reasons.iter_mut().zip(&stats.reasons) {
            sum = sum.wrapping_add(reason.add_to(copy));
        }
        fence(Ordering::SeqCst);
        let after = stats.total();
        // One more than `after`: an exit whose bucket is counted already and whose total is not.
        let total = if before == after { after } else { sum.clamp(before, after.saturating_add(1)) };
        self.total = self.total.wrapping_add(total);
    }

    /// One reason's numbers.
    pub fn reason(&self, reason: Reason) -> &DurationsSnapshot {
        &self.reasons[reason.index()]
    }

    /// Exits of all reasons, from the counter that is kept apart.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Time in exits of all reasons, in ticks.
    pub fn total_ticks(&self) -> u64 {
        self.reasons.iter().fold(0, |sum, reason| sum.wrapping_add(reason.total_ticks))
    }
}
