//! What the lock's holder does: by generations, with rollovers. `tenure` has the other way.

use super::TlbHardware;
use super::config::Flush;
use super::counters::Events;
use super::cpu_set::CpuSet;
use super::id::Id;
use super::pool::Pool;
use super::shared::Shared;
use super::slot::{CpuSlot, VmidCell};
use super::sync::{Acquire, Relaxed};
use crate::ids::CpuId;

/// What a CPU must remove from its own TLB, once it has given the lock back and before it enters the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stale {
    /// Nothing.
    Nothing,
    /// What is under the VMID that it was given.
    Vmid,
    /// All of it.
    All,
}

impl Stale {
    /// Removes it.
    pub(super) fn remove<H: TlbHardware>(self, slot: &CpuSlot, id: Id, hw: &H) {
        match self {
            Stale::Nothing => return,
            Stale::Vmid => hw.invalidate_vmid_here(id.vmid()),
            Stale::All => hw.invalidate_all_here(),
        }
        slot.local.increment();
    }
}

/// All that a CPU needs while it has the lock.
pub(super) struct Holder<'a, H> {
    pub(super) pool: &'a mut Pool,
    pub(super) shared: &'a Shared,
    pub(super) events: &'a Events,
    pub(super) hw: &'a H,
}

impl<H: TlbHardware> Holder<'_, H> {
    /// An id of the current generation for a VM that the slot's CPU is about to run, and what in that CPU's TLB the VM must
    /// not meet.
    pub(super) fn by_generations(&mut self, slot: &CpuSlot, cell: &VmidCell) -> (Id, Stale) {
        let mut id = cell.load();
        if id.is_of(self.generation()) {
            self.events.unchanged.increment();
        } else {
            let new = self.renewed(id, cell.is_pinned());
            cell.store(new);
            if new.index() != id.index() {
                self.hw.publish_id();
            }
            id = new;
        }
        // After the rollover that may just have been. If another one comes before the CPU has removed it, there is a new mark.
        let pending = self.pool.pending.get_mut(slot.cpu.index()).is_some_and(core::mem::take);
        (id, if pending { Stale::All } else { Stale::Nothing })
    }

    /// An id of the current generation for a VM whose id, `old`, is of an older one or none.
    ///
    /// The VM keeps its index if that is `pinned`, or reserved (some CPU has run it under this VMID all along), or happens
    /// to be free still. Otherwise it gets the next free one, after a rollover if there is none.
    fn renewed(&mut self, old: Id, pinned: bool) -> Id {
        if old != Id::NONE {
            let new = Id::new(self.generation(), old.index());
            // A pinned one may be reserved, too: that must be of the new generation then.
            if self.keep_reserved(old, new) || pinned {
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
                return Id::new(self.generation(), index);
            }
            // Leaves at least one index free, as there are more that aren't pinned than CPUs: the loop ends.
            self.rollover();
        }
    }

    /// Only the lock's holder writes it: relaxed.
    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Relaxed)
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

    /// Begins a new generation in which only what CPUs run right now has a VMID; or nothing, if the policy calls them out.
    fn rollover(&mut self) {
        // Relaxed: a CPU that doesn't see the new generation yet either gets its compare-exchange in before
        // the exchange below, and is found, or finds the 0, and takes the lock, behind which it sees it.
        self.shared.generation.store(Id::next_generation(self.generation()), Relaxed);
        self.pool.clear();
        if self.shared.policy.calls_out() {
            self.call_out();
        } else {
            self.reserve_what_runs();
        }
        match self.shared.flush {
            Flush::Broadcast => {
                self.hw.invalidate_all();
                self.events.tlbi_broadcast.increment();
                self.events.barriers.increment();
            }
            // A CPU that runs a guest goes on under what is reserved for it, and needs nothing else from its TLB. Before it
            // enters another, it must come here, as its slot is 0.
            Flush::Local => self.pool.pending.fill(true),
        }
        self.events.rollovers.increment();
        self.hw.rolled_over();
    }

    /// Puts 0 into all slots. What was in them becomes reserved, and its index marked as used.
    pub(super) fn reserve_what_runs(&mut self) {
        for (cpu, slot) in self.shared.slots.iter().enumerate() {
            // Relaxed: against the fast path's compare-exchange only the order within this one location counts.
            let active = Id(slot.active.swap(Id::NONE.0, Relaxed));
            let Some(reserved) = self.pool.reserved.get_mut(cpu) else { continue };
            if active != Id::NONE {
                *reserved = if active.index() == 0 { Id::NONE } else { active };
            }
            // Else the CPU has seen a rollover and not been back since: it still runs what is reserved for it
            // ("suspended animation").
            let index = reserved.index();
            if index != 0 {
                self.pool.take(index);
            }
        }
    }

    /// Puts 0 into all slots, and waits until no CPU is in a guest.
    fn call_out(&mut self) {
        let mut called = CpuSet::EMPTY;
        for slot in &self.shared.slots {
            // 0 was left there by an earlier rollover, which has waited for that CPU too.
            if Id(slot.active.swap(Id::NONE.0, Relaxed)).index() != 0 {
                called.insert(slot.cpu);
                self.hw.kick(slot.cpu);
                self.events.kicks.increment();
            }
        }
        for cpu in called.iter() {
            // Acquire: that CPU has parked its VTTBR_EL2 before it wrote what is read here.
            while self.slot(cpu).active.load(Acquire) == Id::NONE.0 {
                self.hw.wait();
            }
        }
    }

    pub(super) fn slot(&self, cpu: CpuId) -> &CpuSlot {
        &self.shared.slots[cpu.index()]
    }

    /// Ends a VM's use of its id, if it has one that is valid still.
    pub(super) fn end_generation(&mut self, cell: &VmidCell) {
        let id = cell.load();
        cell.store(Id::NONE);
        // An id that is neither of this generation nor reserved went with a rollover, entries and all; its
        // index may be another VM's by now.
        let is_current = id.is_of(self.generation());
        if id == Id::NONE || !(is_current || self.pool.reserved.contains(&id)) {
            return;
        }
        for reserved in &mut self.pool.reserved {
            if *reserved == id {
                *reserved = Id::NONE;
            }
        }
        for slot in &self.shared.slots {
            // A policy that doesn't clear leaves the id in slots of CPUs that ran the VM last; it would be
            // reserved for nobody at the next rollover. Never over a 0, nor over what a CPU exchanges now.
            let _ = slot.active.compare_exchange(id.0, Id::IDLE.0, Relaxed, Relaxed);
        }
        self.give_back(id);
    }

    /// Removes all entries of an id's VMID from all TLBs; then the VMID is free.
    pub(super) fn give_back(&mut self, id: Id) {
        self.forget(id);
        self.pool.give_back(id.index());
    }

    /// Removes all entries of an ended VM's VMID from all TLBs.
    pub(super) fn forget(&mut self, id: Id) {
        self.hw.invalidate_vmids(&[id.vmid()]);
        self.events.tlbi_broadcast.increment();
        self.events.barriers.increment();
        self.events.released.increment();
    }
}
