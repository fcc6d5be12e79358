//! From the loader to the first guest: the early map, the machine's description, memory, CPUs, VMs.
//!
//! `arch/aarch64/head.s` holds the image header and the first instructions; `main.rs` tells the story in order. Each step
//! gives an error that says what is wrong and what would be right; the console says it, and the machine stops.

pub mod bundle;
pub mod cpus;
pub mod early;
mod error;
pub mod guests;
pub mod machine;
pub mod memory;
pub mod stop;
pub mod system;

pub use error::BootError;
