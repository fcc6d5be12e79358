//! The modules of docs/model, and how they are checked where a case says nothing else.

/// A module of docs/model: its text, and how it is checked where a case says nothing else.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Its constants. The surroundings are as hostile as Odometer's world switch can meet them, or more so.
    pub constants: &'static [(&'static str, &'static str)],
    /// Its invariants.
    pub invariants: &'static [&'static str],
}

/// The allocator with generations.
pub static VMID: Module = Module {
    name: "Vmid",
    text: include_str!("../../../docs/model/Vmid.tla"),
    constants: &[
        ("Cpus", "{0, 1}"),
        ("Vms", "{A, B}"),
        ("Vmids", "{v1, v2, v3}"),
        ("None", "None"),
        ("Crowd", "TRUE"),
        ("VcpusPerVm", "2"),
        ("Policy", "\"clear\""),
        ("LastGeneration", "2"),
        ("AtLast", "\"stop\""),
        ("LateGeneration", "\"until-lock\""),
        ("LateIds", "TRUE"),
        ("Publishes", "TRUE"),
        ("WalksAtEl2", "TRUE"),
        ("Parking", "\"first\""),
        ("Walks", "\"eager\""),
        ("Edits", "{}"),
        ("Ends", "FALSE"),
        ("Fault", "\"none\""),
    ],
    invariants: &[
        "UniqueVmidPerCpu",
        "OneVmidPerVm",
        "UnmapIsComplete",
        "IdsAreMarked",
        "NoSharedId",
        "RolloverLeavesOne",
        "VttbrIsActive",
        "EndedLeavesNothing",
    ],
};

/// The allocator that takes VMIDs one by one.
pub static RECLAIM: Module = Module {
    name: "Reclaim",
    text: include_str!("../../../docs/model/Reclaim.tla"),
    constants: &[
        ("Cpus", "{0, 1}"),
        ("Vms", "{A, B}"),
        ("Vmids", "{v1, v2, v3}"),
        ("None", "None"),
        ("VcpusPerVm", "2"),
        ("LastTenure", "2"),
        ("Flush", "\"local\""),
        ("LateKnown", "TRUE"),
        ("LateIds", "TRUE"),
        ("Publishes", "TRUE"),
        ("WalksAtEl2", "TRUE"),
        ("Parking", "\"first\""),
        ("Edits", "{}"),
        ("Ends", "FALSE"),
        ("Fault", "\"none\""),
    ],
    invariants: &[
        "UniqueVmidPerCpu",
        "OneVmidPerVm",
        "UnmapIsComplete",
        "TenuresAreMarked",
        "OneOwner",
        "VttbrIsActive",
        "EndedLeavesNothing",
        "RunningKeepsIts",
    ],
};

/// All modules.
#[cfg(test)]
pub static MODULES: [&Module; 2] = [&VMID, &RECLAIM];
