//! CPUs with software TLBs around the real allocator, one step at a time, and the invariants of the VMID model.
//!
//! The TLBs are as eager as the architecture allows: what VTTBR holds is cached at once, with the guest's table
//! as it is then, and again right after each invalidation. So a fault needs no lucky moment to show.
//!
//! Checked after each step, numbered as in `docs/vmid.md`: 1 (no VM meets another's entries), 2 (a VM has one
//! VMID on all CPUs), 3 (an unmap leaves no entry), 4 (every current or reserved id has its bit), 5 (no two VMs
//! have one id), 6 (a rollover leaves a free index), 7 (no CPU goes back a generation, or to an earlier owner of a VMID),
//! 8 (VTTBR's VMID is the active or reserved one), 9 (a rollover's 0 goes by the slow path alone), 10 (a pinned VMID never changes), 11 (an ended VM leaves no
//! entry), 12 (what an idle CPU reserves), 13 (who wants to run gets to: each schedule-in ends, within a bound on what it
//! waits for).
//!
//! "Leaves no entry": none that a CPU could meet. Where invalidations are local, a CPU may keep entries for as long as it can't
//! run under their VMID without removing them first; that it doesn't is what 1 and 3 check at each step.

use super::tlbs::{Cpu, Fault, Phase, Tlbs};
use crate::ids::{CpuId, Vmid};
use crate::vmid::id::Id;
use crate::vmid::sync::Relaxed;
use crate::vmid::{Allocator, Config, Flush, Policy, VmidCell};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

struct Vm {
    cell: VmidCell,
    /// Raised by each change of its stage 2.
    epoch: Cell<u64>,
    first_vmid: Cell<Option<Vmid>>,
    pinned: Cell<Option<Vmid>>,
}

/// A broken invariant, in words.
pub(super) type Broken = String;

macro_rules! require {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}

pub(super) struct Machine {
    tlbs: Tlbs,
    vms: Vec<Vm>,
    /// The latest generation that a CPU has seen; by VMID where generations are owners of one.
    generations: HashMap<(usize, u16), u64>,
    policy: Policy,
    schedule_ins: u64,
}

impl Machine {
    pub(super) fn new(usable: u32, cpus: usize, vms: usize, config: Config, fault: Fault) -> Self {
        let vm = || Vm {
            cell: VmidCell::new(),
            epoch: Cell::new(0),
            first_vmid: Cell::new(None),
            pinned: Cell::new(None),
        };
        let cpu = || Cpu { vttbr: Cell::new(None), tlb: RefCell::default() };
        let zero = || Cell::new(0);
        Machine {
            tlbs: Tlbs {
                allocator: Allocator::with_usable(usable, cpus, config).unwrap(),
                cpus: (0..cpus).map(|_| cpu()).collect(),
                here: Cell::new(0),
                phases: RefCell::new(vec![Phase::Idle; cpus]),
                epochs: RefCell::new(vec![0; vms]),
                fault,
                broadcasts: zero(),
                barriers: zero(),
                locals: zero(),
                kicks: zero(),
                waits: zero(),
            },
            vms: (0..vms).map(|_| vm()).collect(),
            generations: HashMap::new(),
            policy: config.policy,
            schedule_ins: 0,
        }
    }

    /// Gives the first `count` VMs a VMID for good. Before anything else.
    pub(super) fn pin(&self, count: usize) {
        for vm in &self.vms[..count] {
            vm.pinned.set(Some(self.allocator().pin(&vm.cell).unwrap()));
        }
    }

    pub(super) fn allocator(&self) -> &Allocator {
        &self.tlbs.allocator
    }

    fn phase(&self, cpu: usize) -> Phase {
        self.tlbs.phases.borrow()[cpu]
    }

    fn set_phase(&self, cpu: usize, phase: Phase) {
        self.tlbs.phases.borrow_mut()[cpu] = phase;
    }

    fn active(&self, cpu: usize) -> Id {
        Id(self.tlbs.slot(cpu).active.load(Relaxed))
    }

    /// The next thing that a CPU does; if it is idle, it takes up `vm`.
    pub(super) fn step(&mut self, cpu: usize, vm: usize) -> Result<(), Broken> {
        self.tlbs.here.set(cpu);
        match self.phase(cpu) {
            Phase::Idle => self.schedule_in(cpu, vm)?,
            Phase::CalledOut(vm) => self.schedule_in(cpu, vm)?,
            Phase::Given(vm, vmid) => {
                self.tlbs.cpus[cpu].vttbr.set(Some((vmid, vm)));
                self.set_phase(cpu, Phase::Loaded(vm, vmid));
            }
            Phase::Loaded(vm, vmid) => {
                if self.tlbs.fault != Fault::NotParked {
                    self.tlbs.cpus[cpu].vttbr.set(None);
                }
                self.set_phase(cpu, Phase::Parked(vm, vmid));
            }
            Phase::Parked(..) => {
                self.allocator().schedule_out(self.tlbs.slot(cpu));
                self.set_phase(cpu, Phase::Idle);
            }
        }
        self.tlbs.fill();
        self.check()
    }

    fn schedule_in(&mut self, cpu: usize, vm: usize) -> Result<(), Broken> {
        let rolled_over = matches!(self.active(cpu), Id::NONE | Id::OUT);
        let before = self.allocator().counters();
        let idle: Vec<(usize, Id)> = (0..self.tlbs.cpus.len())
            .filter(|&cpu| matches!(self.phase(cpu), Phase::Idle | Phase::CalledOut(_)))
            .map(|cpu| (cpu, self.active(cpu)))
            .collect();
        self.tlbs.waits.set(0);
        let vmid = self.allocator().schedule_in(self.tlbs.slot(cpu), &self.vms[vm].cell, &self.tlbs);
        let after = self.allocator().counters();
        self.schedule_ins += 1;
        self.set_phase(cpu, Phase::Given(vm, vmid));
        if self.vms[vm].first_vmid.get().is_none() {
            self.vms[vm].first_vmid.set(Some(vmid));
        }
        require!(
            !rolled_over || after.slow == before.slow + 1,
            "9: a rollover's 0 on CPU {cpu} was passed over"
        );
        let id = self.vms[vm].cell.load();
        require!(self.is_valid(vm), "VM {vm} runs under an id that isn't valid");
        require!(id.vmid() == vmid && self.active(cpu) == id, "VM {vm}'s id isn't what CPU {cpu} has");
        let generation = id.0 - u64::from(id.index());
        let which = if self.policy.reclaims() { id.index() } else { 0 };
        let seen = self.generations.insert((cpu, which), generation).unwrap_or(0);
        require!(generation >= seen, "7: CPU {cpu} went back a generation");
        if after.rollovers > before.rollovers {
            self.check_rollover(&idle)?;
        }
        Ok(())
    }

    /// Whether a VM may run under its id.
    fn is_valid(&self, vm: usize) -> bool {
        let id = self.vms[vm].cell.load();
        match self.policy.reclaims() {
            true if self.vms[vm].pinned.get().is_some() => true,
            true => self.allocator().pool().tenures.holds(id),
            false => id.is_of(self.allocator().generation()),
        }
    }

    /// Whether a CPU could run under a VMID without removing the entries that it has under it.
    fn may_meet(&self, cpu: usize, vmid: Vmid) -> bool {
        let pool = self.allocator().pool();
        if let Some(tenure) = pool.tenures.each.get(vmid.0 as usize) {
            return !tenure.stale.contains(CpuId(cpu as u16));
        }
        !pool.pending[cpu] || self.tlbs.cpus[cpu].vttbr.get().is_some_and(|(loaded, _)| loaded == vmid)
    }

    /// Right after a rollover: `idle` CPUs had these active ids before it.
    fn check_rollover(&self, idle: &[(usize, Id)]) -> Result<(), Broken> {
        let pool = self.allocator().pool();
        // The index that the rollover was made for is taken by now.
        let running: Vec<u16> =
            pool.reserved.iter().map(|id| id.index()).filter(|&index| index != 0).collect();
        require!(running.len() < self.allocator().usable() as usize, "6: a rollover left no free index");
        let pinned = self.vms.iter().filter(|vm| vm.pinned.get().is_some()).count();
        let taken =
            running.iter().filter(|&&index| !self.vms.iter().any(|vm| vm.pinned.get() == Some(Vmid(index))));
        require!(
            taken.count() + pinned < self.allocator().usable() as usize,
            "6: a rollover beside pinned ones left no free index"
        );
        for &(cpu, active) in idle {
            // After a rollover that found it running, `clear` leaves 0 to an idle CPU, which then pins what it
            // ran until it runs something again; so does `v3-clear-zero`. `v3-no-clear` always pins.
            require!(
                active.index() != 0 || active == Id::NONE || pool.reserved[cpu] == Id::NONE,
                "12: idle CPU {cpu} reserves {:?}",
                pool.reserved[cpu]
            );
        }
        Ok(())
    }

    /// Changes a VM's stage 2 and removes what was cached of it.
    pub(super) fn unmap(&mut self, vm: usize) -> Result<(), Broken> {
        self.next_epoch(vm);
        self.tlbs.fill();
        let vmid = match self.tlbs.fault {
            Fault::VmidReadEarly => self.vms[vm].first_vmid.get(),
            _ => self.vms[vm].cell.vmid(),
        };
        if let Some(vmid) = vmid {
            self.tlbs.invalidate(|_| true, |other| other == vmid);
        }
        for (n, cpu) in self.tlbs.cpus.iter().enumerate() {
            for (&vmid, entries) in cpu.tlb.borrow().iter() {
                let old =
                    entries.iter().any(|entry| entry.vm == vm && entry.epoch != self.vms[vm].epoch.get());
                require!(!old || !self.may_meet(n, vmid), "3: an unmap left an entry of VM {vm} on CPU {n}");
            }
        }
        self.check()
    }

    fn next_epoch(&self, vm: usize) {
        self.tlbs.epochs.borrow_mut()[vm] += 1;
        self.vms[vm].epoch.set(self.tlbs.epochs.borrow()[vm]);
    }

    /// Ends a VM if no CPU has to do with it; a new one takes its cell.
    pub(super) fn end(&mut self, vm: usize) -> Result<(), Broken> {
        let in_use = self.tlbs.phases.borrow().iter().any(|&phase| match phase {
            Phase::Idle => false,
            Phase::CalledOut(other) => other == vm,
            Phase::Given(other, _) | Phase::Loaded(other, _) | Phase::Parked(other, _) => other == vm,
        });
        if in_use {
            return Ok(());
        }
        self.allocator().release(&self.vms[vm].cell, &self.tlbs);
        self.vms[vm].first_vmid.set(None);
        for (n, cpu) in self.tlbs.cpus.iter().enumerate() {
            for (&vmid, entries) in cpu.tlb.borrow().iter() {
                let left = entries.iter().any(|entry| entry.vm == vm);
                require!(
                    !left || !self.may_meet(n, vmid),
                    "11: VM {vm} has ended and left an entry on CPU {n}"
                );
            }
        }
        // What is left of it is told apart from entries of the one that takes its place.
        self.next_epoch(vm);
        self.check()
    }

    /// What holds after each step.
    fn check(&self) -> Result<(), Broken> {
        for (n, cpu) in self.tlbs.cpus.iter().enumerate() {
            for (vmid, entries) in cpu.tlb.borrow().iter() {
                let one = entries.iter().all(|entry| entry.vm == entries[0].vm);
                require!(one, "1: CPU {n} has entries of several VMs under {vmid:?}: {entries:?}");
                let old = entries.iter().any(|entry| entry.epoch != self.vms[entry.vm].epoch.get());
                let runs = cpu.vttbr.get().is_some_and(|(loaded, _)| loaded == *vmid);
                require!(
                    !old || !runs,
                    "3: CPU {n} runs under {vmid:?} and has what was unmapped: {entries:?}"
                );
            }
        }
        let phases = self.tlbs.phases.borrow();
        let loaded = || {
            phases.iter().filter_map(|&phase| match phase {
                Phase::Loaded(vm, vmid) | Phase::Given(vm, vmid) => Some((vm, vmid)),
                _ => None,
            })
        };
        for (vm, vmid) in loaded() {
            for (other, other_vmid) in loaded() {
                require!(
                    (vm == other) == (vmid == other_vmid),
                    "2: VM {vm} as {vmid:?}, VM {other} as {other_vmid:?}"
                );
            }
        }
        self.check_pool()
    }

    fn check_pool(&self) -> Result<(), Broken> {
        let valid: Vec<bool> = (0..self.vms.len()).map(|vm| self.is_valid(vm)).collect();
        let pool = self.allocator().pool();
        let ids: Vec<Id> = self.vms.iter().map(|vm| vm.cell.load()).collect();
        for (vm, &id) in ids.iter().enumerate() {
            if let Some(pinned) = self.vms[vm].pinned.get() {
                require!(id.vmid() == pinned, "10: VM {vm}'s VMID was {pinned:?}, and its id is {id:?}");
                require!(pool.is_used(pinned.0), "4: VM {vm}'s pinned {pinned:?} counts as free");
                let others = ids
                    .iter()
                    .enumerate()
                    .filter(|&(other, id)| other != vm && valid[other] && id.vmid() == pinned);
                require!(others.count() == 0, "10: VM {vm}'s pinned {pinned:?} was given to another");
            }
            if valid[vm] {
                require!(id.index() != 0, "VM {vm} has index 0");
                require!(pool.is_used(id.index()), "4: VM {vm}'s index {} counts as free", id.index());
                let owners = ids.iter().filter(|&&other| other == id).count();
                require!(owners == 1, "5: {owners} VMs have the id {id:?}");
            }
        }
        for (cpu, &reserved) in pool.reserved.iter().enumerate() {
            let index = reserved.index();
            // Where VMIDs are taken one by one, it counts for as long as the CPU hasn't been back.
            let over = self.policy.reclaims() && self.active(cpu) != Id::NONE;
            require!(
                over || index == 0 || pool.is_used(index),
                "4: index {index}, reserved on CPU {cpu}, counts as free"
            );
            if let Phase::Given(_, vmid) | Phase::Loaded(_, vmid) = self.phase(cpu) {
                let active = self.active(cpu);
                let held = if active == Id::NONE { reserved } else { active };
                require!(held.vmid() == vmid, "8: CPU {cpu} runs under {vmid:?} but holds {held:?}");
            }
        }
        Ok(())
    }

    /// At the end: the counters add up and say what happened.
    pub(super) fn check_counters(&self) -> Result<(), Broken> {
        let counters = self.allocator().counters();
        let tlbs = &self.tlbs;
        require!(counters.schedule_ins == self.schedule_ins, "schedule-ins: {counters:?}");
        require!(counters.fast + counters.slow == counters.schedule_ins, "fast and slow: {counters:?}");
        let slow = counters.unchanged + counters.reserved + counters.allocations;
        require!(slow == counters.slow, "the slow ones: {counters:?}");
        require!(counters.tlbi_broadcast == tlbs.broadcasts.get(), "broadcasts: {counters:?}");
        require!(counters.broadcast_barriers == tlbs.barriers.get(), "barriers: {counters:?}");
        require!(counters.tlbi_local == tlbs.locals.get(), "local ones: {counters:?}");
        require!(counters.kicks == tlbs.kicks.get(), "kicks: {counters:?}");
        if self.allocator().flush() == Flush::Broadcast && !self.policy.reclaims() {
            require!(
                counters.rollovers + counters.released == counters.tlbi_broadcast,
                "kinds: {counters:?}"
            );
            require!(counters.broadcast_barriers == counters.tlbi_broadcast, "barriers: {counters:?}");
        }
        require!(!self.policy.reclaims() || counters.rollovers == 0, "rollovers: {counters:?}");
        require!(self.policy.calls_out() || counters.kicks == 0, "kicks: {counters:?}");
        Ok(())
    }
}
