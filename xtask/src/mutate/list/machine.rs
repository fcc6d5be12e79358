//! Mistakes around the allocator: stage 2, TLBIs, the world switch, and what is counted.

use super::{Catcher, Mutation};

const STAGE2: &str = "hypervisor/src/memory/stage2/edit.rs";
const TLB: &str = "hypervisor/src/arch/aarch64/tlb.rs";
const SWITCH: &str = "hypervisor/src/scheduler/switch.rs";
const BINDING: &str = "hypervisor/src/scheduler/binding.rs";

/// All of these.
pub(super) const ALL: &[Mutation] = &[
    Mutation {
        name: "flush-before-publish",
        about: "a page is invalidated before its table's change is visible, and the VMID read as early",
        room: STAGE2,
        from: "self.tlb.publish();\n        self.tlb.invalidate_ipa(self.stage2.root, ipa);",
        to: "self.tlb.invalidate_ipa(self.stage2.root, ipa);\n        self.tlb.publish();",
        catchers: &[Catcher::Unit("memory::stage2")],
        model: Some("clear/early-vmid"),
    },
    Mutation {
        name: "replace-without-flush",
        about: "a page is replaced without a TLBI",
        room: STAGE2,
        from: "self.tlb.invalidate_ipa(self.stage2.root, ipa);\n",
        to: "",
        catchers: &[Catcher::Unit("memory::stage2")],
        model: None,
    },
    Mutation {
        name: "never-parks",
        about: "VTTBR_EL2 goes on holding the VM's tables and VMID when its vCPU is scheduled out",
        room: BINDING,
        from: "arch::set_vttbr(cpu.system.parked_vttbr);",
        to: "",
        catchers: &[Catcher::Image],
        model: Some("clear/unparked"),
    },
    Mutation {
        name: "parks-without-isb",
        about: "VTTBR_EL2 parked without an isb before schedule-out",
        room: BINDING,
        from: "    arch::isb();\n",
        to: "",
        catchers: &[Catcher::Image],
        model: Some("clear/parked-late"),
    },
    Mutation {
        name: "skips-sibling",
        about: "two vCPUs of one VM in turn on a CPU, without a local invalidation between them",
        room: BINDING,
        from: "arch::invalidate_sibling();",
        to: "",
        catchers: &[Catcher::Unit("scheduler::")],
        model: None,
    },
    Mutation {
        name: "no-barrier-before-flush",
        about: "a rollover's flush without the dsb ishst before it",
        room: TLB,
        from: "\"dsb ishst\", // table writes before it are seen by every walker\n",
        to: "",
        catchers: &[Catcher::Image],
        model: Some("clear/flush-first"),
    },
    Mutation {
        name: "no-barrier-after-flush",
        about: "a rollover's flush that nobody waits for",
        room: TLB,
        from: "\"dsb ish\", // complete on every CPU\n",
        to: "",
        catchers: &[Catcher::Image],
        model: Some("clear/no-flush"),
    },
    // What only shows on the target: the hardware's part is not in unit tests, and the image has all that it should have.
    Mutation {
        name: "flushes-another-vmid",
        about: "an invalidation by VMID goes out under another VMID",
        room: TLB,
        from: "u64::from(vmid.0) << 48\n",
        to: "u64::from(vmid.0 ^ 1) << 48\n",
        catchers: &[
            Catcher::System("system/rollover-reclaim-local"),
            Catcher::System("system/audit-threads"),
        ],
        model: None,
    },
    Mutation {
        name: "miscounts-vttbr",
        about: "one write of VTTBR_EL2 too few is counted",
        room: TLB,
        from: "stats.vttbr_writes.add(vmids.len() as u64 + 1);",
        to: "stats.vttbr_writes.add(vmids.len() as u64);",
        catchers: &[Catcher::System("system/audit-threads")],
        model: None,
    },
    Mutation {
        name: "exit-not-counted",
        about: "an exit after which the vCPU leaves the CPU is not counted",
        room: SWITCH,
        from: "    record_exit(&vcpu.stats, &cpu.shared.stats, reason, guest, now.wrapping_sub(start));\n",
        to: "",
        catchers: &[Catcher::System("system/audit-threads")],
        model: None,
    },
];
