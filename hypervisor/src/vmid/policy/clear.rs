//! `clear`, the default: a CPU that runs nothing pins nothing, and no rollover is ever missed.

use super::Rules;
use crate::vmid::id::Id;
use crate::vmid::slot::VmidCell;
use crate::vmid::sync::{AtomicU64, Relaxed};

pub(super) struct Clear;

impl Rules for Clear {
    const NAME: &'static str = "clear";

    /// The slot holds the id that schedule-in put there, or 0 if a rollover has come since. In the second case
    /// the exchange fails and the 0 stays, so that the next schedule-in takes the slow path and learns of the
    /// new generation. A plain store could lose that 0: see `merged`. The VM may have a newer id by then, but
    /// only after that rollover: the exchange fails just so.
    ///
    /// Relaxed: the exchange and the rollover's exchange hit one location, so one is before the other, and
    /// nothing else is communicated. That the guest's walks have ended before is the caller's business (VTTBR
    /// parked and an `isb`): no later store overtakes an `isb`.
    #[inline(always)]
    fn leave(active: &AtomicU64, cell: &VmidCell) {
        // The loser of the race has nothing left to do.
        let _ = active.compare_exchange(cell.load().0, Id::INVALID.0, Relaxed, Relaxed);
    }
}
