//! A vCPU as other CPUs see it: where it is, what it is asked to do, what it has cost.
//!
//! Its registers are apart, in [`Context`], which only the CPU that holds the vCPU touches. Everything here is atomic.

use crate::arch::context::Context;
use crate::ids::{CpuId, VcpuIndex};
use crate::stats::VcpuStats;
use crate::sync::moment;
use crate::vm::Vm;
use crate::vm::stolen::StolenTime;
use crate::vm::watchdog::Watch;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, Ordering};

/// What a vCPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunState {
    /// Not started, or switched off.
    Off,
    /// In a run queue, or about to be.
    Ready,
    /// In its guest or in an exit, on this CPU.
    Running(CpuId),
    /// Waits for an interrupt.
    Blocked,
}

impl RunState {
    const fn encode(self) -> u32 {
        match self {
            RunState::Off => 0,
            RunState::Ready => 1,
            RunState::Blocked => 2,
            RunState::Running(cpu) => 3 | (cpu.0 as u32) << 8,
        }
    }

    const fn decode(value: u32) -> RunState {
        match value & 0xff {
            0 => RunState::Off,
            1 => RunState::Ready,
            2 => RunState::Blocked,
            _ => RunState::Running(CpuId((value >> 8) as u16)),
        }
    }
}

/// A [`RunState`] that changes by one compare-exchange.
#[repr(transparent)]
pub struct RunStateCell(AtomicU32);

impl RunStateCell {
    const fn new() -> Self {
        RunStateCell(AtomicU32::new(RunState::Off.encode()))
    }

    /// The state. Sequentially consistent: a poster that has left its request reads it, a blocker that has set it reads the
    /// requests, and one of the two sees the other.
    #[inline(always)]
    pub fn get(&self) -> RunState {
        moment();
        RunState::decode(self.0.load(Ordering::SeqCst))
    }

    /// Sets it: only for who holds the vCPU.
    #[inline(always)]
    pub fn set(&self, state: RunState) {
        moment();
        self.0.store(state.encode(), Ordering::SeqCst);
    }

    /// Goes from `from` to `to` unless another was quicker.
    #[inline(always)]
    pub fn change(&self, from: RunState, to: RunState) -> bool {
        self.0.compare_exchange(from.encode(), to.encode(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Requests to a vCPU, looked at once in each exit.
pub mod request {
    /// Give the CPU to the next: the time slice is over, or the guest yields.
    pub const RESCHEDULE: u32 = 1;
    /// The guest waits for an interrupt.
    pub const BLOCK: u32 = 2;
    /// CPU_OFF.
    pub const OFF: u32 = 4;
    /// The VM ends or restarts.
    pub const STOP: u32 = 8;
    /// The watchdog has found its VM stuck.
    pub const STUCK: u32 = 16;
    /// Its guest's kernel has said that it has panicked and does nothing more.
    pub const PANICKED: u32 = 32;
}

/// A vCPU.
#[repr(C, align(64))]
pub struct Vcpu {
    /// What it is asked to do: bits of [`request`].
    pub requests: AtomicU32,
    /// Where it is.
    pub state: RunStateCell,
    /// Its VM.
    pub vm: &'static Vm,
    /// Its place in its VM.
    pub index: VcpuIndex,
    /// Its place in the machine's table of vCPUs.
    pub global: u32,
    /// The one CPU it may run on, if it is pinned.
    pub pin: Option<CpuId>,
    /// Its registers.
    context: AtomicPtr<Context>,
    /// CPU whose registers hold its state even though it does not run, or `NOWHERE`.
    resident: AtomicU16,
    /// CPU it ran on last, or `NOWHERE`.
    last_cpu: AtomicU16,
    /// Counts its waits, so that a stale wake-up is told from a due one.
    pub wait: AtomicU32,
    /// CPU_ON has been called and it has not run yet.
    pub on_pending: AtomicBool,
    /// Its record of stolen time.
    pub stolen: StolenTime,
    /// What the watchdog knows of it.
    pub watch: Watch,
    /// What it has cost.
    pub stats: VcpuStats,
}

const NOWHERE: u16 = u16::MAX;

impl Vcpu {
    /// A vCPU that is off.
    pub fn new(vm: &'static Vm, index: VcpuIndex, global: u32, pin: Option<CpuId>) -> Vcpu {
        Vcpu {
            requests: AtomicU32::new(0),
            state: RunStateCell::new(),
            vm,
            index,
            global,
            pin,
            context: AtomicPtr::new(core::ptr::null_mut()),
            resident: AtomicU16::new(NOWHERE),
            last_cpu: AtomicU16::new(NOWHERE),
            wait: AtomicU32::new(0),
            on_pending: AtomicBool::new(false),
            stolen: StolenTime::default(),
            watch: Watch::default(),
            stats: VcpuStats::default(),
        }
    }

    /// Gives it its registers, once, before it is ever started.
    pub fn set_context(&self, context: *mut Context) {
        self.context.store(context, Ordering::Release);
    }

    /// Its registers: to be dereferenced by the CPU that holds the vCPU alone.
    #[inline(always)]
    pub fn context(&self) -> *mut Context {
        self.context.load(Ordering::Relaxed)
    }

    /// Asks it for something; who has called must also make it look (a kick), unless it is the caller's own.
    #[inline(always)]
    pub fn ask(&self, bits: u32) {
        moment();
        self.requests.fetch_or(bits, Ordering::SeqCst);
    }

    /// CPU whose registers still hold its state. Acquire: who sees "none" also sees the registers in memory.
    #[inline(always)]
    pub fn resident(&self) -> Option<CpuId> {
        let cpu = self.resident.load(Ordering::Acquire);
        (cpu != NOWHERE).then_some(CpuId(cpu))
    }

    /// Its state is in this CPU's registers (or, with `None`, all in memory: Release, for who takes it next).
    #[inline(always)]
    pub fn set_resident(&self, cpu: Option<CpuId>) {
        self.resident.store(cpu.map_or(NOWHERE, |cpu| cpu.0), Ordering::Release);
    }

    /// CPU it ran on last.
    #[inline(always)]
    pub fn last_cpu(&self) -> Option<CpuId> {
        let cpu = self.last_cpu.load(Ordering::Relaxed);
        (cpu != NOWHERE).then_some(CpuId(cpu))
    }

    /// Notes where it runs now.
    #[inline(always)]
    pub fn set_last_cpu(&self, cpu: CpuId) {
        self.last_cpu.store(cpu.0, Ordering::Relaxed);
    }

    /// Its MPIDR_EL1: affinity 0 is its index; bit 31 is RES1.
    pub fn mpidr(&self) -> u64 {
        1 << 31 | u64::from(self.index.0)
    }
}
