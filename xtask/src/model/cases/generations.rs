//! Policies with generations, as the code has them: what has to hold.

use super::{
    Case, EDITS, ENDS, GENERATIONS_IN_TIME, IDS_IN_TIME, LOCAL, PINNED, THREE_GENERATIONS, case, policy,
};

/// With a broadcast at each rollover.
pub(super) fn holding() -> Vec<Case> {
    let mut everyone = case("clear/everyone-runs", "clear: whoever wants to run gets to run (13)").with(&[
        ("VcpusPerVm", "1"),
        GENERATIONS_IN_TIME,
        IDS_IN_TIME,
        ("Walks", "\"none\""),
    ]);
    everyone.liveness = true;
    everyone.properties = vec!["EveryoneRuns"];
    vec![
        case("clear", "clear, the default: three generations")
            .with(&[THREE_GENERATIONS])
            .also("IdleReservesNothingNew"),
        case("clear/edits", "clear, and tables change").with(&[EDITS]).large(&[THREE_GENERATIONS]),
        case("clear/ends", "clear, and VMs end").with(&[ENDS]).large(&[THREE_GENERATIONS]),
        case("clear/edits-and-ends", "clear, and both").with(&[EDITS, ENDS]).only_large(),
        case("clear/lazy", "clear, with walks as steps of their own")
            .with(&[("Walks", "\"steps\""), GENERATIONS_IN_TIME, IDS_IN_TIME])
            .only_large(),
        everyone,
        case("tri-state", "tri-state: idle CPUs reserve nothing (12)")
            .with(&[THREE_GENERATIONS, policy!("tri-state")])
            .also("IdleReservesNothing"),
        case("tri-state/edits", "tri-state, and tables change")
            .with(&[EDITS, policy!("tri-state")])
            .only_large(),
        case("tri-state/ends", "tri-state, and VMs end").with(&[ENDS, policy!("tri-state")]).only_large(),
        case("global", "global, which calls all CPUs out of their guests").with(&[policy!("global")]),
        case("global/ends", "global, and VMs end").with(&[ENDS, policy!("global")]).only_large(),
        case("v3-no-clear", "v3-no-clear").with(&[policy!("v3-no-clear")]).large(&[THREE_GENERATIONS]),
        case("v3-no-clear/ends", "v3-no-clear, and VMs end")
            .with(&[ENDS, policy!("v3-no-clear")])
            .only_large(),
        case("v3-clear-zero", "v3-clear-zero").with(&[policy!("v3-clear-zero")]).large(&[THREE_GENERATIONS]),
        case("v3-clear-zero/ends", "v3-clear-zero, and VMs end")
            .with(&[ENDS, policy!("v3-clear-zero")])
            .only_large(),
        case("merged/in-time", "merged, if a new generation were seen everywhere at once")
            .with(&[GENERATIONS_IN_TIME, IDS_IN_TIME, policy!("merged"), ("Vms", "{A, B, C}")])
            .large(&[THREE_GENERATIONS]),
    ]
}

/// With `vmid.flush=local`: no broadcast, but each CPU flushes for itself before it enters a guest.
pub(super) fn local() -> Vec<Case> {
    let case = |name, about| case(name, about).with(&[LOCAL]);
    vec![
        case("clear/local", "clear, each CPU flushes for itself").large(&[THREE_GENERATIONS]),
        case("clear/local-edits", "the same, and tables change")
            .with(&[("Edits", "{\"host\"}")])
            .large(&[EDITS]),
        case("clear/local-ends", "the same, and VMs end").with(&[ENDS]),
        case("clear/local-edits-and-ends", "the same, and both").with(&[EDITS, ENDS]).only_large(),
        case("tri-state/local", "tri-state, each CPU flushes for itself").with(&[policy!("tri-state")]),
        case("global/local", "global, each CPU flushes for itself").with(&[policy!("global")]),
        case("v3-no-clear/local", "v3-no-clear, each CPU flushes for itself").with(&[policy!("v3-no-clear")]),
        case("v3-clear-zero/local", "v3-clear-zero, each CPU flushes for itself")
            .with(&[policy!("v3-clear-zero")]),
    ]
}

/// With a VM that has its VMID for good (10).
pub(super) fn pinned() -> Vec<Case> {
    let case = |name, about| case(name, about).with(&PINNED).also("PinnedIdsDontChange");
    vec![
        case("clear/pinned", "clear, and one VM's VMID is pinned"),
        case("clear/pinned-ends", "the same, and VMs end").with(&[ENDS]).only_large(),
        case("clear/pinned-edits", "the same, and tables change").with(&[EDITS]).only_large(),
        case("clear/pinned-local", "the same, and each CPU flushes for itself").with(&[LOCAL, ENDS]),
        case("tri-state/pinned", "tri-state, and one VM's VMID is pinned")
            .with(&[policy!("tri-state")])
            .only_large(),
        case("global/pinned", "global, and one VM's VMID is pinned").with(&[policy!("global")]),
        case("v3-no-clear/pinned", "v3-no-clear, and one VM's VMID is pinned")
            .with(&[policy!("v3-no-clear")])
            .only_large(),
        case("v3-clear-zero/pinned", "v3-clear-zero, and one VM's VMID is pinned")
            .with(&[policy!("v3-clear-zero")])
            .only_large(),
    ]
}
