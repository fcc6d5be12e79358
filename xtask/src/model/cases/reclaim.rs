//! The policy `reclaim`.

use super::super::modules::RECLAIM;
use super::{Case, EDITS, ENDS, PINNED, case};

/// The policy `reclaim`.
pub(super) fn reclaim() -> Vec<Case> {
    let three = ("LastTenure", "3");
    let case = |name, about| {
        let mut case = case(name, about);
        case.module = &RECLAIM;
        case.properties = vec!["OnlyTheLockRevives"];
        case.large = vec![("Vms", "{A, B, C}"), three];
        case
    };
    let broadcast = ("Flush", "\"broadcast\"");
    let fault = |name, about, fault, breaks| case(name, about).with(&[("Fault", fault)]).breaks(breaks);
    vec![
        case("reclaim", "reclaim, each CPU flushes for itself").with(&[three]),
        case("reclaim/broadcast", "reclaim, with a targeted broadcast for each VMID that is taken away")
            .with(&[broadcast]),
        case("reclaim/edits", "reclaim, and tables change").with(&[EDITS]),
        case("reclaim/ends", "reclaim, and VMs end").with(&[ENDS]),
        case("reclaim/broadcast-edits-and-ends", "reclaim with broadcasts, and both")
            .with(&[broadcast, EDITS, ENDS])
            .only_large(),
        case("reclaim/pinned", "reclaim, and one VM's VMID is pinned")
            .with(&PINNED)
            .also("PinnedIdsDontChange"),
        case("reclaim/pinned-ends", "the same, and VMs end")
            .with(&PINNED)
            .with(&[ENDS])
            .also("PinnedIdsDontChange")
            .only_large(),
        fault(
            "reclaim/frees-pinned",
            "the first shortage clears a pinned VMID's bit",
            "\"frees-pinned\"",
            "PinnedIsNobodyElses",
        )
        .with(&PINNED),
        case("reclaim/unparked", "walks at EL2 under a VTTBR_EL2 that nobody parks")
            .with(&[("Parking", "\"never\""), three])
            .breaks("UniqueVmidPerCpu"),
        case("reclaim/unpublished", "no dsb between a new VMID's store and the first walk under it")
            .with(&[EDITS, ("Publishes", "FALSE")])
            .breaks("UnmapIsComplete"),
        fault(
            "reclaim/keeps-known",
            "a VMID is taken away, and a CPU's entry of it stays valid",
            "\"keeps-known\"",
            "RunningKeepsIts",
        ),
        fault(
            "reclaim/leaves-idle",
            "an idle CPU's slot is left as it is",
            "\"leaves-idle-slots\"",
            "RunningKeepsIts",
        ),
        fault(
            "reclaim/leaves-running",
            "the slot of a CPU that runs another VM is not written anew",
            "\"leaves-running-slots\"",
            "RunningKeepsIts",
        )
        .with(&[("Vms", "{A, B, C}"), ("VcpusPerVm", "1")]),
        fault("reclaim/relaxed", "the slot is read without acquire", "\"relaxed-slot\"", "RunningKeepsIts"),
        fault(
            "reclaim/forgets-stale",
            "it is forgotten which CPUs have entries of a VMID's former owner",
            "\"forgets-stale\"",
            "UniqueVmidPerCpu",
        )
        .with(&[three]),
        fault(
            "reclaim/no-local-flush",
            "a CPU enters without having flushed what is stale",
            "\"no-local-flush\"",
            "UniqueVmidPerCpu",
        )
        .with(&[three]),
    ]
}
