//! The allocator: a fast path without a lock, a slow one with it, and a VM's end.

use super::counters::{Events, VmidCounters};
use super::error::PoolError;
use super::id::Id;
use super::pool::{Pool, Renewal};
use super::slot::{CpuSlot, VmidCell};
use super::sync::{Apart, AtomicU64, Lock, Relaxed};
use super::{MAX_BITS, MIN_BITS, Policy, TlbHardware};
use crate::ids::{CpuId, Vmid};
use alloc::boxed::Box;

/// Gives VMIDs to VMs as they are scheduled in. One for the machine.
pub struct Allocator {
    /// Read at every schedule-in, written at a rollover.
    shared: Apart<Shared>,
    /// Written whenever a CPU takes the lock.
    pool: Apart<Lock<Pool>>,
    events: Events,
    usable: u32,
}

struct Shared {
    /// The current generation, as an id with index 0. Written under the lock.
    generation: AtomicU64,
    policy: Policy,
    slots: Box<[CpuSlot]>,
}

impl Allocator {
    /// An allocator of all VMIDs of `bits` bits but 0, for CPUs 0 to `cpus` - 1.
    ///
    /// Memory is taken from the heap here and never again: 2^`bits` bits, 8 bytes and a [`CpuSlot`] for each CPU.
    ///
    /// # Errors
    /// `bits` outside [`MIN_BITS`]..=[`MAX_BITS`], no CPU, or not more usable VMIDs than CPUs.
    pub fn new(bits: u8, cpus: usize, policy: Policy) -> Result<Self, PoolError> {
        if !(MIN_BITS..=MAX_BITS).contains(&bits) {
            return Err(PoolError::Width { bits });
        }
        Self::with_usable((1 << bits) - 1, cpus, policy)
    }

    /// An allocator of VMIDs 1 to `usable` (at most 65535): what [`Self::new`] makes of a width, and smaller
    /// ones for models and tests.
    ///
    /// # Errors
    /// No CPU, more VMIDs than [`MAX_BITS`] hold, or not more of them than CPUs.
    pub fn with_usable(usable: u32, cpus: usize, policy: Policy) -> Result<Self, PoolError> {
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
        Ok(Allocator {
            shared: Apart(Shared {
                generation: AtomicU64::new(Id::FIRST_GENERATION),
                policy,
                slots: (0..cpus).map(|_| CpuSlot::new()).collect(),
            }),
            pool: Apart(Lock::new(Pool::new(usable, cpus))),
            events: Events::default(),
            usable,
        })
    }

    /// The policy chosen at boot.
    pub fn policy(&self) -> Policy {
        self.shared.0.policy
    }

    /// VMIDs that may be given to VMs.
    pub fn usable(&self) -> u32 {
        self.usable
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
        // All relaxed. The compare-exchange and a rollover's exchange hit one location, so one is first: either
        // the rollover finds this id and reserves it, or this CPU finds 0 and takes the lock. An old generation
        // or an old id read here does no harm in the first case, and is read again in the second. A new id
        // can't be read together with the slot's content before the rollover that it came from: the exchange
        // below always reads the slot's latest value. TLB entries of the VMID's former owner are gone: the
        // TLBI was complete (`dsb ish`) before the id was stored.
        let id = cell.load();
        let generation = self.shared.0.generation.load(Relaxed);
        let active = slot.active.load(Relaxed);
        if active != Id::NONE.0
            && id.is_of(generation)
            && slot.active.compare_exchange(active, id.0, Relaxed, Relaxed).is_ok()
        {
            // VTTBR_EL2 is written after this branch, which waits for the exchange's outcome: system registers
            // aren't written speculatively. So no walk under this VMID begins before a rollover can see it.
            slot.fast.increment();
            return id.vmid();
        }
        self.schedule_in_slowly(slot, cell, hw)
    }

    #[cold]
    #[inline(never)]
    fn schedule_in_slowly<H: TlbHardware>(&self, slot: &CpuSlot, cell: &VmidCell, hw: &H) -> Vmid {
        let start = hw.now();
        let shared = &self.shared.0;
        let mut pool = self.pool.0.lock();
        // From here to the unlock, relaxed: all of it is written by the lock's holder alone, but for the active
        // slots, whose owners only ever compare and exchange what isn't 0.
        let mut id = cell.load();
        if id.is_of(shared.generation.load(Relaxed)) {
            self.events.unchanged.increment();
        } else {
            let mut renewal = Renewal {
                pool: &mut pool,
                generation: &shared.generation,
                slots: &shared.slots,
                events: &self.events,
                hw,
            };
            id = shared.policy.renew(&mut renewal, id);
            cell.store(id);
        }
        // Under the lock, so that no rollover comes between: this is what turns its 0 into a live id again.
        slot.active.store(id.0, Relaxed);
        drop(pool);
        slot.slow.increment();
        slot.slow_ticks.add(hw.now().wrapping_sub(start));
        id.vmid()
    }

    /// Takes note that the CPU doesn't run the VM any more.
    ///
    /// Called by the slot's own CPU for the VM that it scheduled in last, after VTTBR_EL2 is parked (VMID 0, an empty root, then `isb`): with the
    /// clear, the next rollover may give the VMID to another VM, so no walk under it may start after this.
    #[inline(always)]
    pub fn schedule_out(&self, slot: &CpuSlot, cell: &VmidCell) {
        self.shared.0.policy.leave(&slot.active, cell);
    }

    /// Ends a VM's use of its VMID: its TLB entries are flushed from all CPUs, and the VMID is free again.
    ///
    /// Called once none of the VM's vCPUs is scheduled in anywhere, and none will be. The VM may have no VMID;
    /// then nothing happens. The cell may serve a new VM, if that VM's first schedule-in happens after this in
    /// the sense of the memory model (as through a run queue's lock).
    pub fn release<H: TlbHardware>(&self, cell: &VmidCell, hw: &H) {
        let shared = &self.shared.0;
        let mut pool = self.pool.0.lock();
        let id = cell.load();
        cell.store(Id::NONE);
        // An id that is neither of this generation nor reserved went with a rollover, entries and all; its
        // index may be another VM's by now.
        let is_current = id.is_of(shared.generation.load(Relaxed));
        if id == Id::NONE || !(is_current || pool.reserved.contains(&id)) {
            return;
        }
        for reserved in &mut pool.reserved {
            if *reserved == id {
                *reserved = Id::NONE;
            }
        }
        for slot in &shared.slots {
            // A policy that doesn't clear leaves the id in slots of CPUs that ran the VM last; it would be
            // reserved for nobody at the next rollover. Never over a 0, nor over what a CPU exchanges now.
            let _ = slot.active.compare_exchange(id.0, Id::INVALID.0, Relaxed, Relaxed);
        }
        hw.invalidate_vmid(id.vmid());
        pool.give_back(id.index());
        self.events.released.increment();
    }

    /// The current generation, as an id with index 0.
    #[cfg(all(test, not(loom)))]
    pub(super) fn generation(&self) -> u64 {
        self.shared.0.generation.load(Relaxed)
    }

    /// What the lock protects, for tests to look into.
    #[cfg(all(test, not(loom)))]
    pub(super) fn pool(&self) -> &Lock<Pool> {
        &self.pool.0
    }

    /// The counters, read one after the other without the lock.
    pub fn counters(&self) -> VmidCounters {
        let events = &self.events;
        let rollovers = events.rollovers.get();
        let released = events.released.get();
        let mut sum = VmidCounters {
            unchanged: events.unchanged.get(),
            reserved: events.reserved.get(),
            allocations: events.allocations.get(),
            rollovers,
            released,
            tlbi_broadcast: rollovers + released,
            broadcast_barriers: rollovers + released,
            ..VmidCounters::default()
        };
        for slot in &self.shared.0.slots {
            sum.fast += slot.fast.get();
            sum.slow += slot.slow.get();
            sum.slow_ticks += slot.slow_ticks.get();
            sum.tlbi_local += slot.local.get();
        }
        sum.schedule_ins = sum.fast + sum.slow;
        sum
    }
}
