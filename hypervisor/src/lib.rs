//! Odometer: a type-1 micro-hypervisor for arm64 that is a measuring instrument.
//!
//! The library holds all logic and builds on the host, where its tests run; the binary beside it is the
//! EL2 image. Principles, in the order in which they win over each other:
//!
//! 1. A guest takes neither the hypervisor nor another guest down. What a guest chose is checked before use.
//! 2. Whatever is handled is counted, and counters add up.
//! 3. The path of an exit is short and straight: no allocation, no lock that VMs share.
//! 4. Logic is apart from hardware: registers are touched in [`arch`] alone; everything else reaches them
//!    through small traits, and runs on the host too.
//! 5. Simple algorithms over clever ones; one concept for each file.
#![cfg_attr(not(any(test, loom)), no_std)]

extern crate alloc;

pub mod arch;
#[cfg(any(target_os = "none", test))]
pub mod boot;
pub mod bundle;
pub mod device;
pub mod exit;
pub mod ids;
pub mod memory;
pub mod platform;
pub mod scheduler;
pub mod stats;
pub mod sync;
#[cfg(any(target_os = "none", test))]
pub mod system;
pub mod trace;
pub mod vgic;
pub mod vm;
pub mod vmid;
