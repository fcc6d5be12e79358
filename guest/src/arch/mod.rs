//! The machine: assembly, system registers, MMIO. All `unsafe` that touches hardware is here.

pub mod cpu;
pub mod exception;
pub mod features;
pub mod gic;
pub mod granule;
pub mod measure;
pub mod mmio;
pub mod mmu;
pub mod psci;
pub mod selfcheck;
pub mod shadow;
pub mod task;
pub mod tree;
pub mod uart;
pub mod user;

core::arch::global_asm!(include_str!("boot.S"));
// One text: user.S uses a macro of vectors.S.
core::arch::global_asm!(include_str!("vectors.S"), include_str!("user.S"));
