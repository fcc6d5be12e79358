//! The trace: a ring of timestamped events for each CPU, in one piece of memory that a tool outside can read.
//!
//! | file | |
//! |---|---|
//! | `event.rs` | what an event says, and its two words |
//! | `area.rs` | the memory: a header, a write position and a ring for each CPU; writing |
//! | `decode.rs` | reading it, from a copy of the memory |

mod area;
mod decode;
mod event;
#[cfg(test)]
mod tests;

pub use area::{Area, Layout, LayoutError, Ring};
pub use decode::{CpuTrace, DecodeError, Decoded, decode};
pub use event::{Event, Kind};
