//! Why an allocator can't be made, in words that say what would be right.

use super::{MAX_BITS, MIN_BITS, Policy};
use core::fmt;

/// VMIDs and CPUs that don't go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolError {
    /// A width outside [`MIN_BITS`]..=[`MAX_BITS`].
    Width {
        /// The width asked for.
        bits: u8,
    },
    /// A rollover keeps one VMID for each CPU, so there must be more VMIDs than CPUs.
    TooFew {
        /// VMIDs that may be given to VMs: 0 is not one of them.
        usable: u32,
        /// The machine's CPUs.
        cpus: usize,
    },
    /// No CPU at all.
    NoCpu,
    /// A rollover keeps one VMID for each CPU beside those that are pinned, and one must be left to give.
    TooManyPinned {
        /// VMIDs that may be given to VMs.
        usable: u32,
        /// The machine's CPUs.
        cpus: usize,
    },
    /// A policy that may forget a rollover, with a flush that each CPU must remember.
    LocalFlush,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PoolError::Width { bits } => {
                write!(f, "{bits}-bit VMIDs: the width must be from {MIN_BITS} to {MAX_BITS} bits")
            }
            PoolError::TooFew { usable, cpus } => {
                let needed = usize::BITS - (cpus + 1).leading_zeros();
                write!(
                    f,
                    "{usable} usable VMIDs are too few for {cpus} CPUs, as each CPU may keep one through a rollover: \
                     use at least {needed} bits, or at most {} CPUs",
                    usable.saturating_sub(1)
                )
            }
            PoolError::TooManyPinned { usable, cpus } => write!(
                f,
                "at most {} VMs may have a pinned VMID: of {usable} usable VMIDs each of {cpus} CPUs may keep one through a \
                 rollover, and one must be left: pin fewer, or use more bits (vmid.bits)",
                (usable as usize).saturating_sub(cpus + 1)
            ),
            PoolError::LocalFlush => f.write_str(
                "the policy merged may lose a rollover at schedule-out, and with it a local flush: \
                 use vmid.flush=broadcast, or another policy",
            ),
            PoolError::NoCpu => write!(f, "a VMID allocator needs at least one CPU"),
        }
    }
}

impl core::error::Error for PoolError {}

/// A word that names no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyError;

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such VMID policy; there are: ")?;
        for (n, policy) in Policy::ALL.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{}", policy.name())?;
        }
        Ok(())
    }
}

impl core::error::Error for PolicyError {}
