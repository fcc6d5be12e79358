//! Addresses, frames, the EL2 map, stage-2 tables.
