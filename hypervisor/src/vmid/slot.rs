//! What a VM and what a CPU hold for the allocator.

use super::id::Id;
use super::sync::{AtomicBool, AtomicU64, Relaxed};
use crate::ids::{CpuId, Vmid};
use crate::stats::Counter;

/// A VM's id. One for each VM, shared by its vCPUs: a guest's broadcast TLBI carries the VMID of the CPU that
/// issued it, so all vCPUs of a VM must run under one.
#[derive(Debug)]
pub struct VmidCell {
    /// Written under the allocator's lock alone.
    id: AtomicU64,
    /// The VMID in the id never changes. Written once, before the VM runs.
    pinned: AtomicBool,
}

impl VmidCell {
    /// The cell of a VM that has never run.
    pub fn new() -> Self {
        VmidCell { id: AtomicU64::new(Id::NONE.0), pinned: AtomicBool::new(false) }
    }

    /// The VMID under which the VM's TLB entries are, or `None` if it has none: it hasn't run, or has ended.
    ///
    /// For TLB maintenance after a change of the VM's stage 2. Read it *after* the `dsb` that completes the
    /// change, never before: else the VM may be given another VMID and fill the TLB under that one from the
    /// old table. Read after, it is right whatever happens: entries made under a later VMID are made from the
    /// new table, and those under an earlier one went when that was taken from it, or go before a CPU that has them uses
    /// the VMID again. The VMID may have passed to another VM meanwhile; a TLBI too many does no harm.
    pub fn vmid(&self) -> Option<Vmid> {
        let id = self.load();
        (id != Id::NONE).then(|| id.vmid())
    }

    /// Relaxed: see the fast path in [`super::Allocator::schedule_in`]; under the lock, the lock orders it.
    #[inline(always)]
    pub(super) fn load(&self) -> Id {
        Id(self.id.load(Relaxed))
    }

    /// Whether the VMID is the VM's for good: see [`super::Allocator::pin`].
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.load(Relaxed)
    }

    pub(super) fn pin(&self, id: Id) {
        self.store(id);
        self.pinned.store(true, Relaxed);
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

/// Ids that a CPU remembers having been admitted under. More than a CPU runs VMs in a while; the table is looked up by the
/// lowest bits of the VMID. Few for the model checker, which keeps account of each.
pub(super) const KNOWN: usize = if cfg!(loom) { 4 } else { 64 };

/// An id under which a CPU may run a VM without asking, by the policies that keep account of that.
#[derive(Debug)]
pub(super) struct Known {
    /// The id, or [`Id::OUT`] for none. Written under the lock.
    pub(super) id: AtomicU64,
    /// The CPU's count of schedule-ins when it last ran under this id. Written by the CPU.
    pub(super) seen: Counter,
}

/// A CPU's active slot, with its counters: all that the fast path writes, on cache lines of their own.
///
/// 128 bytes before what it knows: two lines of most cores, as some fetch lines in pairs, and one line of those with long
/// ones.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CpuSlot {
    /// The id under which the CPU runs a guest; that without its index after it has left the guest; or [`Id::NONE`] or
    /// [`Id::OUT`] after a rollover.
    ///
    /// Its own CPU writes it, and whoever holds the lock. After a rollover has put 0 here, only the lock's
    /// holder makes an id of it again: the whole algorithm rests on that (`docs/vmid.md`).
    pub(super) active: AtomicU64,
    /// Schedule-ins.
    pub(super) entries: Counter,
    /// Of these, the ones that took the slow path.
    pub(super) slow: Counter,
    /// Ticks in the slow path, waiting for the lock included.
    pub(super) slow_ticks: Counter,
    /// Local TLB invalidations.
    pub(super) local: Counter,
    /// Whose slot it is.
    pub(super) cpu: CpuId,
    _apart: [u64; 10],
    known: [Known; KNOWN],
}

const _: () = assert!(cfg!(loom) || core::mem::offset_of!(CpuSlot, known) == 128);

impl CpuSlot {
    /// The slot of a CPU that has run nothing: its first schedule-in takes the slow path.
    pub(super) fn new(cpu: CpuId) -> Self {
        CpuSlot {
            active: AtomicU64::new(Id::NONE.0),
            entries: Counter::new(),
            slow: Counter::new(),
            slow_ticks: Counter::new(),
            local: Counter::new(),
            cpu,
            _apart: [0; 10],
            known: core::array::from_fn(|_| Known { id: AtomicU64::new(Id::OUT.0), seen: Counter::new() }),
        }
    }

    /// What the CPU knows of the VMID in `id`, or of another with the same lowest bits.
    #[inline(always)]
    pub(super) fn known(&self, id: Id) -> &Known {
        &self.known[id.index() as usize % KNOWN]
    }

    /// The CPU may enter under this id without asking, and hasn't yet. By the lock's holder.
    pub(super) fn remember(&self, id: Id) {
        let known = self.known(id);
        known.id.store(id.0, Relaxed);
        known.seen.set(0);
    }

    /// Counts a local TLB invalidation (`tlbi vmalle1`) that the slot's own CPU made, as between two vCPUs of
    /// one VM that run in turn on it.
    #[inline(always)]
    pub fn count_local_invalidation(&self) {
        self.local.increment();
    }

    /// Local TLB invalidations that the slot's own CPU made, the allocator's among them.
    pub fn local_invalidations(&self) -> u64 {
        self.local.get()
    }
}
