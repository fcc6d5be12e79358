//! VMIDs as a cache of VM identities: taken one by one from VMs that run nowhere.
//!
//! The time for which a VM has a VMID is a *tenure*; the id's upper bits number it. Of each VMID it is known which CPUs may have
//! entries of its present owner (`used`: they were admitted), and which may have entries of earlier ones (`stale`). A CPU is
//! admitted under the lock, once in a tenure. If it may have stale entries it removes these then, from its own TLB: nobody
//! else waits, and nothing is lost that is of use to anyone. From then on it enters on the fast path, by an entry of a table of
//! its own (`Known`).
//!
//! Taking a VMID away means making these entries invalid, against CPUs that may be on their fast path at this moment. The
//! order is: first the entry, then a read-modify-write of that CPU's active slot, with release. A CPU reads its slot
//! first, with acquire, then its entry, and last it replaces in the slot what it has read:
//!
//! - The slot says that the CPU is idle: it is made to say so in another way. If the CPU has read the former content, its
//!   compare-exchange fails. If it reads the new one, it finds the entry invalid.
//! - The slot says that the CPU runs another VM: it is written as it is. The CPU's next read of it, after it has left its
//!   guest, is of a value that comes after this one through read-modify-writes alone: again it finds the entry invalid.
//! - The slot says that the CPU runs this VM: the entries are made valid again. Who found them invalid has taken the lock's queue.

use super::TlbHardware;
use super::config::Flush;
use super::cpu_set::CpuSet;
use super::holder::{Holder, Stale};
use super::id::Id;
use super::recency::Recency;
use super::slot::{CpuSlot, VmidCell};
use super::sync::{Relaxed, Release};
use super::victim::{Record, Rule};
use crate::ids::{CpuId, Vmid};
use alloc::boxed::Box;
use alloc::vec;
use arrayvec::ArrayVec;

/// What is known of a VMID.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    /// The id of the VM that has it, or [`Id::NONE`].
    pub(super) id: Id,
    /// CPUs that were admitted under it.
    pub(super) used: CpuSet,
    /// CPUs that may have entries of VMs that had it before.
    pub(super) stale: CpuSet,
    /// The CPU that was admitted last.
    pub(super) last: CpuId,
    /// For the choice of a victim: what was seen of its uses on the fast path when it was last looked at.
    pub(super) uses: u64,
    /// For the choice of a victim: its VM has come to a CPU under it again, or to another one.
    pub(super) returned: bool,
    /// The id under which the VM had it from whom it was taken last, and by which rule.
    taken: Option<(Id, Rule)>,
}

/// What is known of all VMIDs, by their index.
pub(super) struct Tenures {
    /// Empty for policies that go by generations.
    pub(super) each: Box<[Tenure]>,
    /// In the order of their last use, as far as the lock's holders have seen it.
    pub(super) order: Recency,
    /// Where the next search for a victim begins.
    pub(super) hand: usize,
    /// State of a pseudo-random sequence.
    pub(super) random: u64,
    /// The indices that were given last, in a ring.
    pub(super) recent: [u16; RECENT],
    /// Where the next one goes.
    pub(super) next_recent: usize,
    /// How good the rules for the choice of a victim were lately.
    pub(super) record: Record,
}

/// How many of the last VMIDs given are remembered.
pub(super) const RECENT: usize = 16;

impl Tenures {
    pub(super) fn new(usable: u32) -> Self {
        let empty = Tenure {
            id: Id::NONE,
            used: CpuSet::EMPTY,
            stale: CpuSet::EMPTY,
            last: CpuId(0),
            uses: 0,
            returned: false,
            taken: None,
        };
        let count = if usable == 0 { 0 } else { usable as usize + 1 };
        Tenures {
            order: Recency::new(count),
            each: vec![empty; count].into_boxed_slice(),
            hand: 1,
            random: 0x0D0E_7E50,
            recent: [0; RECENT],
            next_recent: 0,
            record: Record::default(),
        }
    }

    pub(super) fn get(&mut self, index: u16) -> Option<&mut Tenure> {
        self.each.get_mut(index as usize)
    }

    /// Whether the id is that of a tenure that goes on.
    pub(super) fn holds(&self, id: Id) -> bool {
        id != Id::NONE && self.each.get(id.index() as usize).is_some_and(|tenure| tenure.id == id)
    }

    /// A VM needs a VMID and had this id before. If it is the last one from whom that VMID was taken, it would have it still had
    /// another been chosen then.
    fn regret(&mut self, id: Id) {
        if let Some(tenure) = self.each.get_mut(id.index() as usize)
            && let Some((taken, rule)) = tenure.taken
            && taken == id
        {
            tenure.taken = None;
            self.record.regret(rule);
        }
    }

    fn begin(&mut self, id: Id, cpu: CpuId) {
        if let Some(tenure) = self.get(id.index()) {
            *tenure =
                Tenure { id, used: CpuSet::EMPTY, last: cpu, uses: 0, returned: false, ..tenure.clone() };
            self.order.touch(id.index());
            self.recent[self.next_recent] = id.index();
            self.next_recent = (self.next_recent + 1) % RECENT;
        }
    }
}

impl<H: TlbHardware> Holder<'_, H> {
    /// An id for a VM that the slot's CPU is about to run, with that CPU admitted; and what in its TLB the VM must not meet.
    pub(super) fn by_tenures(&mut self, slot: &CpuSlot, cell: &VmidCell) -> (Id, Stale) {
        let old = cell.load();
        if cell.is_pinned() {
            return self.by_pinned(slot, old);
        }
        if self.pool.tenures.holds(old) {
            self.events.unchanged.increment();
            let counting = self.shared.tenures.load(Relaxed);
            return (old, if counting { self.admit(slot, old) } else { Stale::Nothing });
        }
        self.events.allocations.increment();
        self.pool.tenures.regret(old);
        if !self.shared.tenures.load(Relaxed) {
            // No VMID has ever been taken away, so none has stale entries, and any CPU may enter.
            if let Some(index) = self.pool.take_next() {
                let id = Id::new(self.generation(), index);
                self.begin_tenure(id, slot, cell);
                return (id, Stale::Nothing);
            }
            self.first_shortage();
        }
        let index = loop {
            match self.pool.take_next() {
                Some(index) => break index,
                // There are more VMIDs that aren't pinned than CPUs, so one is idle.
                None => self.reclaim(slot),
            }
        };
        let number = Id::next_generation(self.generation());
        self.shared.generation.store(number, Relaxed);
        let id = Id::new(number, index);
        self.begin_tenure(id, slot, cell);
        (id, self.admit(slot, id))
    }

    /// A pinned VMID is no tenure: nobody had it before, so no CPU has anything stale under it, and it is never looked at as a victim.
    fn by_pinned(&mut self, slot: &CpuSlot, id: Id) -> (Id, Stale) {
        self.events.unchanged.increment();
        if self.shared.tenures.load(Relaxed) {
            slot.remember(id);
        }
        (id, Stale::Nothing)
    }

    fn begin_tenure(&mut self, id: Id, slot: &CpuSlot, cell: &VmidCell) {
        self.pool.tenures.begin(id, slot.cpu);
        self.note_owner(id.index(), id);
        cell.store(id);
        self.hw.publish_id();
    }

    /// For [`super::Allocator::holds`].
    fn note_owner(&self, index: u16, id: Id) {
        if let Some(owner) = self.shared.owners.get(index as usize) {
            owner.store(id.0, Relaxed);
        }
    }

    /// From here on account is kept. A rollover without a flush: each CPU comes to the lock once, and until then it is
    /// reserved what it runs.
    fn first_shortage(&mut self) {
        self.reserve_what_runs();
        let all = CpuSet::first(self.shared.slots.len());
        for tenure in self.pool.tenures.each.iter_mut().filter(|tenure| tenure.id != Id::NONE) {
            tenure.used = all;
        }
        // Relaxed: a CPU that doesn't see it yet finds 0 in its slot, and takes the lock.
        self.shared.tenures.store(true, Relaxed);
    }

    /// Lets the CPU enter under this id, once nothing stale is left there. It removes that right after it has given the lock back:
    /// before that it can't be told of anything else, as its slot has the id until it has been in the guest.
    fn admit(&mut self, slot: &CpuSlot, id: Id) -> Stale {
        let Some(tenure) = self.pool.tenures.get(id.index()) else { return Stale::Nothing };
        let stale = if tenure.stale.contains(slot.cpu) { Stale::Vmid } else { Stale::Nothing };
        tenure.stale.remove(slot.cpu);
        tenure.returned |= tenure.used != CpuSet::EMPTY;
        tenure.used.insert(slot.cpu);
        tenure.last = slot.cpu;
        self.pool.tenures.order.touch(id.index());
        slot.remember(id);
        stale
    }

    /// Takes VMIDs from VMs that run nowhere, and makes them fit for others.
    fn reclaim(&mut self, own: &CpuSlot) {
        let mut taken: ArrayVec<Vmid, { super::config::MAX_BATCH as usize }> = ArrayVec::new();
        while taken.len() < usize::from(self.shared.batch) && !taken.is_full() {
            let Some((victim, rule)) = self.choose() else { break };
            let id = self.pool.tenures.each.get(victim as usize).map(|tenure| tenure.id);
            if self.revoke(victim) {
                taken.push(Vmid(victim));
                self.pool.tenures.record.choice(rule);
                if let Some(tenure) = self.pool.tenures.get(victim) {
                    tenure.taken = id.map(|id| (id, rule));
                }
            } else if let Some(tenure) = self.pool.tenures.get(victim) {
                // It runs on a CPU that was admitted before the last one. Not to be met again at once.
                tenure.returned = true;
                self.pool.tenures.order.touch(victim);
                if !taken.is_empty() {
                    break; // perhaps all that are left run; one idle one there was, and has been found
                }
            }
        }
        if self.shared.flush == Flush::Broadcast {
            self.invalidate(own, &taken);
        }
        for vmid in &taken {
            self.pool.give_back(vmid.0);
            self.events.reclaimed.increment();
            self.hw.reclaimed(*vmid);
        }
    }

    /// Removes what is left under VMIDs that nobody has any more: on this CPU alone if no other has used them, else on
    /// all CPUs with one barrier.
    fn invalidate(&mut self, own: &CpuSlot, taken: &[Vmid]) {
        let mut elsewhere: ArrayVec<Vmid, { super::config::MAX_BATCH as usize }> = ArrayVec::new();
        for &vmid in taken {
            let Some(tenure) = self.pool.tenures.get(vmid.0) else { continue };
            let stale = core::mem::take(&mut tenure.stale);
            if stale == CpuSet::of(own.cpu) {
                self.hw.invalidate_vmid_here(vmid);
                own.local.increment();
            } else if stale != CpuSet::EMPTY {
                elsewhere.push(vmid);
            }
        }
        if !elsewhere.is_empty() {
            self.hw.invalidate_vmids(&elsewhere);
            self.events.tlbi_broadcast.add(elsewhere.len() as u64);
            self.events.barriers.increment();
        }
    }

    /// The index under which a CPU may be running a guest, or 0.
    fn runs(&self, slot: &CpuSlot) -> u16 {
        let active = Id(slot.active.load(Relaxed));
        if active != Id::NONE {
            return active.index();
        }
        self.pool.reserved.get(slot.cpu.index()).map_or(0, |reserved| reserved.index())
    }

    /// Whether a VM runs where it was admitted last. It may run elsewhere, and that is seen when its VMID is taken away; most
    /// don't, and one slot is read quickly.
    pub(super) fn seems_to_run(&self, tenure: &Tenure) -> bool {
        self.runs(self.slot(tenure.last)) == tenure.id.index()
    }

    /// Ends a tenure, unless the VM runs somewhere. Afterwards no CPU enters under it.
    fn revoke(&mut self, index: u16) -> bool {
        let Some(tenure) = self.pool.tenures.each.get(index as usize) else { return false };
        let (id, used) = (tenure.id, tenure.used);
        let mut cleared = CpuSet::EMPTY;
        for cpu in used.iter() {
            let known = &self.slot(cpu).known(id).id;
            if known.load(Relaxed) == id.0 {
                known.store(Id::OUT.0, Relaxed);
                cleared.insert(cpu);
            }
        }
        if !used.iter().all(|cpu| self.disturb(cpu, index)) {
            for cpu in cleared.iter() {
                self.slot(cpu).known(id).id.store(id.0, Relaxed);
            }
            return false;
        }
        if let Some(tenure) = self.pool.tenures.get(index) {
            tenure.id = Id::NONE;
            tenure.stale = tenure.stale.union(core::mem::take(&mut tenure.used));
        }
        self.pool.tenures.order.remove(index);
        self.note_owner(index, Id::NONE);
        true
    }

    /// Makes sure that a CPU sees what was written before this when it next enters a guest on the fast path. `false` if it
    /// runs the VM that has this VMID.
    fn disturb(&self, cpu: CpuId, index: u16) -> bool {
        let slot = self.slot(cpu);
        loop {
            let active = Id(slot.active.load(Relaxed));
            if self.runs(slot) == index {
                return false;
            }
            if active == Id::NONE || active == Id::OUT {
                return true; // it must take the lock before it enters anything
            }
            let next = if active.index() == 0 { active.disturbed() } else { active };
            // Release: with what was written before it, for the acquiring read on the fast path.
            if slot.active.compare_exchange(active.0, next.0, Release, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// A VM with this cell ends.
    pub(super) fn end_tenure(&mut self, cell: &VmidCell) {
        let id = cell.load();
        cell.store(Id::NONE);
        if !self.pool.tenures.holds(id) {
            return;
        }
        // It runs nowhere and will not, so nobody is on the fast path under this id; but it must not be found valid there
        // by who reads the cell of the VM that comes next too early.
        self.revoke(id.index());
        if let Some(tenure) = self.pool.tenures.get(id.index()) {
            tenure.id = Id::NONE;
            (tenure.used, tenure.stale) = (CpuSet::EMPTY, CpuSet::EMPTY);
        }
        self.pool.tenures.order.remove(id.index());
        self.note_owner(id.index(), Id::NONE);
        self.give_back(id);
    }
}
