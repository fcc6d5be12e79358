//! `merged`: as Linux 5.18 has it. The store may overwrite the 0 of a rollover whose new generation this CPU
//! doesn't see yet: then the next schedule-in matches the old generation on the fast path and runs a VM under a
//! VMID that nobody reserves. Kept to be measured against `clear`, and so that the `loom` test has something
//! to find; not for guests that one cares about.

use super::Rules;
use crate::vmid::id::Id;
use crate::vmid::slot::VmidCell;
use crate::vmid::sync::{AtomicU64, Relaxed};

pub(super) struct Merged;

impl Rules for Merged {
    const NAME: &'static str = "merged";

    #[inline(always)]
    fn leave(active: &AtomicU64, _cell: &VmidCell) {
        active.store(Id::INVALID.0, Relaxed);
    }
}
