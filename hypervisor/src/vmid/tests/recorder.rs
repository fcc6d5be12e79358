//! A double of the hardware that records what it is told to do.

use crate::ids::{CpuId, Vmid};
use crate::vmid::TlbHardware;
use std::cell::{Cell, RefCell};

/// An operation, as [`TlbHardware`] has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Op {
    InvalidateAll,
    InvalidateVmids(Vec<u16>),
    InvalidateAllHere,
    InvalidateVmidHere(u16),
    PublishId,
    Kick(u16),
    Wait,
}

/// Records TLB operations, and lets 10 ticks pass from each reading of the clock to the next.
#[derive(Default)]
pub(super) struct Recorder {
    ops: RefCell<Vec<Op>>,
    clock: Cell<u64>,
}

impl Recorder {
    /// What was recorded since it was last asked, but for [`Op::PublishId`].
    pub(super) fn take(&self) -> Vec<Op> {
        self.take_all().into_iter().filter(|op| *op != Op::PublishId).collect()
    }

    /// What was recorded since it was last asked.
    pub(super) fn take_all(&self) -> Vec<Op> {
        self.ops.take()
    }

    /// How often the clock was read.
    pub(super) fn clock_readings(&self) -> u64 {
        self.clock.get() / 10
    }
}

impl TlbHardware for Recorder {
    fn invalidate_all(&self) {
        self.ops.borrow_mut().push(Op::InvalidateAll);
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        self.ops.borrow_mut().push(Op::InvalidateVmids(vmids.iter().map(|vmid| vmid.0).collect()));
    }

    fn invalidate_all_here(&self) {
        self.ops.borrow_mut().push(Op::InvalidateAllHere);
    }

    fn invalidate_vmid_here(&self, vmid: Vmid) {
        self.ops.borrow_mut().push(Op::InvalidateVmidHere(vmid.0));
    }

    fn publish_id(&self) {
        self.ops.borrow_mut().push(Op::PublishId);
    }

    fn kick(&self, cpu: CpuId) {
        self.ops.borrow_mut().push(Op::Kick(cpu.0));
    }

    fn wait(&self) {
        self.ops.borrow_mut().push(Op::Wait);
    }

    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 10);
        self.clock.get()
    }
}
