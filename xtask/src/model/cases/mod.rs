//! What is checked: each configuration of a module, and what has to come out.

mod faults;
mod generations;
mod reclaim;
mod switches;

use super::modules::{Module, VMID};

/// A constant of a module, and its value.
pub type Constant = (&'static str, &'static str);

const THREE_GENERATIONS: Constant = ("LastGeneration", "3");
const EDITS: Constant = ("Edits", "{\"host\", \"guest\"}");
const ENDS: Constant = ("Ends", "TRUE");
const LOCAL: Constant = ("Flush", "\"local\"");
const GENERATIONS_IN_TIME: Constant = ("LateGeneration", "\"no\"");
const IDS_IN_TIME: Constant = ("LateIds", "FALSE");
/// One VM has a VMID for good. For the others there has to be one more than there are CPUs.
const PINNED: [Constant; 2] = [("Pinned", "{A}"), ("Vmids", "{v1, v2, v3, v4}")];

/// A policy with generations.
macro_rules! policy {
    ($name:literal) => {
        ("Policy", concat!("\"", $name, "\""))
    };
}
use policy;

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
    /// What CI checks, in two or three minutes
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
    pub set: Vec<Constant>,
    /// Constants that differ at the large size.
    pub large: Vec<Constant>,
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
            .constants()
            .map(|(name, usual)| ((*name).to_owned(), own(name).unwrap_or(usual).to_owned()))
            .collect()
    }

    /// The invariants that are checked.
    pub fn invariants(&self) -> Vec<&'static str> {
        if self.liveness { Vec::new() } else { self.module.invariants().collect() }
    }

    fn with(mut self, constants: &[Constant]) -> Self {
        self.set.extend(constants);
        self
    }

    fn large(mut self, constants: &[Constant]) -> Self {
        self.large.extend(constants);
        self
    }

    fn also(mut self, property: &'static str) -> Self {
        self.properties.push(property);
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
    [
        generations::holding(),
        generations::local(),
        generations::pinned(),
        switches::switches(),
        faults::races(),
        faults::faults(),
        reclaim::reclaim(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::super::modules::MACHINE;
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
                let known = case.module.constants().any(|(name, _)| name == constant);
                assert!(known, "{}: {} has no constant {constant}", case.name, case.module.name);
            }
            let lines = || MACHINE.1.lines().chain(case.module.text.lines());
            let defined = |name: &str| lines().any(|line| line.starts_with(&format!("{name} ==")));
            let expected = match case.expected {
                Expected::Breaks(property) => Some(property),
                Expected::Holds => None,
            };
            for name in case.invariants().into_iter().chain(case.properties.iter().copied()).chain(expected) {
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
