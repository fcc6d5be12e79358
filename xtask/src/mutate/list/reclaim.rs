//! Mistakes in the allocator, where it takes VMIDs one by one.

use super::{ALLOCATOR_TESTS, Catcher, HOLDER, Mutation, VMID};

const TENURE: &str = "hypervisor/src/vmid/tenure.rs";

/// All of these.
pub(super) const ALL: &[Mutation] = &[
    Mutation {
        name: "admits-without-flush",
        about: "reclaim: a CPU is admitted without having flushed what is stale",
        room: HOLDER,
        from: "Stale::Vmid => hw.invalidate_vmid_here(id.vmid()),",
        to: "Stale::Vmid => {}",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("reclaim/no-local-flush"),
    },
    Mutation {
        name: "keeps-known",
        about: "reclaim: a VMID is taken away, and a CPU's entry of it stays valid",
        room: TENURE,
        from: "known.store(Id::OUT.0, Relaxed);",
        to: "",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("reclaim/keeps-known"),
    },
    Mutation {
        name: "leaves-idle-slot",
        about: "reclaim: a VMID is taken away, and an idle CPU's slot stays as it is",
        room: TENURE,
        from: "if active.index() == 0 { active.disturbed() } else { active }",
        to: "active",
        catchers: &[Catcher::Loom("taken_away")],
        model: Some("reclaim/leaves-idle"),
    },
    Mutation {
        name: "leaves-running-slot",
        about: "reclaim: the slot of a CPU that runs another VM is not written anew",
        room: TENURE,
        from: "let next = if active.index() == 0 { active.disturbed() } else { active };",
        to: "if active.index() != 0 {\n                return true;\n            }\n            let next = active.disturbed();",
        catchers: &[Catcher::Loom("taken_away")],
        model: Some("reclaim/leaves-running"),
    },
    Mutation {
        name: "reads-slot-relaxed",
        about: "reclaim: the fast path reads the slot without acquire",
        room: VMID,
        from: "let active = slot.active.load(Acquire);",
        to: "let active = slot.active.load(Relaxed);",
        catchers: &[Catcher::Loom("taken_away")],
        model: Some("reclaim/relaxed"),
    },
    Mutation {
        name: "forgets-stale",
        about: "reclaim: it is forgotten which CPUs have entries of a VMID's former owner",
        room: TENURE,
        from: "tenure.stale = tenure.stale.union(core::mem::take(&mut tenure.used));",
        to: "tenure.used = CpuSet::EMPTY;",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("reclaim/forgets-stale"),
    },
];
