//! The auditor: a plugin for QEMU that counts, from outside, what Odometer says of itself: entries into guests, exits, TLB
//! invalidations by kind, barriers that wait for them, writes of VTTBR_EL2. `docs/auditor.md` says what it can see.
//!
//! QEMU tells a plugin of each block of code that it translates; [`event`] recognises the instructions by their encoding, and
//! [`image`] whether they are Odometer's. Those get a callback that is called whenever one is executed, and [`state`] adds it
//! up for the CPU. [`ghost`] follows what could be in the TLBs. When QEMU ends, the sums are written to a file, which `cargo xtask audit` compares with the report.
//!
//! Nothing here knows how Odometer counts: all that it is told is where the image lies and where its vectors are.

pub mod arguments;
pub mod event;
pub mod exit;
pub mod ghost;
pub mod image;
// A test program has no QEMU around it that the functions of the API could come from.
#[cfg(not(test))]
mod plugin;
pub mod state;
pub mod tlbi;
