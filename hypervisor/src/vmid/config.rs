//! What is chosen at boot beside the policy.

use super::Policy;
use core::fmt;

/// How VMIDs become fit for another VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flush {
    /// By an invalidation on all CPUs at once, with a barrier that waits for them.
    Broadcast,
    /// By each CPU for itself, before it next runs a guest that could meet the old entries.
    #[default]
    Local,
}

/// Which idle VM loses its VMID, where a policy takes one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Victim {
    /// The one that has not run for the longest time.
    Lru,
    /// Any.
    Random,
    /// The next one, going round, that has not run since the last time round.
    Clock,
    /// The newest one that has not come back since it got its VMID; sometimes, and if there is none, as `lru`.
    Newest,
    /// As `newest` or as `lru`, whichever has been regretted less often lately.
    #[default]
    Adaptive,
}

macro_rules! names {
    ($type:ident: $($variant:ident $name:literal),+) => {
        impl $type {
            /// All of them.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// The name in options and reports.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)+ }
            }

            /// The one of that name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.name() == name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(Flush: Broadcast "broadcast", Local "local");
names!(Victim: Lru "lru", Random "random", Clock "clock", Newest "newest", Adaptive "adaptive");

/// How the allocator works, for as long as the machine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rules.
    pub policy: Policy,
    /// How VMIDs become fit for another VM; the policy's own way if not said.
    pub flush: Option<Flush>,
    /// Which idle VM loses its VMID.
    pub victim: Victim,
    /// How many VMIDs are taken from idle VMs at a time.
    pub batch: u8,
}

/// Most VMIDs that may be taken at a time.
pub const MAX_BATCH: u8 = 64;

impl Default for Config {
    fn default() -> Self {
        Config::from(Policy::default())
    }
}

impl From<Policy> for Config {
    fn from(policy: Policy) -> Self {
        Config { policy, flush: None, victim: Victim::default(), batch: 1 }
    }
}
