//! The policies: what a CPU's active slot holds once its vCPU is scheduled out, and how a VM gets its id.
//!
//! All of them are in one binary, and one is chosen at boot. A further one is a file here, with a type that has
//! the trait [`Rules`], and a line in `policies!`.

use super::TlbHardware;
use super::config::Flush;
use super::error::PolicyError;
use super::holder::{Holder, Stale};
use super::id::{INDEX_MASK, Id};
use super::slot::{CpuSlot, VmidCell};
use super::sync::AtomicU64;
use core::fmt;
use core::str::FromStr;

/// What makes a policy.
trait Rules {
    /// Its name in options and reports.
    const NAME: &'static str;

    /// What stays of a CPU's active slot at schedule-out, as a mask: all but the index, if not said otherwise, which means
    /// that the CPU runs nothing. No lock is held.
    const KEEPS: u64 = !INDEX_MASK;

    /// Whether a rollover interrupts all CPUs out of their guests and reserves nothing.
    const CALLS_OUT: bool = false;

    /// Whether VMIDs are taken one by one, and account is kept of each.
    const RECLAIMS: bool = false;

    /// How VMIDs become fit for another VM, if it isn't said at boot.
    const FLUSH: Flush = Flush::Broadcast;

    /// What a CPU does to its own active slot at schedule-out if that holds a rollover's 0. No lock is held.
    fn left_after_rollover(_active: &AtomicU64) {}

    /// A valid id for a VM that the CPU is about to run, and what in its TLB the VM must not meet. The lock is held.
    fn admit<H: TlbHardware>(holder: &mut Holder<'_, H>, slot: &CpuSlot, cell: &VmidCell) -> (Id, Stale) {
        holder.by_generations(slot, cell)
    }

    /// A VM that runs nowhere, and will not, gives its id back. The lock is held.
    fn release<H: TlbHardware>(holder: &mut Holder<'_, H>, cell: &VmidCell) {
        holder.end_generation(cell);
    }
}

/// Declares the modules, the enumeration and the dispatches of all policies, from a line for each.
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

            pub(super) const fn keeps(self) -> u64 {
                match self { $(Policy::$variant => $module::$variant::KEEPS,)+ }
            }

            pub(super) const fn calls_out(self) -> bool {
                match self { $(Policy::$variant => $module::$variant::CALLS_OUT,)+ }
            }

            pub(super) const fn reclaims(self) -> bool {
                match self { $(Policy::$variant => $module::$variant::RECLAIMS,)+ }
            }

            pub(super) const fn flush(self) -> Flush {
                match self { $(Policy::$variant => $module::$variant::FLUSH,)+ }
            }

            pub(super) fn left_after_rollover(self, active: &AtomicU64) {
                match self { $(Policy::$variant => $module::$variant::left_after_rollover(active),)+ }
            }

            pub(super) fn admit<H: TlbHardware>(self, holder: &mut Holder<'_, H>, slot: &CpuSlot, cell: &VmidCell) -> (Id, Stale) {
                match self { $(Policy::$variant => $module::$variant::admit(holder, slot, cell),)+ }
            }

            pub(super) fn release<H: TlbHardware>(self, holder: &mut Holder<'_, H>, cell: &VmidCell) {
                match self { $(Policy::$variant => $module::$variant::release(holder, cell),)+ }
            }
        }
    };
}

policies! {
    /// `clear`: schedule-out takes the index out of the active slot, and leaves a rollover's 0 as it is.
    #[default]
    Clear in clear;
    /// `tri-state`: as `clear`, but after a rollover schedule-out says that the CPU has left its guest.
    TriState in tri_state;
    /// `reclaim`: VMIDs are taken one by one from VMs that run nowhere.
    Reclaim in reclaim;
    /// `v3-no-clear`: schedule-out leaves the active slot as it is.
    V3NoClear in v3_no_clear;
    /// `v3-clear-zero`: schedule-out leaves 0, which also means "a rollover has been here".
    V3ClearZero in v3_clear_zero;
    /// `merged`: schedule-out says "idle" even over a rollover's 0. For comparison: it has a race.
    Merged in merged;
    /// `global`: a rollover interrupts all CPUs out of their guests, and every VM needs a new id.
    Global in global;
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
