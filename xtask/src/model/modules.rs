//! The modules of docs/model, and how they are checked where a case says nothing else.

use super::cases::Constant;

/// A module of docs/model: its text, and how it is checked where a case says nothing else.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Its text. It extends [`MACHINE`].
    pub text: &'static str,
    /// Its constants beside those of [`SURROUNDINGS`].
    own_constants: &'static [Constant],
    /// Its invariants beside those of [`EVERYWHERE`].
    own_invariants: &'static [&'static str],
}

impl Module {
    /// Its constants.
    pub fn constants(&self) -> impl Iterator<Item = &'static Constant> {
        SURROUNDINGS.iter().chain(self.own_constants)
    }

    /// Its invariants.
    pub fn invariants(&self) -> impl Iterator<Item = &'static str> {
        EVERYWHERE.iter().chain(self.own_invariants).copied()
    }
}

/// What all modules extend: CPUs, TLBs and the world switch. Its name and its text.
pub static MACHINE: (&str, &str) = ("Machine", include_str!("../../../docs/model/Machine.tla"));

/// The constants of [`MACHINE`]. The surroundings are as hostile as Odometer's world switch can meet them, or more so.
static SURROUNDINGS: [Constant; 14] = [
    ("Cpus", "{0, 1}"),
    ("Vms", "{A, B}"),
    ("Vmids", "{v1, v2, v3}"),
    ("None", "None"),
    ("Pinned", "{}"),
    ("VcpusPerVm", "2"),
    ("LateIds", "TRUE"),
    ("Publishes", "TRUE"),
    ("WalksAtEl2", "TRUE"),
    ("Parking", "\"first\""),
    ("Walks", "\"eager\""),
    ("Edits", "{}"),
    ("Ends", "FALSE"),
    ("Fault", "\"none\""),
];

/// The invariants of [`MACHINE`], and those that each module defines in its way.
static EVERYWHERE: [&str; 6] = [
    "UniqueVmidPerCpu",
    "OneVmidPerVm",
    "UnmapIsComplete",
    "VttbrIsActive",
    "PinnedIsNobodyElses",
    "EndedLeavesNothing",
];

/// The allocator with generations.
pub static VMID: Module = Module {
    name: "Vmid",
    text: include_str!("../../../docs/model/Vmid.tla"),
    own_constants: &[
        ("Crowd", "TRUE"),
        ("Policy", "\"clear\""),
        ("Flush", "\"broadcast\""),
        ("LastGeneration", "2"),
        ("AtLast", "\"stop\""),
        ("LateGeneration", "\"until-lock\""),
    ],
    own_invariants: &["IdsAreMarked", "NoSharedId", "RolloverLeavesOne"],
};

/// The allocator that takes VMIDs one by one.
pub static RECLAIM: Module = Module {
    name: "Reclaim",
    text: include_str!("../../../docs/model/Reclaim.tla"),
    own_constants: &[("LastTenure", "2"), ("Flush", "\"local\""), ("LateKnown", "TRUE")],
    own_invariants: &["TenuresAreMarked", "OneOwner", "RunningKeepsIts"],
};

/// All modules.
#[cfg(test)]
pub static MODULES: [&Module; 2] = [&VMID, &RECLAIM];
