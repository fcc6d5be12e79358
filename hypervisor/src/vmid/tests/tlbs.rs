//! Software TLBs as eager as the architecture allows, for the machine of the tests, and what may be got wrong around them.

use crate::ids::{CpuId, Vmid};
use crate::vmid::{Allocator, CpuSlot, TlbHardware};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// What may be got wrong around the allocator, so that the checks can be seen to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    None,
    /// A rollover doesn't flush.
    NoInvalidateAll,
    /// A VM's end, or a VMID's being taken away, doesn't flush on all CPUs.
    NoInvalidateVmid,
    /// A CPU doesn't do the flush that it was left to do, of all VMIDs or of one.
    NoInvalidateHere,
    /// The VMID for an unmap's TLBI is read before the table is changed, at the VM's first schedule-in.
    VmidReadEarly,
    /// Schedule-out with VTTBR still loaded.
    NotParked,
}

/// What a CPU is doing about a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    /// Called out of the VM's guest, and about to enter it anew.
    CalledOut(usize),
    /// Scheduled in; VTTBR is still parked.
    Given(usize, Vmid),
    /// In the guest, or in an exit that goes back to it.
    Loaded(usize, Vmid),
    /// VTTBR is parked again; not yet scheduled out.
    Parked(usize, Vmid),
}

/// An entry: whose it is, and which of the VM's tables it was made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) vm: usize,
    pub(super) epoch: u64,
}

pub(super) struct Cpu {
    pub(super) vttbr: Cell<Option<(Vmid, usize)>>,
    pub(super) tlb: RefCell<HashMap<Vmid, Vec<Entry>>>,
}

/// The hardware's side, with the allocator, as a kick makes another CPU use that.
pub(super) struct Tlbs {
    pub(super) allocator: Allocator,
    pub(super) cpus: Vec<Cpu>,
    /// The CPU that executes.
    pub(super) here: Cell<usize>,
    pub(super) phases: RefCell<Vec<Phase>>,
    pub(super) epochs: RefCell<Vec<u64>>,
    pub(super) fault: Fault,
    pub(super) broadcasts: Cell<u64>,
    pub(super) barriers: Cell<u64>,
    pub(super) locals: Cell<u64>,
    pub(super) kicks: Cell<u64>,
    pub(super) waits: Cell<u64>,
}

impl Tlbs {
    pub(super) fn fill(&self) {
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

    pub(super) fn invalidate(&self, cpus: impl Fn(usize) -> bool, which: impl Fn(Vmid) -> bool) {
        for (_, cpu) in self.cpus.iter().enumerate().filter(|&(n, _)| cpus(n)) {
            cpu.tlb.borrow_mut().retain(|&vmid, _| !which(vmid));
        }
        self.fill();
    }

    pub(super) fn slot(&self, cpu: usize) -> &CpuSlot {
        self.allocator.cpu(CpuId(cpu as u16))
    }

    pub(super) fn count(counter: &Cell<u64>, n: usize) {
        counter.set(counter.get() + n as u64);
    }
}

impl TlbHardware for Tlbs {
    fn invalidate_all(&self) {
        Self::count(&self.broadcasts, 1);
        Self::count(&self.barriers, 1);
        self.invalidate(|_| true, |_| self.fault != Fault::NoInvalidateAll);
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        Self::count(&self.broadcasts, vmids.len());
        Self::count(&self.barriers, 1);
        self.invalidate(|_| true, |vmid| vmids.contains(&vmid) && self.fault != Fault::NoInvalidateVmid);
    }

    fn invalidate_all_here(&self) {
        Self::count(&self.locals, 1);
        self.invalidate(|cpu| cpu == self.here.get(), |_| self.fault != Fault::NoInvalidateHere);
    }

    fn invalidate_vmid_here(&self, vmid: Vmid) {
        Self::count(&self.locals, 1);
        self.invalidate(
            |cpu| cpu == self.here.get(),
            |other| other == vmid && self.fault != Fault::NoInvalidateHere,
        );
    }

    fn publish_id(&self) {}

    /// The other CPU is out of its guest at once.
    fn kick(&self, cpu: CpuId) {
        Self::count(&self.kicks, 1);
        let cpu = cpu.index();
        let phase = self.phases.borrow()[cpu];
        if let Phase::Given(vm, _) | Phase::Loaded(vm, _) | Phase::Parked(vm, _) = phase {
            if self.fault != Fault::NotParked {
                self.cpus[cpu].vttbr.set(None);
            }
            self.allocator.schedule_out(self.slot(cpu));
            self.phases.borrow_mut()[cpu] = match phase {
                Phase::Parked(..) => Phase::Idle,
                _ => Phase::CalledOut(vm),
            };
        }
    }

    /// Nobody else runs meanwhile: a second turn would be one too many.
    fn wait(&self) {
        Self::count(&self.waits, 1);
        assert!(self.waits.get() < 2, "13: waits for a CPU that never comes");
    }

    fn now(&self) -> u64 {
        0
    }
}
