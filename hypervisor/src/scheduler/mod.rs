//! Which vCPU runs where, and when.
//!
//! Each CPU has a run queue and round-robin time slices from EL2's own physical timer. A vCPU that waits for an interrupt is
//! in no queue; whoever makes something deliverable to it puts it back (`wake`). A CPU with nothing to do takes work from others.
//!
//! A vCPU that stops running stays *resident*: its registers are put away only when another one is loaded, so that a CPU
//! that waits for its only vCPU goes on with it at the cost of an exit. A resident vCPU is only ever queued on that CPU.
//!
//! Lost wake-ups are excluded by order: who wakes first leaves its interrupt or request, then reads the vCPU's state; who blocks
//! first sets the state, then looks for interrupts and requests. All four are sequentially consistent.

#[cfg(target_os = "none")]
mod cpu;
#[cfg(target_os = "none")]
mod housekeeping;
mod idle;
pub mod queue;
#[cfg(target_os = "none")]
mod switch;
pub mod timers;
#[cfg(target_os = "none")]
mod wake;

#[cfg(target_os = "none")]
pub use cpu::{Cpu, CpuShared};
pub use idle::IdleMask;
#[cfg(target_os = "none")]
pub use switch::{attend, run};
#[cfg(target_os = "none")]
pub use wake::{
    check_timers, follow_physical_timer, kick_arrived, notify, notify_index, notify_set, start, stop_vm,
    wake_blocked,
};
