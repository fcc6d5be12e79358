//! `v3-clear-zero`: 0 already means "a rollover has been here", so every schedule-in takes the slow path.

use super::Rules;

pub(super) struct V3ClearZero;

impl Rules for V3ClearZero {
    const NAME: &'static str = "v3-clear-zero";
    const KEEPS: u64 = 0;
}
