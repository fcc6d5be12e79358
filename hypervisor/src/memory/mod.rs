//! Memory: address types, physical frames, EL2's own map, and the stage-2 tables of VMs.
//!
//! A reader may take it in this order: [`address`] for the types. Nothing in here touches a register.

pub mod address;
