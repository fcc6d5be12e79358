//! `clear`, the default: a CPU that runs nothing pins nothing, and no rollover is ever missed.
//!
//! Schedule-out takes the index out of the CPU's active slot, and does nothing more. If a rollover has put 0 there, the 0
//! stays, so that the next schedule-in takes the slow path and learns of the new generation. A plain store
//! could lose that 0: see `merged`.

use super::Rules;

pub(super) struct Clear;

impl Rules for Clear {
    const NAME: &'static str = "clear";
}
