//! What a VM and what a CPU hold for the allocator.

use super::id::Id;
use super::sync::{AtomicU64, Relaxed};
use crate::ids::Vmid;
use crate::stats::Counter;

/// A VM's id. One for each VM, shared by its vCPUs: a guest's broadcast TLBI carries the VMID of the CPU that
/// issued it, so all vCPUs of a VM must run under one.
#[derive(Debug)]
pub struct VmidCell {
    /// Written under the allocator's lock alone.
    id: AtomicU64,
}

impl VmidCell {
    /// The cell of a VM that has never run.
    pub fn new() -> Self {
        VmidCell { id: AtomicU64::new(Id::NONE.0) }
    }

    /// The VMID under which the VM's TLB entries are, or `None` if it has none: it hasn't run, or has ended.
    ///
    /// For TLB maintenance after a change of the VM's stage 2. Read it *after* the `dsb` that completes the
    /// change, never before: else the VM may be given another VMID and fill the TLB under that one from the
    /// old table. Read after, it is right whatever happens: entries made under a later VMID are made from the
    /// new table, and those under an earlier one went with the rollover that ended it. The VMID may have
    /// passed to another VM meanwhile; a TLBI too many does no harm.
    pub fn vmid(&self) -> Option<Vmid> {
        let id = self.load();
        (id != Id::NONE).then(|| id.vmid())
    }

    /// Relaxed: see the fast path in [`super::Allocator::schedule_in`]; under the lock, the lock orders it.
    #[inline(always)]
    pub(super) fn load(&self) -> Id {
        Id(self.id.load(Relaxed))
    }

    /// Relaxed: a CPU that reads the new id without the lock needs nothing written before it. The TLBI before
    /// it is ordered by the `dsb ish` that ends [`super::TlbHardware::invalidate_all`].
    pub(super) fn store(&self, id: Id) {
        self.id.store(id.0, Relaxed);
    }
}

impl Default for VmidCell {
    fn default() -> Self {
        Self::new()
    }
}

/// A CPU's active slot, with its counters: all that the fast path writes, on cache lines of their own.
///
/// 128 bytes: two lines of most cores, as some fetch lines in pairs, and one line of those with long ones.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CpuSlot {
    /// The id under which the CPU runs a guest, [`Id::INVALID`], or [`Id::NONE`] after a rollover.
    ///
    /// Its own CPU writes it, and whoever holds the lock. After a rollover has put 0 here, only the lock's
    /// holder replaces it: the whole algorithm rests on that (`docs/vmid.md`).
    pub(super) active: AtomicU64,
    /// Schedule-ins that took the fast path.
    pub(super) fast: Counter,
    /// Schedule-ins that took the slow path.
    pub(super) slow: Counter,
    /// Ticks in the slow path, waiting for the lock included.
    pub(super) slow_ticks: Counter,
    /// Local TLB invalidations.
    pub(super) local: Counter,
}

impl CpuSlot {
    /// The slot of a CPU that has run nothing: its first schedule-in takes the slow path.
    pub(super) fn new() -> Self {
        CpuSlot {
            active: AtomicU64::new(Id::NONE.0),
            fast: Counter::new(),
            slow: Counter::new(),
            slow_ticks: Counter::new(),
            local: Counter::new(),
        }
    }

    /// Counts a local TLB invalidation (`tlbi vmalle1`) that the slot's own CPU made, as between two vCPUs of
    /// one VM that run in turn on it. The allocator itself makes none.
    #[inline(always)]
    pub fn count_local_invalidation(&self) {
        self.local.increment();
    }
}
