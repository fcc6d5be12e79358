//! Exits: from the vectors to a handler, to the counters, and back into the guest.
//!
//! One table, indexed by the syndrome's exception class, names each handler; a handler returns the [`Reason`](crate::stats::Reason)
//! under which the exit is counted, so that none can be handled and not counted.

pub mod id_registers;
pub mod inject;
pub mod syndrome;

#[cfg(target_os = "none")]
mod abort;
#[cfg(target_os = "none")]
mod call;
#[cfg(target_os = "none")]
mod dispatch;
#[cfg(target_os = "none")]
pub mod fault;
#[cfg(target_os = "none")]
pub mod interrupt;
#[cfg(target_os = "none")]
mod sysreg;
