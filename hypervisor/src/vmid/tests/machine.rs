//! CPUs with software TLBs around the real allocator, one step at a time, and the invariants of the VMID model.
//!
//! The TLBs are as eager as the architecture allows: what VTTBR holds is cached at once, with the guest's table
//! as it is then, and again right after each invalidation. So a fault needs no lucky moment to show.
//!
//! Checked after each step, numbered as in `docs/vmid.md`: 1 (no VM meets another's entries), 2 (a VM has one
//! VMID on all CPUs), 3 (an unmap leaves no entry), 4 (every current or reserved id has its bit), 5 (no two VMs
//! have one id), 6 (a rollover leaves a free index), 7 (no CPU goes back a generation), 8 (VTTBR's VMID is the
//! active or reserved one), 9 (a rollover's 0 goes by the slow path alone), 11 (an ended VM leaves no entry),
//! 12 (what an idle CPU reserves).

use crate::ids::{CpuId, Vmid};
use crate::vmid::id::Id;
use crate::vmid::sync::Relaxed;
use crate::vmid::{Allocator, CpuSlot, Policy, TlbHardware, VmidCell};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// What may be got wrong around the allocator, so that the checks can be seen to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    None,
    /// A rollover doesn't flush.
    NoInvalidateAll,
    /// A VM's end doesn't flush.
    NoInvalidateVmid,
    /// The VMID for an unmap's TLBI is read before the table is changed, at the VM's first schedule-in.
    VmidReadEarly,
    /// Schedule-out with VTTBR still loaded.
    NotParked,
}

/// What a CPU is doing about a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    /// Scheduled in; VTTBR is still parked.
    Given(usize, Vmid),
    /// In the guest, or in an exit that goes back to it.
    Loaded(usize, Vmid),
    /// VTTBR is parked again; not yet scheduled out.
    Parked(usize, Vmid),
}

/// An entry: whose it is, and which of the VM's tables it was made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    vm: usize,
    epoch: u64,
}

struct Cpu {
    vttbr: Cell<Option<(Vmid, usize)>>,
    tlb: RefCell<HashMap<Vmid, Vec<Entry>>>,
}

struct Vm {
    cell: VmidCell,
    /// Raised by each change of its stage 2.
    epoch: Cell<u64>,
    first_vmid: Cell<Option<Vmid>>,
}

/// The hardware's side.
struct Tlbs {
    cpus: Vec<Cpu>,
    epochs: RefCell<Vec<u64>>,
    fault: Fault,
    flushes: Cell<u64>,
}

impl Tlbs {
    fn fill(&self) {
        for cpu in &self.cpus {
            if let Some((vmid, vm)) = cpu.vttbr.get() {
                let entry = Entry { vm, epoch: self.epochs.borrow()[vm] };
                let mut tlb = cpu.tlb.borrow_mut();
                let entries = tlb.entry(vmid).or_default();
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
    }

    fn invalidate(&self, which: impl Fn(Vmid) -> bool) {
        for cpu in &self.cpus {
            cpu.tlb.borrow_mut().retain(|&vmid, _| !which(vmid));
        }
        self.fill();
    }
}

impl TlbHardware for Tlbs {
    fn invalidate_all(&self) {
        self.flushes.set(self.flushes.get() + 1);
        self.invalidate(|_| self.fault != Fault::NoInvalidateAll);
    }

    fn invalidate_vmid(&self, vmid: Vmid) {
        self.flushes.set(self.flushes.get() + 1);
        self.invalidate(|other| other == vmid && self.fault != Fault::NoInvalidateVmid);
    }

    fn now(&self) -> u64 {
        0
    }
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
    pub(super) allocator: Allocator,
    tlbs: Tlbs,
    vms: Vec<Vm>,
    pub(super) phases: Vec<Phase>,
    generations: Vec<u64>,
    schedule_ins: u64,
}

impl Machine {
    pub(super) fn new(usable: u32, cpus: usize, vms: usize, policy: Policy, fault: Fault) -> Self {
        let vm = || Vm { cell: VmidCell::new(), epoch: Cell::new(0), first_vmid: Cell::new(None) };
        let cpu = || Cpu { vttbr: Cell::new(None), tlb: RefCell::default() };
        Machine {
            allocator: Allocator::with_usable(usable, cpus, policy).unwrap(),
            tlbs: Tlbs {
                cpus: (0..cpus).map(|_| cpu()).collect(),
                epochs: RefCell::new(vec![0; vms]),
                fault,
                flushes: Cell::new(0),
            },
            vms: (0..vms).map(|_| vm()).collect(),
            phases: vec![Phase::Idle; cpus],
            generations: vec![0; cpus],
            schedule_ins: 0,
        }
    }

    fn slot(&self, cpu: usize) -> &CpuSlot {
        self.allocator.cpu(CpuId(cpu as u16))
    }

    fn active(&self, cpu: usize) -> Id {
        Id(self.slot(cpu).active.load(Relaxed))
    }

    /// The next thing that a CPU does; if it is idle, it takes up `vm`.
    pub(super) fn step(&mut self, cpu: usize, vm: usize) -> Result<(), Broken> {
        match self.phases[cpu] {
            Phase::Idle => self.schedule_in(cpu, vm)?,
            Phase::Given(vm, vmid) => {
                self.tlbs.cpus[cpu].vttbr.set(Some((vmid, vm)));
                self.phases[cpu] = Phase::Loaded(vm, vmid);
            }
            Phase::Loaded(vm, vmid) => {
                if self.tlbs.fault != Fault::NotParked {
                    self.tlbs.cpus[cpu].vttbr.set(None);
                }
                self.phases[cpu] = Phase::Parked(vm, vmid);
            }
            Phase::Parked(vm, _) => {
                self.allocator.schedule_out(self.slot(cpu), &self.vms[vm].cell);
                self.phases[cpu] = Phase::Idle;
            }
        }
        self.tlbs.fill();
        self.check()
    }

    fn schedule_in(&mut self, cpu: usize, vm: usize) -> Result<(), Broken> {
        let rolled_over = self.active(cpu) == Id::NONE;
        let before = self.allocator.counters();
        let idle: Vec<(usize, Id)> = (0..self.phases.len())
            .filter(|&cpu| self.phases[cpu] == Phase::Idle)
            .map(|cpu| (cpu, self.active(cpu)))
            .collect();
        let vmid = self.allocator.schedule_in(self.slot(cpu), &self.vms[vm].cell, &self.tlbs);
        let after = self.allocator.counters();
        self.schedule_ins += 1;
        self.phases[cpu] = Phase::Given(vm, vmid);
        if self.vms[vm].first_vmid.get().is_none() {
            self.vms[vm].first_vmid.set(Some(vmid));
        }
        require!(
            !rolled_over || after.slow == before.slow + 1,
            "9: a rollover's 0 on CPU {cpu} was passed over"
        );
        let id = self.vms[vm].cell.load();
        require!(id.is_of(self.allocator.generation()), "VM {vm} runs under an id of an old generation");
        require!(id.vmid() == vmid && self.active(cpu) == id, "VM {vm}'s id isn't what CPU {cpu} has");
        let generation = id.0 - id.index() as u64;
        require!(generation >= self.generations[cpu], "7: CPU {cpu} went back a generation");
        self.generations[cpu] = generation;
        if after.rollovers > before.rollovers {
            self.check_rollover(&idle)?;
        }
        Ok(())
    }

    /// Right after a rollover: `idle` CPUs had these active ids before it.
    fn check_rollover(&self, idle: &[(usize, Id)]) -> Result<(), Broken> {
        let pool = self.allocator.pool().lock();
        // The index that the rollover was made for is taken by now.
        let running: Vec<u16> =
            pool.reserved.iter().map(|id| id.index()).filter(|&index| index != 0).collect();
        require!(running.len() < self.allocator.usable() as usize, "6: a rollover left no free index");
        for &(cpu, active) in idle {
            // After a rollover that found it running, `clear` leaves 0 to an idle CPU, which then pins what it
            // ran until it runs something again; so does `v3-clear-zero`. `v3-no-clear` always pins.
            require!(
                active != Id::INVALID || pool.reserved[cpu] == Id::NONE,
                "12: idle CPU {cpu} reserves {:?}",
                pool.reserved[cpu]
            );
        }
        Ok(())
    }

    /// Changes a VM's stage 2 and removes what was cached of it.
    pub(super) fn unmap(&mut self, vm: usize) -> Result<(), Broken> {
        self.tlbs.epochs.borrow_mut()[vm] += 1;
        self.vms[vm].epoch.set(self.tlbs.epochs.borrow()[vm]);
        self.tlbs.fill();
        let vmid = match self.tlbs.fault {
            Fault::VmidReadEarly => self.vms[vm].first_vmid.get(),
            _ => self.vms[vm].cell.vmid(),
        };
        if let Some(vmid) = vmid {
            self.tlbs.invalidate(|other| other == vmid);
        }
        for cpu in &self.tlbs.cpus {
            for entry in cpu.tlb.borrow().values().flatten() {
                require!(
                    entry.vm != vm || entry.epoch == self.vms[vm].epoch.get(),
                    "3: an unmap left an entry of VM {vm}"
                );
            }
        }
        self.check()
    }

    /// Ends a VM if no CPU has to do with it; a new one takes its cell.
    pub(super) fn end(&mut self, vm: usize) -> Result<(), Broken> {
        let in_use = self.phases.iter().any(|&phase| match phase {
            Phase::Idle => false,
            Phase::Given(other, _) | Phase::Loaded(other, _) | Phase::Parked(other, _) => other == vm,
        });
        if in_use {
            return Ok(());
        }
        self.allocator.release(&self.vms[vm].cell, &self.tlbs);
        self.vms[vm].first_vmid.set(None);
        for (n, cpu) in self.tlbs.cpus.iter().enumerate() {
            let left = cpu.tlb.borrow().values().flatten().any(|entry| entry.vm == vm);
            require!(!left, "11: VM {vm} has ended and left an entry on CPU {n}");
        }
        self.check()
    }

    /// What holds after each step.
    fn check(&self) -> Result<(), Broken> {
        for (n, cpu) in self.tlbs.cpus.iter().enumerate() {
            for (vmid, entries) in cpu.tlb.borrow().iter() {
                let one = entries.iter().all(|entry| entry.vm == entries[0].vm);
                require!(one, "1: CPU {n} has entries of several VMs under {vmid:?}: {entries:?}");
            }
        }
        let loaded = || {
            self.phases.iter().filter_map(|&phase| match phase {
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
        let pool = self.allocator.pool().lock();
        let generation = self.allocator.generation();
        let ids: Vec<Id> = self.vms.iter().map(|vm| vm.cell.load()).collect();
        for (vm, &id) in ids.iter().enumerate() {
            if id.is_of(generation) {
                require!(id.index() != 0, "VM {vm} has index 0");
                require!(pool.is_used(id.index()), "4: VM {vm}'s index {} counts as free", id.index());
                let owners = ids.iter().filter(|&&other| other == id).count();
                require!(owners == 1, "5: {owners} VMs have the id {id:?}");
            }
        }
        for (cpu, &reserved) in pool.reserved.iter().enumerate() {
            let index = reserved.index();
            require!(
                index == 0 || pool.is_used(index),
                "4: index {index}, reserved on CPU {cpu}, counts as free"
            );
            if let Phase::Given(_, vmid) | Phase::Loaded(_, vmid) = self.phases[cpu] {
                let active = self.active(cpu);
                let held = if active == Id::NONE { reserved } else { active };
                require!(held.vmid() == vmid, "8: CPU {cpu} runs under {vmid:?} but holds {held:?}");
            }
        }
        Ok(())
    }

    /// At the end: the counters add up and say what happened.
    pub(super) fn check_counters(&self) -> Result<(), Broken> {
        let counters = self.allocator.counters();
        require!(counters.schedule_ins == self.schedule_ins, "schedule-ins: {counters:?}");
        require!(counters.fast + counters.slow == counters.schedule_ins, "fast and slow: {counters:?}");
        let slow = counters.unchanged + counters.reserved + counters.allocations;
        require!(slow == counters.slow, "the slow ones: {counters:?}");
        require!(counters.tlbi_broadcast == self.tlbs.flushes.get(), "flushes: {counters:?}");
        require!(counters.broadcast_barriers == counters.tlbi_broadcast, "barriers: {counters:?}");
        require!(counters.rollovers + counters.released == counters.tlbi_broadcast, "kinds: {counters:?}");
        require!(counters.kicks == 0 && counters.tlbi_local == 0, "of others: {counters:?}");
        Ok(())
    }
}
