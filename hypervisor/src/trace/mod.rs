//! The trace: a ring of timestamped events for each CPU, in one piece of memory that a tool outside can read.
//!
//! | file | |
//! |---|---|
//! | `event.rs` | what an event says, and its two words |
//! | `area.rs` | the memory: a header, a write position and a ring for each CPU; writing |
//! | `decode.rs` | reading it, from a copy of the memory |
//! | `tracer.rs` | with and without a trace: two instances of the code on an exit's way |
//! | `hooks.rs` | what that code drives, with a note of each event |
//!
//! `docs/trace.md` says what can be seen in it, and what it costs.

mod area;
mod decode;
mod event;
#[cfg(any(target_os = "none", test))]
mod hooks;
#[cfg(test)]
mod tests;
#[cfg(any(target_os = "none", test))]
mod tracer;

pub use area::{Area, Layout, LayoutError, Ring};
pub use decode::{CpuTrace, DecodeError, Decoded, decode};
pub use event::{Event, Flush, Kind};
#[cfg(any(target_os = "none", test))]
pub use hooks::TracedTlb;
#[cfg(any(target_os = "none", test))]
pub use tracer::{Quiet, Traced, Tracer, note_kick};
