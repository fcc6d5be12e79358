//! Memory: address types, physical frames, EL2's own map, and the stage-2 tables of VMs.
//!
//! A reader may take it in this order: [`address`] for the types, [`frames`] for who owns which physical
//! memory, [`phys`] for how software touches it, [`tables`] for what both kinds of translation tables have
//! in common, then [`el2_map`] and [`stage2`]. Nothing in here touches a system register: encodings are pure
//! functions, barriers and TLB maintenance go through [`stage2::Stage2Tlb`].
//!
//! The translation tables are those of the VMSAv8-64 with a 4 KiB granule (Arm ARM DDI 0487, D8).

pub mod address;
pub mod el2_map;
#[cfg(test)]
pub mod fake;
pub mod frames;
pub mod heap;
pub mod phys;
pub mod stage2;
pub mod tables;
