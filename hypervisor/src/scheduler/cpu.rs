//! A physical CPU: what is its own, and what others may touch.

use super::queue::RunQueue;
use super::timers::Timers;
use crate::arch::{self, context::FaultArea};
use crate::ids::CpuId;
use crate::memory::address::Pa;
use crate::platform::options::DebugFault;
use crate::stats::{CpuStats, TlbStats};
use crate::sync::Mutex;
use crate::system::System;
use crate::trace::Ring;
use crate::vm::{Vcpu, Vm};
use crate::vmid::{Covers, CpuSlot};
use core::cell::{Cell, RefCell};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// What other CPUs may touch of a CPU.
#[repr(align(64))]
pub struct CpuShared {
    /// Which one.
    pub id: CpuId,
    /// Its affinities (MPIDR_EL1).
    pub mpidr: u64,
    /// How the kick is sent to it (ICC_SGI1R_EL1).
    pub kick_target: u64,
    /// Its ready vCPUs.
    pub queue: Mutex<RunQueue>,
    /// How many they are: changed under the lock, read without.
    pub queued: AtomicU32,
    /// It runs a vCPU without a time limit, as nobody else was waiting: who queues one must kick it.
    pub tickless: AtomicBool,
    /// It has been started.
    pub online: AtomicBool,
    /// Its counters.
    pub stats: CpuStats,
    /// What it did to guests' translations.
    pub tlb: TlbStats,
}

impl CpuShared {
    /// A CPU that has not been started.
    pub fn new(id: CpuId, mpidr: u64, kick_target: u64) -> CpuShared {
        CpuShared {
            id,
            mpidr,
            kick_target,
            queue: Mutex::new(RunQueue::default()),
            queued: AtomicU32::new(0),
            tickless: AtomicBool::new(false),
            online: AtomicBool::new(false),
            stats: CpuStats::default(),
            tlb: TlbStats::default(),
        }
    }
}

/// A CPU's own structure: TPIDR_EL2 points to it, and only that CPU uses it.
#[repr(C)]
pub struct Cpu {
    /// Registers of a fault at EL2: first, for `vectors.s`.
    pub fault: FaultArea,
    /// What others see of it.
    pub shared: &'static CpuShared,
    /// Everything else.
    pub system: &'static System,
    /// Its VMID slot.
    pub vmid: &'static CpuSlot,
    /// Top of its stack.
    pub stack: u64,
    /// Where its events go, if they are traced.
    pub ring: Option<Ring<'static>>,
    /// Its redistributor's SGI frame (GICR_ISACTIVER0 and its like).
    pub sgi_frame: Cell<Pa>,
    /// VM whose VMID this CPU has active and whose tables are in VTTBR_EL2.
    pub bound: Cell<Option<&'static Vm>>,
    /// vCPU whose registers this CPU holds.
    pub resident: Cell<Option<&'static Vcpu>>,
    /// vCPU whose FP/SIMD registers this CPU holds.
    pub fp_owner: Cell<Option<&'static Vcpu>>,
    /// The resident vCPU has used FP/SIMD since it was loaded.
    pub fp_used: Cell<bool>,
    /// When the running vCPU's slice ends.
    pub slice_end: Cell<u64>,
    /// What the EL2 timer is set to; `u64::MAX`: it is off.
    pub armed: Cell<u64>,
    /// When the emulated physical timer of the resident vCPU expires; `u64::MAX`: it is not armed.
    pub guest_timer: Cell<u64>,
    /// When this CPU prints the next periodic report; `u64::MAX`: never.
    pub next_report: Cell<u64>,
    /// When this CPU looks for stuck vCPUs next; `u64::MAX`: never.
    pub next_watch: Cell<u64>,
    /// The earlier of the two.
    pub housekeeping: Cell<u64>,
    /// WFIs in a row that found an interrupt pending.
    pub vain_waits: Cell<u32>,
    /// Count up to which this CPU's time is accounted, while no exit of a guest is.
    pub mark: Cell<u64>,
    /// vCPUs that wait here with their timer armed.
    pub timers: RefCell<Timers>,
}

const _: () = assert!(offset_of!(Cpu, fault) == 0);

impl Cpu {
    /// The structure of CPU `id` of a machine of `vcpus` vCPUs, with the tops of its stack and of its emergency stack.
    pub fn new(system: &'static System, id: CpuId, stacks: (u64, u64), vcpus: usize) -> Cpu {
        let (stack, emergency) = stacks;
        let now = arch::counter();
        // The boot CPU prints the periodic reports, if that is asked for.
        let period = system.report_ticks().filter(|_| id == CpuId::BOOT);
        let next_report = period.map_or(u64::MAX, |period| now.saturating_add(period));
        let next_watch = system.watch_period().map_or(u64::MAX, |period| now.saturating_add(period));
        Cpu {
            fault: FaultArea { stack: emergency, sp: 0, x: [0; 31] },
            shared: &system.cpus[id.index()],
            system,
            vmid: system.vmids.cpu(id),
            stack,
            ring: system.trace.as_ref().and_then(|trace| trace.ring(id.index())),
            sgi_frame: Cell::new(Pa(0)),
            bound: Cell::new(None),
            resident: Cell::new(None),
            fp_owner: Cell::new(None),
            fp_used: Cell::new(false),
            slice_end: Cell::new(0),
            armed: Cell::new(u64::MAX),
            guest_timer: Cell::new(u64::MAX),
            next_report: Cell::new(next_report),
            next_watch: Cell::new(next_watch),
            housekeeping: Cell::new(next_report.min(next_watch)),
            vain_waits: Cell::new(0),
            mark: Cell::new(0),
            timers: RefCell::new(Timers::new(vcpus)),
        }
    }

    /// Tells the ghost of the TLBs, if there is one, what this CPU is about to invalidate.
    pub fn ghost_forgets(&self, covers: Covers) {
        if let Some(ghost) = &self.system.ghost {
            ghost.forget(self.shared.id, covers);
        }
    }

    /// Whether invalidations that the VMID allocator asks for are left out, to see what becomes of that (`debug.fault=no-tlbi`).
    pub fn leaves_tlbis_out(&self) -> bool {
        self.system.options.fault == Some(DebugFault::NoTlbi)
    }

    /// This CPU's time is accounted up to `now`, and what follows belongs to no exit.
    #[inline(always)]
    pub fn set_mark(&self, now: u64) {
        self.mark.set(now);
        self.shared.stats.switching_from(now);
    }
}
