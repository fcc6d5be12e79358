//! From the loader to the first guest: the early map, the machine's description, memory, CPUs, VMs.
//!
//! `arch/aarch64/head.s` holds the image header and the first instructions; `main.rs` tells the story in order. Each step
//! gives an error that says what is wrong and what would be right; the console says it, and the machine stops.

#[cfg(target_os = "none")]
pub mod bundle;
#[cfg(target_os = "none")]
pub mod cpus;
#[cfg(target_os = "none")]
pub mod early;
#[cfg(target_os = "none")]
mod error;
#[cfg(target_os = "none")]
pub mod guests;
#[cfg(target_os = "none")]
pub mod machine;
#[cfg(target_os = "none")]
pub mod memory;
pub mod stop;
#[cfg(target_os = "none")]
pub mod system;
#[cfg(target_os = "none")]
mod trace;

#[cfg(target_os = "none")]
pub use error::BootError;
