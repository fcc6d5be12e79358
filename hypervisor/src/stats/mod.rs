//! Counters, clocks, histograms, the report.
//!
//! Every exit is counted once, in the block of its vCPU and in the block of the CPU that it happened on, with
//! the time it took: [`record_exit`]. What each counter means, and what adds up to what, is in `docs/counters.md`.
//!
//! - [`Counter`]: one writer, many readers, no read-modify-write;
//! - [`Reason`]: why a guest came to EL2;
//! - [`ExitStats`]: for each reason count, time, maximum and histogram;
//! - [`VcpuStats`], [`CpuStats`]: an [`ExitStats`] and where the time went;
//! - [`TlbStats`]: what a CPU does to guests' translations;
//! - [`ExitSnapshot`], [`VcpuTotals`], [`CpuTotals`]: what a reader copies out of them, and may add up;
//! - [`report`]: the JSON lines that `xtask` and the tests read;
//! - [`query`]: one counter by number, for the hypercall.
//!
//! Time is in ticks of the system counter (CNTVCT/CNTPCT, Arm ARM D12.1) until it is printed; [`TickRate`] converts.

#[cfg(any(target_os = "none", test))]
pub mod collect;
mod counter;
mod exits;
mod json;
pub mod query;
mod rate;
mod reason;
pub mod report;
mod times;
mod tlb;
pub mod trace_line;
pub mod vmid_line;

#[cfg(test)]
mod tests;

pub use counter::Counter;
pub use exits::{BUCKETS, Durations, DurationsSnapshot, ExitSnapshot, ExitStats};
pub use rate::TickRate;
pub use reason::Reason;
pub use times::{CpuStats, CpuTotals, VcpuState, VcpuStats, VcpuTotals, record_exit};
pub use tlb::{Invalidation, TlbStats, TlbTotals};
