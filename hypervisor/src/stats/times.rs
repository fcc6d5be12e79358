//! Where the time of a vCPU and of a CPU goes.
//!
//! A vCPU is in one state at any time, a CPU runs a guest, the hypervisor, or nothing. Guest and hypervisor time come with
//! each exit ([`record_exit`]); the rest is closed at a change of state, so that no time is counted twice or left out.

use super::{Counter, ExitSnapshot, ExitStats, Reason};
use core::ops::AddAssign;

/// What a vCPU is doing, as far as time is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum VcpuState {
    /// Off: not started, or after CPU_OFF or the end of its VM.
    Off = 0,
    /// Waits for an interrupt.
    Blocked = 1,
    /// Could run, and waits for a CPU.
    Ready = 2,
    /// On a CPU: its time is counted as guest's and hypervisor's by [`record_exit`] and [`VcpuStats::add_switching`].
    Running = 3,
}

/// A vCPU's counters. 5.3 KiB.
#[derive(Debug, Default)]
pub struct VcpuStats {
    /// Exits by reason.
    pub exits: ExitStats,
    guest: Counter,
    switching: Counter,
    ready: Counter,
    blocked: Counter,
    off: Counter,
    state: Counter,
    since: Counter,
    /// How often it was put on a CPU.
    pub schedule_ins: Counter,
    /// How often that was another CPU than the last one.
    pub migrations: Counter,
    /// How often another CPU was interrupted on its behalf.
    pub kicks: Counter,
}

impl VcpuStats {
    /// Nothing counted, off since tick 0: call [`start`](Self::start) when the vCPU is made.
    pub const fn new() -> Self {
        VcpuStats {
            exits: ExitStats::new(),
            guest: Counter::new(),
            switching: Counter::new(),
            ready: Counter::new(),
            blocked: Counter::new(),
            off: Counter::new(),
            state: Counter::new(),
            since: Counter::new(),
            schedule_ins: Counter::new(),
            migrations: Counter::new(),
            kicks: Counter::new(),
        }
    }

    /// Starts its time at `now` ticks, off.
    pub fn start(&self, now: u64) {
        self.state.set(VcpuState::Off as u64);
        self.since.set(now);
    }

    /// Closes the time in the present state, and begins `to` at `now` ticks. Calls for one vCPU must not overlap:
    /// make them where its state is changed, under the same protection.
    #[inline]
    pub fn transition(&self, to: VcpuState, now: u64) {
        if let Some(counter) = self.open_counter() {
            counter.add(now.saturating_sub(self.since.get()));
        }
        self.state.set(to as u64);
        self.since.set(now);
    }

    /// Adds hypervisor time on its behalf that belongs to no exit: putting it on a CPU and taking it off.
    #[inline(always)]
    pub fn add_switching(&self, ticks: u64) {
        self.switching.add(ticks);
    }

    /// Time ready to run without a CPU, in ticks, what is open left out.
    #[inline]
    pub fn ready_ticks(&self) -> u64 {
        self.ready.get()
    }

    /// The counter of the state that is open; none while it runs.
    #[inline(always)]
    fn open_counter(&self) -> Option<&Counter> {
        match self.state.get() {
            0 => Some(&self.off),
            1 => Some(&self.blocked),
            2 => Some(&self.ready),
            _ => None,
        }
    }

    /// The counters at `now` ticks, the state that is open included; exits go into `exits` (added to what is there).
    pub fn snapshot(&self, now: u64, exits: &mut ExitSnapshot) -> VcpuTotals {
        exits.add(&self.exits);
        self.totals(now)
    }

    /// The counters at `now` ticks without the exits by reason.
    pub fn totals(&self, now: u64) -> VcpuTotals {
        let mut totals = VcpuTotals {
            guest: self.guest.get(),
            hypervisor: self.exits.total_ticks().wrapping_add(self.switching.get()),
            ready: self.ready.get(),
            blocked: self.blocked.get(),
            off: self.off.get(),
            schedule_ins: self.schedule_ins.get(),
            migrations: self.migrations.get(),
            kicks: self.kicks.get(),
        };
        let open = now.saturating_sub(self.since.get());
        match self.state.get() {
            0 => totals.off = totals.off.wrapping_add(open),
            1 => totals.blocked = totals.blocked.wrapping_add(open),
            2 => totals.ready = totals.ready.wrapping_add(open),
            _ => {}
        }
        totals
    }
}

/// A vCPU's counters, copied; those of several vCPUs may be added up. Times are in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VcpuTotals {
    /// Time in the guest.
    pub guest: u64,
    /// Time at EL2 on its behalf: all exits, and switching.
    pub hypervisor: u64,
    /// Time ready to run, without a CPU.
    pub ready: u64,
    /// Time waiting for an interrupt.
    pub blocked: u64,
    /// Time off.
    pub off: u64,
    /// See [`VcpuStats::schedule_ins`].
    pub schedule_ins: u64,
    /// See [`VcpuStats::migrations`].
    pub migrations: u64,
    /// See [`VcpuStats::kicks`].
    pub kicks: u64,
}

impl AddAssign for VcpuTotals {
    fn add_assign(&mut self, other: Self) {
        for (sum, n) in [
            (&mut self.guest, other.guest),
            (&mut self.hypervisor, other.hypervisor),
            (&mut self.ready, other.ready),
            (&mut self.blocked, other.blocked),
            (&mut self.off, other.off),
            (&mut self.schedule_ins, other.schedule_ins),
            (&mut self.migrations, other.migrations),
            (&mut self.kicks, other.kicks),
        ] {
            *sum = sum.wrapping_add(n);
        }
    }
}

/// A CPU's counters. Only that CPU writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CpuStats {
    /// Exits by reason.
    pub exits: ExitStats,
    guest: Counter,
    switching: Counter,
    idle: Counter,
    /// When the idle time that is open began; 0: it is not idle.
    idle_since: Counter,
    /// Up to when hypervisor time that belongs to no exit has been added; 0: a guest runs, or its exit is handled.
    switching_since: Counter,
    started: Counter,
    /// How often a vCPU was put on it.
    pub schedule_ins: Counter,
}

impl CpuStats {
    /// Nothing counted.
    pub const fn new() -> Self {
        CpuStats {
            exits: ExitStats::new(),
            guest: Counter::new(),
            switching: Counter::new(),
            idle: Counter::new(),
            idle_since: Counter::new(),
            switching_since: Counter::new(),
            started: Counter::new(),
            schedule_ins: Counter::new(),
        }
    }

    /// Begins its elapsed time at `now` ticks.
    pub fn start(&self, now: u64) {
        self.started.set(now);
    }

    /// Adds hypervisor time that belongs to no exit: scheduling, switching, an interrupt while idle.
    #[inline(always)]
    pub fn add_switching(&self, ticks: u64) {
        self.switching.add(ticks);
    }

    /// Hypervisor time that belongs to no exit is open from `now` ticks on: what is open when a report is made belongs into it.
    #[inline(always)]
    pub fn switching_from(&self, now: u64) {
        self.switching_since.set(now);
    }

    /// A guest is entered: nothing is open.
    #[inline(always)]
    pub fn switching_ends(&self) {
        self.switching_since.set(0);
    }

    /// The CPU has nothing to do from `now` ticks on.
    #[inline]
    pub fn idle_begin(&self, now: u64) {
        self.idle_since.set(now.max(1));
    }

    /// The CPU is no longer idle. Without an [`idle_begin`](Self::idle_begin) before it, nothing happens.
    #[inline]
    pub fn idle_end(&self, now: u64) {
        let since = self.idle_since.get();
        if since != 0 {
            self.idle.add(now.saturating_sub(since));
            self.idle_since.set(0);
        }
    }

    /// The counters at `now` ticks, idle time that is open included; exits go into `exits` (added to what is there).
    pub fn snapshot(&self, now: u64, exits: &mut ExitSnapshot) -> CpuTotals {
        exits.add(&self.exits);
        let since = self.idle_since.get();
        let open = if since == 0 { 0 } else { now.saturating_sub(since) };
        let switching = match self.switching_since.get() {
            from if since == 0 && from != 0 => now.saturating_sub(from),
            _ => 0,
        };
        CpuTotals {
            elapsed: now.saturating_sub(self.started.get()),
            guest: self.guest.get(),
            hypervisor: self.exits.total_ticks().wrapping_add(self.switching.get()).wrapping_add(switching),
            idle: self.idle.get().wrapping_add(open),
            schedule_ins: self.schedule_ins.get(),
        }
    }
}

/// A CPU's counters, copied. Times are in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuTotals {
    /// Time since [`CpuStats::start`].
    pub elapsed: u64,
    /// Time in guests.
    pub guest: u64,
    /// Time at EL2: all exits, switching, scheduling.
    pub hypervisor: u64,
    /// Time without anything to do.
    pub idle: u64,
    /// See [`CpuStats::schedule_ins`].
    pub schedule_ins: u64,
}

/// Counts one exit, for the vCPU that made it and for the CPU that it happened on: the guest ran for `guest_ticks`
/// before it, and the hypervisor took `hypervisor_ticks` from there to where the guest goes on or is taken off.
///
/// This is on the path of every exit.
#[inline(always)]
pub fn record_exit(
    vcpu: &VcpuStats,
    cpu: &CpuStats,
    reason: Reason,
    guest_ticks: u64,
    hypervisor_ticks: u64,
) {
    vcpu.guest.add(guest_ticks);
    cpu.guest.add(guest_ticks);
    vcpu.exits.record_both(&cpu.exits, reason, hypervisor_ticks);
}
