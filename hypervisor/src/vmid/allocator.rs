//! The allocator: a fast path without a lock, a slow one with it, and a VM's end.

use super::config::{Config, Flush, MAX_BATCH};
use super::counters::{Events, VmidCounters};
use super::error::PoolError;
use super::holder::Holder;
use super::id::Id;
use super::pool::Pool;
use super::shared::Shared;
use super::slot::{CpuSlot, VmidCell};
#[cfg(all(test, not(loom)))]
use super::sync::Guard;
use super::sync::{Acquire, Apart, AtomicBool, AtomicU64, Lock, Relaxed};
use super::{MAX_BITS, MIN_BITS, Policy, TlbHardware};
use crate::ids::{CpuId, MAX_VMS, Vmid};

/// Most VMIDs that are used where account is kept of each: more than VMs and CPUs together could want.
const MOST_ACCOUNTED: u32 = 2 * MAX_VMS as u32 - 1;

/// Gives VMIDs to VMs as they are scheduled in. One for the machine.
pub struct Allocator {
    /// Read at every schedule-in, written at a rollover.
    shared: Apart<Shared>,
    /// Written whenever a CPU takes the lock.
    pool: Apart<Lock<Pool>>,
    events: Events,
    usable: u32,
}

impl Allocator {
    /// An allocator of all VMIDs of `bits` bits but 0, for CPUs 0 to `cpus` - 1.
    ///
    /// Memory is taken from the heap here and never again.
    ///
    /// # Errors
    /// `bits` outside [`MIN_BITS`]..=[`MAX_BITS`], no CPU, not more usable VMIDs than CPUs, or a way to flush that the policy
    /// doesn't allow.
    pub fn new(bits: u8, cpus: usize, config: impl Into<Config>) -> Result<Self, PoolError> {
        if !(MIN_BITS..=MAX_BITS).contains(&bits) {
            return Err(PoolError::Width { bits });
        }
        Self::with_usable((1 << bits) - 1, cpus, config)
    }

    /// An allocator of VMIDs 1 to `usable` (at most 65535): what [`Self::new`] makes of a width, and smaller
    /// ones for models and tests.
    ///
    /// # Errors
    /// No CPU, more VMIDs than [`MAX_BITS`] hold, not more of them than CPUs, or a way to flush that the policy doesn't allow.
    pub fn with_usable(usable: u32, cpus: usize, config: impl Into<Config>) -> Result<Self, PoolError> {
        let config = config.into();
        if cpus == 0 {
            return Err(PoolError::NoCpu);
        }
        let bits = u32::BITS - usable.leading_zeros();
        if bits > MAX_BITS as u32 {
            return Err(PoolError::Width { bits: bits as u8 });
        }
        if usable as usize <= cpus {
            return Err(PoolError::TooFew { usable, cpus });
        }
        let policy = config.policy;
        let flush = config.flush.unwrap_or(policy.flush());
        if policy == Policy::Merged && flush == Flush::Local {
            return Err(PoolError::LocalFlush);
        }
        let usable = if policy.reclaims() { usable.min(MOST_ACCOUNTED) } else { usable };
        Ok(Allocator {
            shared: Apart(Shared {
                generation: AtomicU64::new(Id::FIRST_GENERATION),
                kept: policy.keeps(),
                tenures: AtomicBool::new(false),
                owners: (0..if policy.reclaims() { usable + 1 } else { 0 })
                    .map(|_| AtomicU64::new(Id::NONE.0))
                    .collect(),
                policy,
                flush,
                victim: config.victim,
                batch: config.batch.clamp(1, MAX_BATCH),
                slots: (0..cpus).map(|cpu| CpuSlot::new(CpuId(cpu as u16))).collect(),
            }),
            pool: Apart(Lock::new(Pool::new(usable, cpus, policy.reclaims()))),
            events: Events::default(),
            usable,
        })
    }

    /// The policy chosen at boot.
    pub fn policy(&self) -> Policy {
        self.shared.0.policy
    }

    /// How VMIDs become fit for another VM.
    pub fn flush(&self) -> Flush {
        self.shared.0.flush
    }

    /// VMIDs that may be given to VMs.
    pub fn usable(&self) -> u32 {
        self.usable
    }

    /// Gives a VM a VMID that stays its own: through rollovers, whoever wants one, and when the VM starts again. As for DMA through an
    /// SMMU, whose tables name it.
    ///
    /// Called before any VM is scheduled in, so that nobody has had that VMID.
    ///
    /// # Errors
    /// Not enough VMIDs would be left for the others.
    pub fn pin(&self, cell: &VmidCell) -> Result<Vmid, PoolError> {
        let shared = &self.shared.0;
        let mut pool = self.pool.0.lock();
        let cpus = shared.slots.len();
        let too_many = PoolError::TooManyPinned { usable: self.usable, cpus };
        if pool.pinned() + cpus + 1 >= self.usable as usize {
            return Err(too_many);
        }
        let index = pool.pin_next().ok_or(too_many)?;
        let id = Id::new(shared.generation.load(Relaxed), index);
        cell.pin(id);
        Ok(id.vmid())
    }

    /// How many VMIDs are pinned.
    pub fn pinned(&self) -> usize {
        self.pool.0.lock().pinned()
    }

    /// A CPU's slot. For each CPU to look up once.
    ///
    /// # Panics
    /// If the allocator was made for fewer CPUs.
    pub fn cpu(&self, cpu: CpuId) -> &CpuSlot {
        &self.shared.0.slots[cpu.index()]
    }

    /// Makes a VM the one that a CPU runs, and returns the VMID to run it under.
    ///
    /// Called by the slot's own CPU, before it writes VTTBR_EL2 for that VM, with VTTBR_EL2 parked (VMID 0, an
    /// empty root). No barrier is needed in between: see below.
    #[inline(always)]
    pub fn schedule_in<H: TlbHardware>(&self, slot: &CpuSlot, cell: &VmidCell, hw: &H) -> Vmid {
        let shared = &self.shared.0;
        let entered = if shared.tenures.load(Relaxed) {
            enter_by_tenure(slot, cell)
        } else {
            enter_by_generation(shared, slot, cell)
        };
        match entered {
            // VTTBR_EL2 is written after this branch, which waits for the exchange's outcome: system registers
            // aren't written speculatively. So no walk under this VMID begins before the lock's holder can see it.
            Some(vmid) => vmid,
            None => self.schedule_in_slowly(slot, cell, hw),
        }
    }

    #[cold]
    #[inline(never)]
    fn schedule_in_slowly<H: TlbHardware>(&self, slot: &CpuSlot, cell: &VmidCell, hw: &H) -> Vmid {
        let start = hw.now();
        if slot.active.load(Relaxed) == Id::NONE.0 {
            // No guest runs here, whether the policy has had to say so or not: who waits for that must not wait on.
            self.shared.0.policy.left_after_rollover(&slot.active);
        }
        let (mut pool, waited) = self.pool.0.lock_noting();
        let locked = if waited { hw.now() } else { start };
        // From here to the unlock, relaxed: all of it is written by the lock's holder alone, but for the active
        // slots, whose owners only ever replace what isn't 0.
        let (id, stale) = self.shared.0.policy.admit(&mut self.holder(&mut pool, hw), slot, cell);
        let end = hw.now();
        if waited {
            self.events.waited.record(locked.wrapping_sub(start));
        }
        self.events.held.record(end.wrapping_sub(locked));
        self.events.handed_to(slot.cpu);
        // Under the lock, so that no rollover comes between: this is what turns its 0 into a live id again.
        slot.active.store(id.0, Relaxed);
        drop(pool);
        // Without the lock: the slot names the id, so nobody gives it to another VM, and nothing enters it here before this.
        stale.remove(slot, id, hw);
        slot.entries.increment();
        slot.slow.increment();
        slot.slow_ticks.add(end.wrapping_sub(start));
        id.vmid()
    }

    fn holder<'a, H>(&'a self, pool: &'a mut Pool, hw: &'a H) -> Holder<'a, H> {
        Holder { pool, shared: &self.shared.0, events: &self.events, hw }
    }

    /// Takes note that the CPU doesn't run its VM any more.
    ///
    /// Called by the slot's own CPU after it has scheduled a VM in, once VTTBR_EL2 is parked (VMID 0, an empty root, then `isb`): with the
    /// clear, the VMID may be given to another VM, so no walk under it may start after this.
    #[inline(always)]
    pub fn schedule_out(&self, slot: &CpuSlot) {
        // Relaxed: this and a rollover's exchange hit one location, so one is before the other, and nothing else is
        // communicated; a 0 stays 0. That the guest's walks have ended before is the caller's business (VTTBR
        // parked and an `isb`): no later store overtakes an `isb`.
        if slot.active.fetch_and(self.shared.0.kept, Relaxed) == Id::NONE.0 {
            self.schedule_out_after_rollover(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn schedule_out_after_rollover(&self, slot: &CpuSlot) {
        self.shared.0.policy.left_after_rollover(&slot.active);
    }

    /// Whether the CPU must leave its guest (park VTTBR_EL2, schedule out) and enter it anew (schedule in), because another
    /// one waits for that. Asked when a kick has arrived.
    #[inline(always)]
    pub fn is_called_out(&self, slot: &CpuSlot) -> bool {
        slot.active.load(Relaxed) == Id::NONE.0 && self.shared.0.policy.calls_out()
    }

    /// Whether the VM has a VMID, so that it could run without one being taken from another. A hint: without the lock, it
    /// may be over at once.
    #[inline]
    pub fn holds(&self, cell: &VmidCell) -> bool {
        let shared = &self.shared.0;
        let id = cell.load();
        if cell.is_pinned() {
            return true;
        }
        if shared.tenures.load(Relaxed) {
            // The owner of index 0 is nobody.
            let owner = shared.owners.get(id.index() as usize);
            owner.is_some_and(|owner| owner.load(Relaxed) == id.0) && id != Id::NONE
        } else {
            id.is_of(shared.generation.load(Relaxed))
        }
    }

    /// Ends a VM's use of its VMID: its TLB entries are flushed from all CPUs, and the VMID is free again, if it isn't pinned.
    ///
    /// Called once none of the VM's vCPUs is scheduled in anywhere, and none will be. The VM may have no VMID;
    /// then nothing happens. The cell may serve a new VM, if that VM's first schedule-in happens after this in
    /// the sense of the memory model (as through a run queue's lock).
    pub fn release<H: TlbHardware>(&self, cell: &VmidCell, hw: &H) {
        let mut pool = self.pool.0.lock();
        let mut holder = self.holder(&mut pool, hw);
        if cell.is_pinned() {
            return holder.forget(cell.load());
        }
        self.shared.0.policy.release(&mut holder, cell);
    }

    /// The number of the current generation; where tenures are numbered, of the latest one. For messages.
    pub fn generations(&self) -> u64 {
        Id(self.shared.0.generation.load(Relaxed)).number()
    }

    /// The current generation, as an id with index 0.
    #[cfg(all(test, not(loom)))]
    pub(super) fn generation(&self) -> u64 {
        self.shared.0.generation.load(Relaxed)
    }

    /// What the lock protects, for tests to look into.
    #[cfg(all(test, not(loom)))]
    pub(super) fn pool(&self) -> Guard<'_, Pool> {
        self.pool.0.lock()
    }

    /// The counters, read one after the other without the lock.
    pub fn counters(&self) -> VmidCounters {
        let events = &self.events;
        let mut sum = VmidCounters {
            unchanged: events.unchanged.get(),
            reserved: events.reserved.get(),
            allocations: events.allocations.get(),
            reclaimed: events.reclaimed.get(),
            rollovers: events.rollovers.get(),
            released: events.released.get(),
            tlbi_broadcast: events.tlbi_broadcast.get(),
            broadcast_barriers: events.barriers.get(),
            kicks: events.kicks.get(),
            handovers: events.handovers.get(),
            waited: events.waited.snapshot(),
            held: events.held.snapshot(),
            ..VmidCounters::default()
        };
        for slot in &self.shared.0.slots {
            sum.schedule_ins += slot.entries.get();
            sum.slow += slot.slow.get();
            sum.slow_ticks += slot.slow_ticks.get();
            sum.tlbi_local += slot.local.get();
        }
        sum.fast = sum.schedule_ins.saturating_sub(sum.slow);
        sum
    }
}

/// The fast path where ids are valid for a generation.
#[inline(always)]
fn enter_by_generation(shared: &Shared, slot: &CpuSlot, cell: &VmidCell) -> Option<Vmid> {
    // All relaxed. The compare-exchange and a rollover's exchange hit one location, so one is first: either
    // the rollover finds this id and reserves it, or this CPU finds 0 and takes the lock. An old generation
    // or an old id read here does no harm in the first case, and is read again in the second. A new id
    // can't be read together with the slot's content before the rollover that it came from: the exchange
    // below always reads the slot's latest value. TLB entries of the VMID's former owner are gone: the
    // TLBI was complete (`dsb ish`) before the id was stored, or this CPU has come by its 0 to the lock since.
    let id = cell.load();
    let generation = shared.generation.load(Relaxed);
    let active = Id(slot.active.load(Relaxed));
    if id.is_of(generation)
        && slot.active.compare_exchange(active.replaceable(), id.0, Relaxed, Relaxed).is_ok()
    {
        slot.entries.increment();
        return Some(id.vmid());
    }
    None
}

/// The fast path where a CPU is admitted to each id.
#[inline(always)]
fn enter_by_tenure(slot: &CpuSlot, cell: &VmidCell) -> Option<Vmid> {
    // Acquire: with the slot's content, what was written before it was last written by the lock's holder (`tenure`). An
    // entry read after it is invalid if the VMID was taken away before that. If it is taken away after that, the slot
    // doesn't hold any more what was read. It is neither NONE nor OUT: an entry is made only after the last rollover.
    let active = slot.active.load(Acquire);
    let id = cell.load();
    let known = slot.known(id);
    if known.id.load(Relaxed) == id.0 && slot.active.compare_exchange(active, id.0, Relaxed, Relaxed).is_ok()
    {
        let entries = slot.entries.get().wrapping_add(1);
        slot.entries.set(entries);
        known.seen.set(entries);
        return Some(id.vmid());
    }
    None
}
