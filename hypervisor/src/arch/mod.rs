//! The only home of assembly and system registers.
//!
//! On the target this is `aarch64`; the layout of what its assembly reads ([`context`]) is compiled, and asserted, on the
//! host too. Logic elsewhere reaches hardware through the traits that its own room defines and this one implements. What is
//! about a CPU as a whole (scheduling, exits, a VM's life) calls `arch` itself: in unit tests that is `fake`, which
//! simulates CPUs.

pub mod context;

#[cfg(target_os = "none")]
mod aarch64;
#[cfg(target_os = "none")]
pub use aarch64::*;

#[cfg(all(test, not(target_os = "none")))]
pub(crate) mod fake;
#[cfg(all(test, not(target_os = "none")))]
pub(crate) use fake::*;
