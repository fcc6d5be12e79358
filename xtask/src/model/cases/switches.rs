//! How the world switch parks VTTBR_EL2.

use super::{Case, ENDS, case, policy};

/// How the world switch parks VTTBR_EL2.
pub(super) fn switches() -> Vec<Case> {
    let never = ("Parking", "\"never\"");
    let unparked = |name, policy| {
        case(name, "walks at EL2 under a VTTBR_EL2 that nobody parks")
            .with(&[never, policy])
            .breaks("UniqueVmidPerCpu")
    };
    vec![
        case(
            "clear/quiet-walker",
            "clear, never parked, but the walker is quiet at EL2 (dsb nsh after each exit)",
        )
        .with(&[never, ("WalksAtEl2", "FALSE")]),
        unparked("clear/unparked", policy!("clear")),
        unparked("tri-state/unparked", policy!("tri-state")),
        unparked("global/unparked", policy!("global")),
        unparked("merged/unparked", policy!("merged")),
        unparked("v3-clear-zero/unparked", policy!("v3-clear-zero")),
        // Its slot goes on naming what VTTBR_EL2 holds, so that only a VM's end meets the walks.
        unparked("v3-no-clear/unparked", policy!("v3-no-clear")).with(&[ENDS]).breaks("EndedLeavesNothing"),
        case("clear/parked-late", "VTTBR_EL2 parked without an isb before schedule-out")
            .with(&[("Parking", "\"late\"")])
            .breaks("UniqueVmidPerCpu"),
    ]
}
