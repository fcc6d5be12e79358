//! The mutations: what may be got wrong in the code around VMIDs, and who must notice.

/// Who notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Catcher {
    /// Unit and property tests of the hypervisor whose names contain this.
    Unit(&'static str),
    /// The allocator under loom: tests whose names contain this.
    Loom(&'static str),
    /// The suite that looks at the images.
    Image,
    /// System tests whose names contain this.
    System(&'static str),
}

/// A change of the code that makes it wrong.
#[derive(Debug)]
pub struct Mutation {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is wrong then.
    pub about: &'static str,
    /// The directory or file in which the text is found, once.
    pub room: &'static str,
    /// The text.
    pub from: &'static str,
    /// What takes its place.
    pub to: &'static str,
    /// Who must notice. The first one that does is enough.
    pub catchers: &'static [Catcher],
    /// The configuration of `cargo xtask model` in which the same is done, if there is one.
    pub model: Option<&'static str>,
}

const VMID: &str = "hypervisor/src/vmid";
const HOLDER: &str = "hypervisor/src/vmid/holder.rs";
const TENURE: &str = "hypervisor/src/vmid/tenure.rs";
const STAGE2: &str = "hypervisor/src/memory/stage2/edit.rs";
const TLB: &str = "hypervisor/src/arch/aarch64/tlb.rs";
const SWITCH: &str = "hypervisor/src/scheduler/switch.rs";
const BINDING: &str = "hypervisor/src/scheduler/binding.rs";
const ALLOCATOR_TESTS: Catcher = Catcher::Unit("vmid::");

/// All of them.
pub const ALL: &[Mutation] = &[
    Mutation {
        name: "store-at-schedule-in",
        about: "a plain store for the compare-exchange of the fast path",
        room: VMID,
        from: "slot.active.compare_exchange(active, id.0, Relaxed, Relaxed).is_ok()",
        to: "{ slot.active.store(id.0, Relaxed); true }",
        catchers: &[ALLOCATOR_TESTS, Catcher::Loom("fast_path")],
        model: Some("clear/exchanges"),
    },
    Mutation {
        name: "slot-after-unlock",
        about: "the slow path stores the id into the CPU's slot after it has given the lock back",
        room: VMID,
        from: "slot.active.store(id.0, Relaxed);\n        drop(pool);",
        to: "drop(pool);\n        slot.active.store(id.0, Relaxed);",
        catchers: &[Catcher::Loom("rollover")],
        model: None,
    },
    Mutation {
        name: "skips-reserve",
        about: "a rollover doesn't mark what runs as used",
        room: VMID,
        from: "if index != 0 {\n                self.pool.take(index);\n            }",
        to: "let _ = index;",
        catchers: &[ALLOCATOR_TESTS],
        model: None,
    },
    Mutation {
        name: "renews-one-reserved",
        about: "a renewed id goes into one reserved slot, not into all that hold it",
        room: VMID,
        from: "found = true;\n",
        to: "found = true;\n                break;\n",
        catchers: &[ALLOCATOR_TESTS],
        model: None,
    },
    Mutation {
        name: "forgets-pinned",
        about: "a rollover takes a pinned VMID from its VM",
        room: HOLDER,
        from: "self.keep_reserved(old, new) || pinned {",
        to: "{ let _ = pinned; self.keep_reserved(old, new) } {",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/renews-pinned"),
    },
    Mutation {
        name: "frees-pinned",
        about: "a rollover counts pinned VMIDs as free",
        room: VMID,
        from: "self.take(self.pinned[at]);",
        to: "let _ = self.pinned[at];",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/frees-pinned"),
    },
    Mutation {
        name: "rollover-without-flush",
        about: "a rollover without its flush",
        room: VMID,
        from: "self.hw.invalidate_all();",
        to: "",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/no-flush"),
    },
    Mutation {
        name: "skips-local-flush",
        about: "flush=local: a CPU that has to flush enters a guest without",
        room: HOLDER,
        from: "Stale::All => hw.invalidate_all_here(),",
        to: "Stale::All => {}",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/no-local-flush"),
    },
    Mutation {
        name: "marks-one",
        about: "flush=local: a rollover marks one CPU, not all",
        room: HOLDER,
        from: "self.pool.pending.fill(true)",
        to: "self.pool.pending.iter_mut().take(1).for_each(|mark| *mark = true)",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/marks-itself"),
    },
    Mutation {
        name: "id-not-published",
        about: "no dsb between a new VMID's store and the first walk under it",
        room: HOLDER,
        from: "self.hw.publish_id();",
        to: "",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/unpublished"),
    },
    Mutation {
        name: "end-without-flush",
        about: "a VM's end without its flush",
        room: HOLDER,
        from: "self.hw.invalidate_vmids(&[id.vmid()]);",
        to: "",
        catchers: &[ALLOCATOR_TESTS],
        model: Some("clear/no-end-flush"),
    },
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
        name: "ended-stays-reserved",
        about: "an ended VM's id stays reserved",
        room: VMID,
        from: "if *reserved == id {\n                *reserved = Id::NONE;\n            }",
        to: "let _ = &reserved;",
        catchers: &[ALLOCATOR_TESTS],
        model: None,
    },
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
