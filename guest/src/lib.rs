//! Odometer's guest kernel: a small SMP kernel at EL1 that makes the exits which the experiments count.
//!
//! What can be tested apart from a machine is in the first group of modules and builds on the host; `arch`,
//! `kernel` and `loads` exist on the bare machine alone. The kernel boots as an arm64 `Image` under Odometer
//! and on plain QEMU, reads everything about its machine from the device tree, runs the load that its bootargs
//! name, prints results as JSON lines behind `@guest `, and powers off.
#![cfg_attr(not(test), no_std)]

pub mod arguments;
pub mod carrier;
pub mod json;
pub mod machine;
pub mod messaging;
pub mod output;
pub mod pipes;
pub mod queue;
pub mod samples;
pub mod shadow;
pub mod stacktrace;
pub mod sync;
pub mod syscall;

#[cfg(target_os = "none")]
mod arch;
#[cfg(target_os = "none")]
pub mod kernel;
#[cfg(target_os = "none")]
mod loads;
