//! `global`: as Linux had it up to 5.14. When the VMIDs run out, all CPUs are interrupted out of their guests, nothing is
//! reserved, and every VM needs a new id.
//!
//! The lock's holder waits until each CPU that was in a guest has parked its VTTBR_EL2 and said so in its slot; only then it
//! flushes. A CPU that is called out this way goes through the slow path before it enters a guest again: the scheduler asks
//! [`crate::vmid::Allocator::is_called_out`] when a kick has arrived.

use super::Rules;
use crate::vmid::id::Id;
use crate::vmid::sync::{AtomicU64, Release};

pub(super) struct Global;

impl Rules for Global {
    const NAME: &'static str = "global";
    const CALLS_OUT: bool = true;

    /// Release: the lock's holder flushes after it has read this, and VTTBR_EL2 is parked before it.
    fn left_after_rollover(active: &AtomicU64) {
        active.store(Id::OUT.0, Release);
    }
}
