//! `tri-state`: as `clear`, but a CPU that leaves its guest after a rollover says so, by a third value beside "idle" and
//! "rolled over". It still takes the slow path next, but if another rollover comes before that, nothing is reserved
//! for it.

use super::Rules;
use crate::vmid::id::Id;
use crate::vmid::sync::{AtomicU64, Relaxed};

pub(super) struct TriState;

impl Rules for TriState {
    const NAME: &'static str = "tri-state";

    /// A plain store: until this CPU is through the slow path, others put nothing but 0 here, which says less.
    fn left_after_rollover(active: &AtomicU64) {
        active.store(Id::OUT.0, Relaxed);
    }
}
