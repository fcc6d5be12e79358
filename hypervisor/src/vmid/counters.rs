//! The allocator's counters, and what they add up to.

use crate::ids::CpuId;
use crate::stats::{Counter, Durations, DurationsSnapshot};

/// What happens under the lock. Written by its holder alone, read by anyone.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) unchanged: Counter,
    pub(super) reserved: Counter,
    pub(super) allocations: Counter,
    pub(super) reclaimed: Counter,
    pub(super) rollovers: Counter,
    pub(super) released: Counter,
    pub(super) tlbi_broadcast: Counter,
    pub(super) barriers: Counter,
    pub(super) kicks: Counter,
    pub(super) waited: Durations,
    pub(super) held: Durations,
    pub(super) handovers: Counter,
    /// One more than the number of the CPU that had the lock last; 0: nobody had.
    last: Counter,
}

impl Events {
    /// Takes note of whose the lock is.
    pub(super) fn handed_to(&self, cpu: CpuId) {
        let this = u64::from(cpu.0) + 1;
        if ![0, this].contains(&self.last.get()) {
            self.handovers.increment();
        }
        self.last.set(this);
    }
}

/// The allocator's counters since boot. Counts, but for `slow_ticks`, `waited` and `held`.
///
/// While CPUs are at work, values read are each right at some moment but not all at the same; once no CPU is in
/// the allocator these hold exactly:
///
/// - `schedule_ins = fast + slow`
/// - `slow = unchanged + reserved + allocations`
/// - with broadcast flushes and no VMIDs reclaimed one by one: `tlbi_broadcast = broadcast_barriers = rollovers + released`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmidCounters {
    /// Times that a vCPU was scheduled in.
    pub schedule_ins: u64,
    /// Of these, without the lock.
    pub fast: u64,
    /// Of these, with the lock.
    pub slow: u64,
    /// Slow: the VM's id was current; only what the CPU itself holds had to be set.
    pub unchanged: u64,
    /// Slow: the id was of an older generation, but reserved; the VM keeps its VMID.
    pub reserved: u64,
    /// Slow: the VM had no id, or lost it; it was given one.
    pub allocations: u64,
    /// VMIDs taken from VMs that ran nowhere, one by one.
    pub reclaimed: u64,
    /// Times that the VMIDs ran out and a new generation began, all guests' TLB entries flushed.
    pub rollovers: u64,
    /// Ended VMs that had a VMID to give back.
    pub released: u64,
    /// Broadcast TLB invalidations, of all VMIDs or of one.
    pub tlbi_broadcast: u64,
    /// Local TLB invalidations: the allocator's, and those reported to [`super::CpuSlot::count_local_invalidation`].
    pub tlbi_local: u64,
    /// `dsb ish` that waited for broadcast invalidations.
    pub broadcast_barriers: u64,
    /// CPUs that were interrupted out of their guests.
    pub kicks: u64,
    /// Time in the slow path, in ticks of [`super::TlbHardware::now`], waiting for the lock included.
    pub slow_ticks: u64,
    /// Slow: the lock was another CPU's than the time before, so its cache lines had to come from there.
    pub handovers: u64,
    /// Slow: the lock wasn't free. How long each of these waited for it, in ticks.
    pub waited: DurationsSnapshot,
    /// How long each slow path had the lock, in ticks.
    pub held: DurationsSnapshot,
}
