//! The system tests.

use std::time::Duration;

use super::case::{Boots, Case, Emulator, Ends, Level};
use super::expect::{
    adds_up, all_cpus_work, all_ended, guests_are_content, hypervisor_faults, occurs, reports_again,
    runs_well, says, starts_nothing, stays_in_place, vm_failed, within,
};
use super::{audit, breadth, linux, traps, until};
use crate::qemu::capture::Limits;
use crate::scenario::Machine;

/// Files that scenarios name: kernels that do one thing, as raw arm64 code.
pub const FILES: [(&str, &[u8]); 3] = [
    // `udf #0`, and then nothing: the exception's vector is at an address that isn't there.
    ("undefined.bin", &[0x00, 0x00, 0x00, 0x00]),
    // `mov x0, #0; br x0`: a jump to where there is no memory.
    ("astray.bin", &[0x00, 0x00, 0x80, 0xd2, 0x00, 0x00, 0x1f, 0xd6]),
    // `msr daifset, #15; b .`: deaf, and without end.
    ("hung.bin", &[0xdf, 0x4f, 0x03, 0xd5, 0x00, 0x00, 0x00, 0x14]),
];

/// CPU models that must work.
const CPUS: [&str; 7] =
    ["max", "cortex-a57", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1", "a64fx"];
/// A small load with all kinds of exits.
pub const MESSAGING: &str = "load=messaging groups=1 fds=4 loops=25 runs=1";
/// Limits of a run that must refuse: it says so at once or not at all.
const SHORT: Limits = Limits { silence: Duration::from_secs(10), total: Duration::from_secs(30) };
/// Limits of a run on very many CPUs, or of Linux.
pub const LONG: Limits = Limits { silence: Duration::from_secs(180), total: Duration::from_secs(420) };

/// All of them.
pub fn all() -> Vec<Case> {
    let parts = [
        machines(),
        options(),
        refusals(),
        scheduling(),
        vmids(),
        life(),
        natives().into(),
        loads().into(),
        linux::all(),
        breadth::all(),
        traps::all(),
        audit::all(),
        vec![until::case()],
    ];
    parts.into_iter().flatten().collect()
}

/// A `[[vm]]` of our own guest.
pub fn vm(name: &str, vcpus: u32, bootargs: &str, more: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\nkernel = \"guest\"\nmemory = \"32M\"\nvcpus = {vcpus}\nbootargs = \"{bootargs}\"\n{more}\n"
    )
}

/// A scenario of a machine, options and VMs.
pub fn scenario(machine: &str, options: &str, vms: &[String]) -> String {
    format!("[machine]\n{machine}\n[options]\n{options}\n{}", vms.concat())
}

/// CPU models, numbers of CPUs, sizes of memory.
fn machines() -> Vec<Case> {
    let mut cases = Vec::new();
    for cpu in CPUS {
        let machine = format!("cpus = 2\ncpu = \"{cpu}\"");
        let checked = vm("check", 2, "load=selftest", "");
        let talk = vm("talk", 2, MESSAGING, "");
        let mut case =
            Case::scenario(format!("cpu-{cpu}"), scenario(&machine, "", &[checked, talk])).expect(runs_well);
        if cpu == "neoverse-v1" {
            case.since = (8, 1, 0);
        }
        cases.push(if matches!(cpu, "max" | "cortex-a57") { case.quick() } else { case });
    }
    for cpus in [1, 2, 4, 8] {
        let machine = format!("cpus = {cpus}");
        let vms = [vm("talk", cpus.min(8), MESSAGING, "count = 2")];
        let case = Case::scenario(format!("smp-{cpus}"), scenario(&machine, "", &vms)).expect(runs_well);
        cases.push(if cpus == 8 { case } else { case.quick() });
    }
    let vms = [vm("talk", 2, MESSAGING, "count = 4")];
    let mut many = Case::scenario("smp-128", scenario("cpus = 128", "", &vms)).expect(runs_well);
    many.limits = LONG;
    cases.push(many);
    for memory in ["512M", "1G", "16G"] {
        let machine = format!("cpus = 2\nmemory = \"{memory}\"");
        let vms = [vm("talk", 2, MESSAGING, "")];
        cases
            .push(Case::scenario(format!("memory-{memory}"), scenario(&machine, "", &vms)).expect(runs_well));
    }
    let vms = [vm("check", 2, "load=selftest", ""), vm("talk", 2, MESSAGING, "")];
    let mut oldest = Case::scenario("oldest-qemu", scenario("cpus = 2", "", &vms)).expect(runs_well);
    oldest.emulator = Emulator::Oldest;
    cases.push(oldest);
    cases
}

/// Every option at boot.
fn options() -> Vec<Case> {
    let vms = [vm("talk", 2, MESSAGING, "count = 3")];
    let run = |name: &str, options: &str| {
        Case::scenario(name, scenario("cpus = 2", options, &vms)).expect(runs_well)
    };
    vec![
        run("option-slice", "\"sched.slice_us\" = 1000").expect(within("boot", "slice_us", 1000, 1000)),
        run("option-no-histograms", "\"stats.histograms\" = \"off\""),
        run("option-seed", "\"sched.seed\" = 7"),
        run("option-period", "\"report.period_ms\" = 20").expect(reports_again),
        run("option-vmid-bits", "\"vmid.bits\" = 5").expect(within("boot", "vmid_bits", 5, 5)),
    ]
}

/// What can't work says why, and stops.
fn refusals() -> Vec<Case> {
    use Level::{El1, El2, El3};
    let machine = || Machine { cpus: 2, ..Machine::default() };
    let with = |option: &str| Machine { qemu: vec!["-machine".into(), option.into()], ..machine() };
    let refuse = |name: &str, initrd: Option<&[u8]>, append: &'static str, machine: Machine, level: Level| {
        let initrd = initrd.map(<[u8]>::to_vec);
        let mut case =
            Case::new(format!("refuses-{name}"), Boots::Hypervisor { initrd, append, machine, level });
        case.limits = SHORT;
        case.expect(starts_nothing)
    };
    let stops = |mut case: Case| {
        case.ends = Ends::OrStops;
        case
    };
    let junk = [0x5a_u8; 8192];
    // A CPU's VMID stays reserved over a rollover, so that there must be more VMIDs than CPUs.
    let vms = [vm("talk", 1, MESSAGING, "")];
    // `xtask` would refuse this itself: what comes last on QEMU's command line counts.
    let few = "cpus = 32\nqemu = [\"-append\", \"vmid.bits=4\"]";
    let few_vmids = Case::scenario("refuses-few-vmids", scenario(few, "", &vms))
        .expect(starts_nothing)
        .expect(says(&["vmid", "cpu"]));
    let cut = [0xd0, 0x0d, 0xfe, 0xed, 0x00, 0x10, 0x00, 0x00];
    vec![
        refuse("no-bundle", None, "", machine(), El2).expect(says(&["bundle"])).quick(),
        refuse("junk-bundle", Some(&junk), "", machine(), El2).expect(says(&["bundle"])).quick(),
        refuse("cut-bundle", Some(&cut), "", machine(), El2).expect(says(&["bundle"])),
        refuse("option-value", Some(&junk), "vmid.bits=99", machine(), El2)
            .expect(says(&["vmid.bits", "99"]))
            .quick(),
        refuse("option-word", Some(&junk), "sched.slice_us=soon", machine(), El2)
            .expect(says(&["sched.slice_us", "soon"])),
        refuse("option-key", Some(&junk), "vmid.bitz=4", machine(), El2).expect(says(&["vmid.bitz"])),
        refuse("option-policy", Some(&junk), "vmid.policy=none", machine(), El2)
            .expect(says(&["vmid.policy", "none"])),
        few_vmids,
        stops(refuse("el1", Some(&junk), "", machine(), El1)).expect(says(&["EL1"])).quick(),
        stops(refuse("el3", Some(&junk), "", machine(), El3)).expect(says(&["EL3"])).quick(),
        stops(refuse("gicv2", Some(&junk), "", with("gic-version=2"), El2))
            .expect(says(&["GICv2", "gic-version=3"])),
        stops(refuse("129-cpus", Some(&junk), "", Machine { cpus: 129, ..machine() }, El2))
            .expect(says(&["128", "CPU"])),
    ]
}

/// Who runs where, and when.
fn scheduling() -> Vec<Case> {
    let pinned = [vm("a", 2, MESSAGING, "pin = [0, 1]"), vm("b", 2, MESSAGING, "pin = [1, 0]")];
    let free = [vm("spin", 1, "load=spin seconds=0.3", "count = 4")];
    // One that spins with interrupts masked would keep the CPU to its end without preemption; these two share it.
    let masked = [
        vm("deaf", 1, "load=spin seconds=0.5 masked=on", "pin = [0]"),
        vm("mute", 1, "load=spin seconds=0.5 masked=on", "pin = [0]"),
        vm("talk", 1, MESSAGING, "pin = [0]"),
    ];
    let idle = [vm("idle", 2, "load=idle seconds=0.5", "count = 3")];
    vec![
        Case::scenario("pinned", scenario("cpus = 2", "", &pinned)).expect(runs_well).expect(stays_in_place),
        Case::scenario("unpinned", scenario("cpus = 2", "", &free)).expect(runs_well).expect(all_cpus_work),
        Case::scenario("masked-spin", scenario("cpus = 1", "", &masked))
            .expect(runs_well)
            .expect(occurs("irq_slice", 5))
            .quick(),
        Case::scenario("idle", scenario("cpus = 2", "", &idle)).expect(runs_well).expect(occurs("wfi", 6)),
    ]
}

/// VMIDs: rollovers where they are few, none where they are many.
fn vmids() -> Vec<Case> {
    let mut cases = Vec::new();
    for (policy, flush) in [
        ("clear", "broadcast"),
        ("v3-no-clear", "broadcast"),
        ("v3-clear-zero", "broadcast"),
        ("merged", "broadcast"),
        ("tri-state", "local"),
        ("global", "broadcast"),
        ("reclaim", "local"),
        ("reclaim", "broadcast"),
    ] {
        let options = format!(
            "\"vmid.bits\" = 4\n\"vmid.policy\" = \"{policy}\"\n\"vmid.flush\" = \"{flush}\"\n\"vmid.ghost\" = \"on\"\n\"sched.slice_us\" = 1000"
        );
        let vms = [vm("talk", 2, MESSAGING, "count = 24")];
        let case = Case::scenario(format!("rollover-{policy}-{flush}"), scenario("cpus = 4", &options, &vms))
            .expect(runs_well);
        let case = match (policy, flush) {
            ("reclaim", "local") => case
                .expect(within("vmid", "reclaimed", 9, u64::MAX))
                .expect(within("vmid", "rollovers", 0, 0))
                // Each VM's end.
                .expect(within("vmid", "tlbi_broadcast", 0, 24)),
            ("reclaim", _) => case.expect(within("vmid", "reclaimed", 9, u64::MAX)).expect(within(
                "vmid",
                "rollovers",
                0,
                0,
            )),
            ("global", _) => case.expect(within("vmid", "rollovers", 2, u64::MAX)).expect(within(
                "vmid",
                "kicks",
                1,
                u64::MAX,
            )),
            _ => case.expect(within("vmid", "rollovers", 2, u64::MAX)),
        };
        cases.push(if flush == "local" || policy == "clear" { case.quick() } else { case });
    }
    // Invalidations are left out: the ghost of the TLBs must see the first VM that comes to another's VMID.
    for policy in ["clear", "reclaim"] {
        let options = format!(
            "\"vmid.bits\" = 4\n\"vmid.policy\" = \"{policy}\"\n\"vmid.ghost\" = \"on\"\n\"debug.fault\" = \"no-tlbi\"\n\"sched.slice_us\" = 1000"
        );
        let text = scenario("cpus = 4", &options, &[vm("talk", 2, MESSAGING, "count = 24")]);
        let mut case = Case::scenario(format!("ghost-{policy}"), text)
            .expect(hypervisor_faults)
            .expect(says(&["ghost TLB: VM", "under which VM", "has left entries"]));
        case.ends = Ends::OrStops;
        cases.push(if policy == "clear" { case.quick() } else { case });
    }
    // As many pinned VMIDs as there may be, and resets of a VM that has one.
    let vms = [
        vm("own", 2, MESSAGING, "count = 9\nvmid = \"pinned\""),
        vm("again", 1, "load=selftest end=reset", "vmid = \"pinned\""),
        vm("talk", 2, MESSAGING, "count = 14"),
    ];
    for policy in ["clear", "reclaim"] {
        let options = format!(
            "\"vmid.bits\" = 4\n\"vmid.policy\" = \"{policy}\"\n\"vmid.ghost\" = \"on\"\n\"sched.slice_us\" = 1000"
        );
        cases.push(
            Case::scenario(format!("pinned-vmids-{policy}"), scenario("cpus = 4", &options, &vms))
                .expect(runs_well)
                .expect(says(&["again: has VMID 10 for good"]))
                .expect(within("vmid", "slow", 100, u64::MAX)),
        );
    }
    let vms = [vm("talk", 2, MESSAGING, "count = 40")];
    cases.push(
        Case::scenario("no-rollover", scenario("cpus = 4", "", &vms))
            .expect(runs_well)
            .expect(within("vmid", "rollovers", 0, 0))
            .expect(within("vmid", "allocations", 40, 40)),
    );
    cases
}

/// VMs that end in other ways than by a plain SYSTEM_OFF, very many of them, and an end of the hypervisor itself.
fn life() -> Vec<Case> {
    let last = [vm("last", 2, "load=selftest end=vcpu1", ""), vm("talk", 2, MESSAGING, "")];
    let reset = [vm("again", 2, "load=selftest end=reset", ""), vm("talk", 2, MESSAGING, "")];
    let crash_with = |file: &str, machine: &str, options: &str| {
        let bad = format!("[[vm]]\nname = \"bad\"\nkernel = \"{file}\"\nmemory = \"16M\"\n");
        let text = scenario(machine, options, &[bad, vm("talk", 2, MESSAGING, "")]);
        Case::scenario(format!("crash-{}", file.trim_end_matches(".bin")), text)
            .expect(|outcome| all_ended(outcome, 1))
            .expect(|outcome| guests_are_content(outcome, &["bad"]))
            .expect(vm_failed("bad"))
            .expect(adds_up)
    };
    let crash = |file: &str| crash_with(file, "cpus = 2", "");
    let watchdog = "\"vm.watchdog_ms\" = 200";
    // It shares its CPU with the other: time slices and kicks must not be taken for signs of life.
    let mut shares =
        crash_with("hung.bin", "cpus = 1", watchdog).expect(says(&["watchdog", "bad", "vCPU 0"]));
    shares.name = "watchdog-shared-cpu".into();
    let mut alone = crash_with("hung.bin", "cpus = 2", watchdog).expect(says(&["watchdog", "bad", "vCPU 0"]));
    alone.name = "watchdog".into();
    // Waits much longer than the watchdog does, with its timer programmed.
    let idle = [vm("idle", 2, "load=idle seconds=1", "count = 2")];
    let mut faults = Vec::new();
    for fault in ["panic", "null", "write-code", "run-data", "overflow"] {
        let options = format!("\"debug.fault\" = \"{fault}\"");
        let text = scenario("cpus = 2", &options, &[vm("talk", 1, MESSAGING, "")]);
        let mut case = Case::scenario(format!("fault-{fault}"), text).expect(hypervisor_faults);
        case.ends = Ends::OrStops;
        case.limits = SHORT;
        faults.push(if fault == "overflow" { case.quick() } else { case });
    }
    let crowd = [vm("few", 1, "load=idle seconds=0.2", "count = 256").replace("32M", "8M")];
    let mut crowd = Case::scenario("256-vms", scenario("cpus = 4", "", &crowd)).expect(runs_well);
    crowd.limits = LONG;
    let mut cases = vec![
        Case::scenario("off-by-vcpu-1", scenario("cpus = 2", "", &last)).expect(runs_well),
        Case::scenario("system-reset", scenario("cpus = 2", "", &reset)).expect(runs_well),
        alone.quick(),
        shares,
        Case::scenario("watchdog-idle", scenario("cpus = 2", watchdog, &idle)).expect(runs_well),
        crash("undefined.bin").quick(),
        crash("astray.bin"),
        crowd,
    ];
    cases.extend(faults);
    cases
}

/// The guest's loads that the other cases don't run, small: each checks its own results.
fn loads() -> [Case; 4] {
    let calls = |name: &str| vm(name, 1, "load=syscall n=5000 pad=100", "");
    let both = [calls("one"), calls("other")];
    let calls = Case::scenario("load-syscall", scenario("cpus = 1", "", &both))
        .expect(runs_well)
        .expect(says(&["isolation", "deferred", "el1_syndrome"]))
        .quick();
    let traces = [
        vm("plain", 1, "load=stacktrace n=50 depth=64", ""),
        vm("signed", 1, "load=stacktrace n=50 depth=4 pauth=on", ""),
    ];
    let traces =
        Case::scenario("load-stacktrace", scenario("cpus = 1", "", &traces)).expect(runs_well).quick();
    let reads = [
        ("off", 1, "off"),
        ("full", 1, "full"),
        ("page", 1, "page"),
        ("threads", 3, "page size=300 threads=3"),
    ]
    .map(|(name, vcpus, more)| vm(name, vcpus, &format!("load=readv n=20 checking={more}"), ""));
    let reads = Case::scenario("load-readv", scenario("cpus = 2", "", &reads)).expect(runs_well).quick();
    let pipes = [
        ("off", 1, "off"),
        ("full", 1, "full"),
        ("page", 1, "page"),
        ("common", 1, "page poisoned=common"),
        ("both", 1, "page poisoned=common allocator=checked"),
        ("threads", 3, "page allocator=checked threads=3"),
    ]
    .map(|(name, vcpus, more)| vm(name, vcpus, &format!("load=pipes n=20 checking={more}"), ""));
    let pipes = Case::scenario("load-pipes", scenario("cpus = 2", "", &pipes)).expect(runs_well).quick();
    [calls, traces, reads, pipes]
}

/// Our own guest without a hypervisor.
fn natives() -> [Case; 3] {
    let native = |name: &str, append: &'static str| {
        let machine = Machine { cpus: 2, ..Machine::default() };
        Case::new(name, Boots::Native { append, machine })
            .expect(|outcome| guests_are_content(outcome, &[]))
            .quick()
    };
    [
        native("native-selftest", "load=selftest"),
        native("native-messaging", MESSAGING),
        native("native-syscall", "load=syscall n=5000 pad=100"),
    ]
}

#[cfg(test)]
#[path = "cases_tests.rs"]
mod tests;
