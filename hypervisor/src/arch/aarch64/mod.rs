//! The real machine: EL2 of an Armv8-A CPU, not in VHE mode (HCR_EL2.E2H = 0).

use core::arch::global_asm;

mod cache;
mod cpu;
mod gic;
mod id;
mod mmio;
mod mmu;
mod pauth;
mod smccc;
mod sysreg;
mod timer;
mod tlb;
mod trace;
mod world;

pub use cache::*;
pub use cpu::*;
pub use gic::*;
pub use id::*;
pub use mmio::*;
pub use mmu::*;
pub use pauth::*;
pub use smccc::*;
pub(crate) use sysreg::{read_sysreg, write_sysreg};
pub use timer::*;
pub use tlb::*;
pub use trace::*;
pub use world::*;

global_asm!(include_str!("head.s"), EL2_MAIR = const crate::memory::el2_map::MAIR);
global_asm!(include_str!("vectors.s"));
global_asm!(include_str!("fp.s"));
