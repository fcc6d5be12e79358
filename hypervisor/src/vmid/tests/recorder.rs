//! A double of the hardware that records what it is told to do.

use crate::ids::Vmid;
use crate::vmid::TlbHardware;
use std::cell::{Cell, RefCell};

/// An operation, as [`TlbHardware`] has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    InvalidateAll,
    InvalidateVmid(u16),
}

/// Records TLB operations, and lets 10 ticks pass from each reading of the clock to the next.
#[derive(Default)]
pub(super) struct Recorder {
    ops: RefCell<Vec<Op>>,
    clock: Cell<u64>,
}

impl Recorder {
    /// What was recorded since it was last asked.
    pub(super) fn take(&self) -> Vec<Op> {
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

    fn invalidate_vmid(&self, vmid: Vmid) {
        self.ops.borrow_mut().push(Op::InvalidateVmid(vmid.0));
    }

    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 10);
        self.clock.get()
    }
}
