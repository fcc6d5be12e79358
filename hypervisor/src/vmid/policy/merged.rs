//! `merged`: as Linux 5.18 has it, where schedule-out stores "idle" over whatever the slot holds. That may be the
//! 0 of a rollover whose new generation this CPU doesn't see yet: then the next schedule-in matches the old generation on
//! the fast path and runs a VM under a VMID that nobody reserves. Kept to be measured against `clear`, and so that
//! the `loom` test has something to find; not for guests that one cares about.

use super::Rules;
use crate::vmid::id::Id;
use crate::vmid::sync::{AtomicU64, Relaxed};

pub(super) struct Merged;

impl Rules for Merged {
    const NAME: &'static str = "merged";

    fn left_after_rollover(active: &AtomicU64) {
        active.store(Id::IDLE.0, Relaxed);
    }
}
