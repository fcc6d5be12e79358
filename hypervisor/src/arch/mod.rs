//! The only home of assembly and system registers.
//!
//! On the target this is `aarch64`; the layout of what its assembly reads ([`context`]) is compiled, and asserted, on the
//! host too. Logic elsewhere reaches hardware through the traits that its own room defines and this one implements.

pub mod context;

#[cfg(target_os = "none")]
mod aarch64;
#[cfg(target_os = "none")]
pub use aarch64::*;
