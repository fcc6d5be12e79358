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

#[cfg(any(target_os = "none", test))]
mod binding;
#[cfg(any(target_os = "none", test))]
mod cpu;
#[cfg(any(target_os = "none", test))]
mod housekeeping;
mod idle;
pub mod queue;
#[cfg(any(target_os = "none", test))]
mod switch;
#[cfg(test)]
mod tests;
pub mod timers;
#[cfg(any(target_os = "none", test))]
mod wake;

#[cfg(any(target_os = "none", test))]
pub use binding::{time_schedule_in, vmid_in};
#[cfg(any(target_os = "none", test))]
pub use cpu::{Cpu, CpuShared};
pub use idle::IdleMask;
#[cfg(any(target_os = "none", test))]
pub use switch::{attend, run};
#[cfg(any(target_os = "none", test))]
pub use wake::{
    check_timers, follow_physical_timer, kick_arrived, notify, notify_index, notify_set, start, stop_vm,
    wake_blocked,
};
