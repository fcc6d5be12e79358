//! Exits: from the vectors to a handler, to the counters, and back into the guest.
//!
//! One table, indexed by the syndrome's exception class, names each handler; a handler returns the [`Reason`](crate::stats::Reason)
//! under which the exit is counted, so that none can be handled and not counted.

pub mod id_registers;
pub mod inject;
pub mod syndrome;

#[cfg(any(target_os = "none", test))]
mod abort;
#[cfg(any(target_os = "none", test))]
mod call;
#[cfg(any(target_os = "none", test))]
mod dispatch;
#[cfg(any(target_os = "none", test))]
pub mod fault;
#[cfg(any(target_os = "none", test))]
pub mod interrupt;
#[cfg(target_os = "none")]
pub mod own_fault;
#[cfg(any(target_os = "none", test))]
mod sysreg;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use dispatch::{exit_irq, exit_irq_traced, exit_sync, exit_sync_traced};
