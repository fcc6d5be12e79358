//! `v3-clear-zero`: 0 already means "a rollover has been here", so every schedule-in takes the slow path.

use super::Rules;
use crate::vmid::id::Id;
use crate::vmid::slot::VmidCell;
use crate::vmid::sync::{AtomicU64, Relaxed};

pub(super) struct V3ClearZero;

impl Rules for V3ClearZero {
    const NAME: &'static str = "v3-clear-zero";

    /// A plain store is safe here: what it may overwrite is an id or 0, and 0 sends the CPU to the lock.
    #[inline(always)]
    fn leave(active: &AtomicU64, _cell: &VmidCell) {
        active.store(Id::NONE.0, Relaxed);
    }
}
