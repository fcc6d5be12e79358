//! What is checked: each configuration of a module, and what has to come out.

use super::modules::{Module, RECLAIM, VMID};

/// What has to come out of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Every property holds.
    Holds,
    /// This property doesn't, and no other is seen to break before it.
    Breaks(&'static str),
}

/// The sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Size {
    /// What CI checks, in a minute or two
    Small,
    /// One VM more, changes of tables and ends of VMs at once, more policies with both: hours
    Large,
}

/// A configuration.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The module.
    pub module: &'static Module,
    /// What has to come out.
    pub expected: Expected,
    /// Constants that differ from the module's usual ones.
    pub set: Vec<(&'static str, &'static str)>,
    /// Constants that differ at the large size.
    pub large: Vec<(&'static str, &'static str)>,
    /// The smallest size of which it is part.
    pub from: Size,
    /// Action properties, beside the invariants, all of which are checked always.
    pub properties: Vec<&'static str>,
    /// Whether it is about what happens at last: then under fairness, without symmetry and invariants.
    pub liveness: bool,
}

impl Case {
    /// The constants at a size.
    pub fn constants(&self, size: Size) -> Vec<(String, String)> {
        let own = |name: &str| {
            let large = if size == Size::Large { self.large.as_slice() } else { &[] };
            // The last one counts.
            large.iter().chain(self.set.iter().rev()).find(|(key, _)| *key == name).map(|(_, value)| *value)
        };
        self.module
            .constants
            .iter()
            .map(|(name, usual)| ((*name).to_owned(), own(name).unwrap_or(usual).to_owned()))
            .collect()
    }

    /// The invariants that are checked.
    pub fn invariants(&self) -> &'static [&'static str] {
        if self.liveness { &[] } else { self.module.invariants }
    }

    fn with(mut self, constants: &[(&'static str, &'static str)]) -> Self {
        self.set.extend(constants);
        self
    }

    fn large(mut self, constants: &[(&'static str, &'static str)]) -> Self {
        self.large.extend(constants);
        self
    }

    fn only_large(mut self) -> Self {
        self.from = Size::Large;
        self
    }

    fn without_properties(mut self) -> Self {
        self.properties.clear();
        self
    }

    fn breaks(mut self, property: &'static str) -> Self {
        self.expected = Expected::Breaks(property);
        self
    }
}

/// Odometer's own switch and allocator, under this name.
fn case(name: &'static str, about: &'static str) -> Case {
    Case {
        name,
        about,
        module: &VMID,
        expected: Expected::Holds,
        set: Vec::new(),
        large: vec![("Vms", "{A, B, C}")],
        from: Size::Small,
        properties: vec!["GenerationsDontGoBack", "OnlyTheLockRevives"],
        liveness: false,
    }
}

/// Everything that is checked, at both sizes.
pub fn all() -> Vec<Case> {
    let mut cases = holding();
    cases.extend(switches());
    cases.extend(races());
    cases.extend(faults());
    cases.extend(reclaim());
    cases
}

/// A policy, its name and the constant.
macro_rules! policy {
    ($name:literal) => {
        ("Policy", concat!("\"", $name, "\""))
    };
}

/// What has to hold.
fn holding() -> Vec<Case> {
    let also = |mut case: Case, property| {
        case.properties.push(property);
        case
    };
    let three = [("LastGeneration", "3")];
    let edits = [("Edits", "{\"host\", \"guest\"}")];
    let ends = [("Ends", "TRUE")];
    let in_time = [("LateGeneration", "\"no\"")];
    let mut everyone = case("clear/everyone-runs", "clear: whoever wants to run gets to run (13)").with(&[
        ("VcpusPerVm", "1"),
        ("LateGeneration", "\"no\""),
        ("LateIds", "FALSE"),
        ("Walks", "\"none\""),
    ]);
    everyone.liveness = true;
    everyone.properties = vec!["EveryoneRuns"];
    vec![
        also(case("clear", "clear, the default: three generations").with(&three), "IdleReservesNothingNew"),
        case("clear/edits", "clear, and tables change").with(&edits).large(&three),
        case("clear/ends", "clear, and VMs end").with(&ends).large(&three),
        case("clear/edits-and-ends", "clear, and both").with(&edits).with(&ends).only_large(),
        case("clear/lazy", "clear, with walks as steps of their own")
            .with(&[("Walks", "\"steps\""), ("LateGeneration", "\"no\""), ("LateIds", "FALSE")])
            .only_large(),
        everyone,
        also(
            case("tri-state", "tri-state: idle CPUs reserve nothing (12)")
                .with(&three)
                .with(&[policy!("tri-state")]),
            "IdleReservesNothing",
        ),
        case("tri-state/edits", "tri-state, and tables change")
            .with(&edits)
            .with(&[policy!("tri-state")])
            .only_large(),
        case("tri-state/ends", "tri-state, and VMs end")
            .with(&ends)
            .with(&[policy!("tri-state")])
            .only_large(),
        case("global", "global, which calls all CPUs out of their guests").with(&[policy!("global")]),
        case("global/ends", "global, and VMs end").with(&ends).with(&[policy!("global")]).only_large(),
        case("v3-no-clear", "v3-no-clear").with(&[policy!("v3-no-clear")]).large(&three),
        case("v3-no-clear/ends", "v3-no-clear, and VMs end")
            .with(&ends)
            .with(&[policy!("v3-no-clear")])
            .only_large(),
        case("v3-clear-zero", "v3-clear-zero").with(&[policy!("v3-clear-zero")]).large(&three),
        case("v3-clear-zero/ends", "v3-clear-zero, and VMs end")
            .with(&ends)
            .with(&[policy!("v3-clear-zero")])
            .only_large(),
        case("merged/in-time", "merged, if a new generation were seen everywhere at once")
            .with(&in_time)
            .with(&[policy!("merged"), ("LateIds", "FALSE"), ("Vms", "{A, B, C}")])
            .large(&three),
    ]
}

/// How the world switch parks VTTBR_EL2.
fn switches() -> Vec<Case> {
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
        unparked("v3-no-clear/unparked", policy!("v3-no-clear"))
            .with(&[("Ends", "TRUE")])
            .breaks("EndedLeavesNothing"),
        case("clear/parked-late", "VTTBR_EL2 parked without an isb before schedule-out")
            .with(&[("Parking", "\"late\"")])
            .breaks("UniqueVmidPerCpu"),
    ]
}

/// What is known to go wrong in the algorithm, and policies' costs.
fn races() -> Vec<Case> {
    let idle = |name, about, policy| {
        let mut case =
            case(name, about).with(&[policy, ("LastGeneration", "3")]).breaks("IdleReservesNothing");
        case.properties.push("IdleReservesNothing");
        case
    };
    vec![
        case("merged", "merged, with a new generation seen late, though before its dsb is done")
            .with(&[
                policy!("merged"),
                ("LateGeneration", "\"until-dsb\""),
                ("LateIds", "FALSE"),
                ("Vms", "{A, B, C}"),
            ])
            .breaks("OneVmidPerVm"),
        // That a CPU goes back to an old generation says no more than that the counter does.
        case("clear/wraps", "a counter of generations that wraps")
            .with(&[("AtLast", "\"wrap\"")])
            .without_properties()
            .breaks("NoSharedId"),
        case("global/no-wait", "global doesn't wait until CPUs have left their guests")
            .with(&[policy!("global"), ("Fault", "\"no-wait\"")])
            .breaks("VttbrIsActive"),
        case("clear/forgets", "suspended animation: a rollover forgets who has not been back since the last")
            .with(&[("Fault", "\"forget-reserved\""), ("LastGeneration", "3")])
            .breaks("VttbrIsActive"),
        case("clear/exchanges", "an exchange for the compare-exchange at schedule-in")
            .with(&[("Fault", "\"exchange-at-schedule-in\"")])
            .breaks("OnlyTheLockRevives"),
        case("v3-no-clear/exchanges", "the same, and what comes of it: two VMs under one VMID")
            .with(&[
                policy!("v3-no-clear"),
                ("Fault", "\"exchange-at-schedule-in\""),
                ("LastGeneration", "3"),
                ("Vms", "{A, B, C}"),
                ("LateGeneration", "\"no\""),
                ("LateIds", "FALSE"),
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
fn faults() -> Vec<Case> {
    let edits = ("Edits", "{\"host\", \"guest\"}");
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
        fault("clear/no-end-flush", "a VM's end without its flush", "\"no-end-flush\"")
            .with(&[("Ends", "TRUE")])
            .breaks("EndedLeavesNothing"),
        fault(
            "clear/early-vmid",
            "the VMID for an unmap's TLBI read before the tables change",
            "\"vmid-before-change\"",
        )
        .with(&[edits])
        .breaks("UnmapIsComplete"),
        fault(
            "clear/live-root",
            "a TLBI for another VM under its own tables, not an empty root",
            "\"live-root-for-tlbi\"",
        )
        .with(&[edits])
        .breaks("UniqueVmidPerCpu"),
        case("clear/unpublished", "no dsb between a new VMID's store and the first walk under it")
            .with(&[edits, ("Publishes", "FALSE")])
            .breaks("UnmapIsComplete"),
    ]
}

/// The policy `reclaim`.
fn reclaim() -> Vec<Case> {
    let case = |name, about| {
        let mut case = case(name, about);
        case.module = &RECLAIM;
        case.properties = vec!["OnlyTheLockRevives"];
        case.large = vec![("Vms", "{A, B, C}"), ("LastTenure", "3")];
        case
    };
    let edits = ("Edits", "{\"host\", \"guest\"}");
    let ends = ("Ends", "TRUE");
    let broadcast = ("Flush", "\"broadcast\"");
    let fault = |name, about, fault, breaks| case(name, about).with(&[("Fault", fault)]).breaks(breaks);
    vec![
        case("reclaim", "reclaim, each CPU flushes for itself").with(&[("LastTenure", "3")]),
        case("reclaim/broadcast", "reclaim, with a targeted broadcast for each VMID that is taken away")
            .with(&[broadcast]),
        case("reclaim/edits", "reclaim, and tables change").with(&[edits]),
        case("reclaim/ends", "reclaim, and VMs end").with(&[ends]),
        case("reclaim/broadcast-edits-and-ends", "reclaim with broadcasts, and both")
            .with(&[broadcast, edits, ends])
            .only_large(),
        case("reclaim/unparked", "walks at EL2 under a VTTBR_EL2 that nobody parks")
            .with(&[("Parking", "\"never\""), ("LastTenure", "3")])
            .breaks("UniqueVmidPerCpu"),
        case("reclaim/unpublished", "no dsb between a new VMID's store and the first walk under it")
            .with(&[edits, ("Publishes", "FALSE")])
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
        .with(&[("LastTenure", "3")]),
        fault(
            "reclaim/no-local-flush",
            "a CPU enters without having flushed what is stale",
            "\"no-local-flush\"",
            "UniqueVmidPerCpu",
        )
        .with(&[("LastTenure", "3")]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_constants_exist() {
        let cases = all();
        let mut names: Vec<&str> = cases.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            for (constant, _) in case.set.iter().chain(&case.large) {
                let known = case.module.constants.iter().any(|(name, _)| name == constant);
                assert!(known, "{}: {} has no constant {constant}", case.name, case.module.name);
            }
            let defined =
                |name: &str| case.module.text.lines().any(|line| line.starts_with(&format!("{name} ==")));
            let expected = match case.expected {
                Expected::Breaks(property) => Some(property),
                Expected::Holds => None,
            };
            for name in case.invariants().iter().chain(&case.properties).copied().chain(expected) {
                assert!(defined(name), "{}: {} defines no {name}", case.name, case.module.name);
            }
        }
    }

    #[test]
    fn what_a_case_says_counts_over_what_is_usual() {
        let case = case("x", "").with(&[("Vms", "{A}"), ("Vms", "{A, B}")]);
        let value = |size| {
            let constants = case.constants(size);
            constants.into_iter().find(|(name, _)| name == "Vms").map(|(_, value)| value)
        };
        assert_eq!(value(Size::Small).as_deref(), Some("{A, B}"));
        assert_eq!(value(Size::Large).as_deref(), Some("{A, B, C}"));
    }
}
