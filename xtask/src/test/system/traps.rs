//! Faults that others have had (`docs/traps.md`), where nothing else looks for them.

use std::sync::Arc;

use super::case::Case;
use super::cases::{MESSAGING, scenario, vm};
use super::expect::{adds_up, guests_are_content, runs_well, says, starts_nothing, within};
use crate::scenario::Scenario;

/// All of them.
pub fn all() -> Vec<Case> {
    let mut cases = vec![stolen_sleeper(), resets(), differ()];
    cases.extend(banks_and_reservations());
    cases.extend(spoiled());
    cases
}

/// A vCPU is forgotten when time slice and kicks are missing.
fn stolen_sleeper() -> Case {
    // vCPU 1 waits on the CPU that vCPU 0 spins on, for vCPU 2, which comes and goes; the other VM comes and goes on the other CPU.
    let tick = [
        vm("tick", 3, "load=tick rounds=200", "pin = [0, 0]"),
        vm("other", 1, "load=tick rounds=300", "pin = [1]"),
    ];
    let text = scenario("cpus = 2", "\"sched.slice_us\" = 1000", &tick);
    Case::scenario("stolen-sleeper", text).expect(runs_well).quick()
}

/// One VM boots over and over.
fn resets() -> Case {
    // The vGIC, timers, memory and VMID of each boot are gone at the next; another VM runs on beside.
    let resets = [vm("again", 2, "load=reset n=500", ""), vm("talk", 2, MESSAGING, "")];
    Case::scenario("500-resets", scenario("cpus = 2", "", &resets)).expect(runs_well).expect(within(
        "vmid",
        "rollovers",
        0,
        0,
    ))
}

/// Memory that is in several pieces, or not for us.
fn banks_and_reservations() -> [Case; 3] {
    const RAM: u64 = 1 << 30;
    let talk = [vm("talk", 2, MESSAGING, "count = 4")];
    let backends = "-object\", \"memory-backend-ram,id=a,size=512M\", \"-object\", \"memory-backend-ram,id=b,size=512M\", \
        \"-numa\", \"node,nodeid=0,memdev=a\", \"-numa\", \"node,nodeid=1,memdev=b";
    let banks = format!("cpus = 2\nmemory = \"1G\"\nqemu = [\"{backends}\"]");
    let banks = Case::scenario("memory-banks", scenario(&banks, "", &talk)).expect(runs_well);
    // All that the image, the bundle and the device tree don't take comes from above 4 GiB: tables, heap and guests.
    let mut above = Case::scenario("memory-above-4-GiB", scenario("cpus = 2\nmemory = \"8G\"", "", &talk))
        .expect(runs_well);
    above.reserve = Some((RAM, 3 << 30));
    // Of 1 GiB all but 40 MiB are reserved: too little for these VMs, and enough for the hypervisor.
    let text = scenario("cpus = 2\nmemory = \"1G\"", "", &talk);
    let mut too_little = Case::scenario("refuses-reserved-memory", text)
        .expect(starts_nothing)
        .expect(says(&["talk-", "odometer,memory", "are free"]));
    too_little.reserve = Some((RAM, (1 << 30) - (40 << 20)));
    [banks, above, too_little]
}

/// CPUs that are configured otherwise than the first find that, say so, and are not used; the others go on without them.
fn differ() -> Case {
    let text = scenario("cpus = 2", "\"debug.fault\" = \"differ\"", &[vm("talk", 2, MESSAGING, "")]);
    Case::scenario("cpus-that-differ", text)
        .expect(says(&["CPU 1: not used", "hstr_el2 is 0x1"]))
        .expect(|outcome| guests_are_content(outcome, &[]))
        .expect(within("end", "failed", 0, 0))
        .expect(adds_up)
}

/// What the host would have refused is refused at boot, too.
fn spoiled() -> [Case; 3] {
    let refuses = |name: &str, words: &'static [&'static str], spoil: fn(&mut Scenario)| {
        let text = scenario("cpus = 2", "", &[vm("talk", 2, MESSAGING, "")]);
        let mut case = Case::scenario(name, text).expect(starts_nothing).expect(says(words));
        case.spoil = Some(spoil);
        case
    };
    [
        refuses("refuses-9-vcpus", &["talk", "odometer,vcpus = 9", "1 to 8"], |scenario| {
            scenario.vms[0].vcpus = 9
        }),
        refuses("refuses-large-ramdisk", &["talk", "doesn't fit into RAM"], |scenario| {
            scenario.vms[0].memory = 2 << 20;
            scenario.vms[0].ramdisk = Some(Arc::new(vec![0; 2 << 20]));
        }),
        refuses("refuses-cpu-that-is-not-there", &["talk", "odometer,pin", "no CPU 5"], |scenario| {
            scenario.vms[0].pin = vec![0, 5];
        }),
    ]
}
