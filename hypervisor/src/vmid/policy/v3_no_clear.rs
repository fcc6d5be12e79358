//! `v3-no-clear`: the slot still names the VM that ran last, so a rollover reserves a VMID for each CPU,
//! whether it runs a guest or not, and VMIDs run out sooner.

use super::Rules;

pub(super) struct V3NoClear;

impl Rules for V3NoClear {
    const NAME: &'static str = "v3-no-clear";
    const KEEPS: u64 = !0;
}
