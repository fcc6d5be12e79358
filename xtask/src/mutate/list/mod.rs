//! The mutations: what may be got wrong in the code around VMIDs, and who must notice.

mod generations;
mod machine;
mod reclaim;

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
const ALLOCATOR_TESTS: Catcher = Catcher::Unit("vmid::");

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    [generations::ALL, reclaim::ALL, machine::ALL].into_iter().flatten()
}
