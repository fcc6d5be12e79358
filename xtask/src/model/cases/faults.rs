//! What goes wrong: in policies as they are, and if one thing is done otherwise.

use super::{
    Case, EDITS, ENDS, GENERATIONS_IN_TIME, IDS_IN_TIME, LOCAL, PINNED, THREE_GENERATIONS, case, policy,
};

/// What is known to go wrong in the algorithm, and policies' costs.
pub(super) fn races() -> Vec<Case> {
    let idle = |name, about, policy| {
        case(name, about)
            .with(&[policy, THREE_GENERATIONS])
            .also("IdleReservesNothing")
            .breaks("IdleReservesNothing")
    };
    vec![
        case("merged", "merged, with a new generation seen late, though before its dsb is done")
            .with(&[
                policy!("merged"),
                ("LateGeneration", "\"until-dsb\""),
                IDS_IN_TIME,
                ("Vms", "{A, B, C}"),
            ])
            .breaks("OneVmidPerVm"),
        case("merged/local", "merged, each CPU flushes for itself: one that loses the 0 doesn't")
            .with(&[LOCAL, policy!("merged"), GENERATIONS_IN_TIME, IDS_IN_TIME, ("Vms", "{A, B, C}")])
            .breaks("UniqueVmidPerCpu"),
        // That a CPU goes back to an old generation says no more than that the counter does.
        case("clear/wraps", "a counter of generations that wraps")
            .with(&[("AtLast", "\"wrap\"")])
            .without_properties()
            .breaks("NoSharedId"),
        case("global/no-wait", "global doesn't wait until CPUs have left their guests")
            .with(&[policy!("global"), ("Fault", "\"no-wait\"")])
            .breaks("VttbrIsActive"),
        case("clear/forgets", "suspended animation: a rollover forgets who has not been back since the last")
            .with(&[("Fault", "\"forget-reserved\""), THREE_GENERATIONS])
            .breaks("VttbrIsActive"),
        case(
            "v3-no-clear/renews-one",
            "a renewed id goes into one reserved slot, not into all that hold the old one",
        )
        .with(&[
            policy!("v3-no-clear"),
            ("Fault", "\"one-reserved-slot\""),
            THREE_GENERATIONS,
            GENERATIONS_IN_TIME,
            IDS_IN_TIME,
            ("Vms", "{A, B, C}"),
            ("Vmids", "{v1, v2, v3, v4}"),
        ])
        .breaks("OneVmidPerVm")
        .only_large(),
        case("clear/exchanges", "an exchange for the compare-exchange at schedule-in")
            .with(&[("Fault", "\"exchange-at-schedule-in\"")])
            .breaks("OnlyTheLockRevives"),
        case("v3-no-clear/exchanges", "the same, and what comes of it: two VMs under one VMID")
            .with(&[
                policy!("v3-no-clear"),
                ("Fault", "\"exchange-at-schedule-in\""),
                THREE_GENERATIONS,
                ("Vms", "{A, B, C}"),
                GENERATIONS_IN_TIME,
                IDS_IN_TIME,
            ])
            .without_properties()
            .breaks("OneVmidPerVm")
            .only_large(),
        idle("v3-no-clear/pins", "an idle CPU keeps a VMID (what v3-no-clear costs)", policy!("v3-no-clear")),
        idle("v3-clear-zero/pins", "an idle CPU keeps a VMID (v3-clear-zero)", policy!("v3-clear-zero")),
        idle(
            "clear/pins",
            "a CPU caught in a rollover and idle at the next keeps a VMID (clear)",
            policy!("clear"),
        ),
    ]
}

/// What may be got wrong around the algorithm.
pub(super) fn faults() -> Vec<Case> {
    let fault = |name, about, fault| case(name, about).with(&[("Fault", fault)]);
    vec![
        fault(
            "clear/flush-first",
            "a rollover flushes before it exchanges the slots (no dsb between)",
            "\"flush-before-exchange\"",
        )
        .breaks("UniqueVmidPerCpu"),
        fault("clear/no-flush", "a rollover without its flush", "\"no-rollover-flush\"")
            .breaks("UniqueVmidPerCpu"),
        fault(
            "clear/no-local-flush",
            "flush=local: a CPU enters without having flushed",
            "\"no-local-flush\"",
        )
        .with(&[LOCAL])
        .breaks("UniqueVmidPerCpu"),
        fault(
            "clear/marks-itself",
            "flush=local: a rollover marks the CPU that does it, not all",
            "\"marks-itself\"",
        )
        .with(&[LOCAL])
        .breaks("UniqueVmidPerCpu"),
        fault("clear/frees-pinned", "a rollover clears a pinned VMID's bit", "\"frees-pinned\"")
            .with(&PINNED)
            .breaks("PinnedIsNobodyElses"),
        fault(
            "clear/renews-pinned",
            "after a rollover a pinned VM gets a VMID like any other",
            "\"renews-pinned\"",
        )
        .with(&PINNED)
        .also("PinnedIdsDontChange")
        .breaks("PinnedIdsDontChange"),
        fault("clear/no-end-flush", "a VM's end without its flush", "\"no-end-flush\"")
            .with(&[ENDS])
            .breaks("EndedLeavesNothing"),
        fault(
            "clear/early-vmid",
            "the VMID for an unmap's TLBI read before the tables change",
            "\"vmid-before-change\"",
        )
        .with(&[EDITS])
        .breaks("UnmapIsComplete"),
        fault(
            "clear/live-root",
            "a TLBI for another VM under its own tables, not an empty root",
            "\"live-root-for-tlbi\"",
        )
        .with(&[EDITS])
        .breaks("UniqueVmidPerCpu"),
        case("clear/unpublished", "no dsb between a new VMID's store and the first walk under it")
            .with(&[EDITS, ("Publishes", "FALSE")])
            .breaks("UnmapIsComplete"),
    ]
}
