//! The policies: what a CPU's active slot holds once its vCPU is scheduled out, and how a VM gets its id.
//!
//! All of them are in one binary, and one is chosen at boot. A further one is a file here, with a type that has
//! the trait [`Rules`], and a line in `policies!`.

use super::TlbHardware;
use super::error::PolicyError;
use super::id::Id;
use super::pool::Renewal;
use super::slot::VmidCell;
use super::sync::AtomicU64;
use core::fmt;
use core::hint::cold_path;
use core::str::FromStr;

/// What makes a policy.
trait Rules {
    /// Its name in options and reports.
    const NAME: &'static str;

    /// What a CPU does to its own active slot when a vCPU of the cell's VM is scheduled out. No lock is held.
    fn leave(active: &AtomicU64, cell: &VmidCell);

    /// A new id for a VM whose id, `old`, is of an older generation or none. The lock is held.
    fn renew<H: TlbHardware>(renewal: &mut Renewal<'_, H>, old: Id) -> Id {
        renewal.by_generations(old)
    }
}

/// Declares the modules, the enumeration and the two dispatches of all policies, from a line for each.
macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident in $module:ident;)+) => {
        $(mod $module;)+

        /// Which rules the allocator follows, for as long as the machine runs.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(u8)]
        pub enum Policy {
            $($(#[$doc])* $variant,)+
        }

        impl Policy {
            /// All policies.
            pub const ALL: &'static [Policy] = &[$(Policy::$variant),+];

            /// The name in options and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Policy::$variant => $module::$variant::NAME,)+ }
            }

            #[inline(always)]
            pub(super) fn leave(self, active: &AtomicU64, cell: &VmidCell) {
                match self {
                    $(Policy::$variant => {
                        if !matches!(Policy::$variant, Policy::Clear) {
                            // So that the default is the first one that the code tests for.
                            cold_path();
                        }
                        $module::$variant::leave(active, cell)
                    })+
                }
            }

            pub(super) fn renew<H: TlbHardware>(self, renewal: &mut Renewal<'_, H>, old: Id) -> Id {
                match self { $(Policy::$variant => $module::$variant::renew(renewal, old),)+ }
            }
        }
    };
}

policies! {
    /// `clear`: schedule-out clears the active slot by a compare-exchange, never over a rollover's 0.
    #[default]
    Clear in clear;
    /// `v3-no-clear`: schedule-out leaves the active slot as it is.
    V3NoClear in v3_no_clear;
    /// `v3-clear-zero`: schedule-out stores 0, which also means "a rollover has been here".
    V3ClearZero in v3_clear_zero;
    /// `merged`: schedule-out clears the active slot by a plain store. For comparison: it has a race.
    Merged in merged;
}

impl Policy {
    /// The policy of that name.
    pub fn parse(name: &str) -> Result<Policy, PolicyError> {
        Policy::ALL.iter().copied().find(|policy| policy.name() == name).ok_or(PolicyError)
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(name: &str) -> Result<Self, PolicyError> {
        Policy::parse(name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
