//! CPUs with software TLBs around the real allocator.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use odometer::ids::{CpuId, Vmid};
use odometer::vmid::{Allocator, Config, Flush, Policy, TlbHardware, VmidCell};
use std::sync::{Mutex, MutexGuard};

/// The policies with rollovers that must hold.
pub const SOUND: [Policy; 4] = [Policy::Clear, Policy::TriState, Policy::V3NoClear, Policy::V3ClearZero];

/// A policy whose CPUs flush for themselves.
pub fn local(policy: Policy) -> Config {
    Config { flush: Some(Flush::Local), ..Config::from(policy) }
}

/// VMIDs in the models of two CPUs: 1, 2, 3.
pub const USABLE: u32 = 3;

/// What a CPU's VTTBR and TLB hold.
#[derive(Clone, Default)]
pub struct Cpu {
    /// The VMID and the VM in VTTBR; `None` while it is parked.
    vttbr: Option<(u16, usize)>,
    /// The VM whose entries are there under each VMID.
    tlb: Vec<Option<usize>>,
}

/// All CPUs, and what has been wrong first. It is noted, and raised once all other threads have
/// ended: loom can't unwind a thread that holds its lock.
#[derive(Default)]
pub struct State {
    cpus: Vec<Cpu>,
    wrong: Option<String>,
}

impl State {
    pub fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// A walk for what VTTBR holds.
    pub fn fill(&mut self, cpu: usize) {
        if let Some((vmid, vm)) = self.cpus[cpu].vttbr {
            let owner = self.cpus[cpu].tlb[vmid as usize].replace(vm);
            self.require(owner.is_none_or(|owner| owner == vm), || {
                format!("stale: VM {vm} meets entries of {owner:?} under {vmid} on CPU {cpu}")
            });
        }
    }
}

/// What a hypervisor around the allocator, or the allocator's hardware, may get wrong: so that the models can fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// A rollover doesn't flush.
    NoInvalidateAll,
    /// A VM's end doesn't flush.
    NoInvalidateVmid,
    /// A CPU doesn't flush for itself.
    NoInvalidateHere,
    /// VTTBR is parked after schedule-out instead of before.
    ParkedLate,
}

/// The TLBs.
pub struct Tlbs {
    fault: Fault,
    /// `std`'s lock, not loom's: it is no part of the program under test and must not order anything in it.
    state: Mutex<State>,
    /// Tells loom that operations on the TLBs depend on each other, so that it tries them in every order; relaxed,
    /// so that it takes nothing else from that.
    touched: AtomicUsize,
}

impl Tlbs {
    pub fn touch(&self) -> MutexGuard<'_, State> {
        self.touched.fetch_add(1, Relaxed);
        self.state.lock().unwrap()
    }

    pub fn load(&self, cpu: usize, vmid: Vmid, vm: usize) {
        let mut state = self.touch();
        let others: Vec<(u16, usize)> = state.cpus.iter().filter_map(|cpu| cpu.vttbr).collect();
        state.require(vmid.0 != 0, || format!("VM {vm} has VMID 0"));
        for (other_vmid, other) in others {
            state.require((other == vm) == (other_vmid == vmid.0), || {
                format!("stale: VMs {vm} and {other} run at once under {} and {other_vmid}", vmid.0)
            });
        }
        state.cpus[cpu].vttbr = Some((vmid.0, vm));
        state.fill(cpu);
    }

    pub fn park(&self, cpu: usize) {
        self.touch().cpus[cpu].vttbr = None;
    }

    pub fn invalidate(&self, only: Option<usize>, which: impl Fn(usize) -> bool) {
        let mut state = self.touch();
        for cpu in (0..state.cpus.len()).filter(|&cpu| only.is_none_or(|only| cpu == only)) {
            for (vmid, owner) in state.cpus[cpu].tlb.iter_mut().enumerate() {
                if which(vmid) {
                    *owner = None;
                }
            }
            state.fill(cpu);
        }
    }

    /// Raises what has been wrong.
    pub fn assert_right(&self) {
        let wrong = self.state.lock().unwrap().wrong.take();
        assert_eq!(wrong, None);
    }
}

/// The hardware, as one of the CPUs has it.
pub struct Here<'a> {
    tlbs: &'a Tlbs,
    cpu: usize,
}

impl TlbHardware for Here<'_> {
    fn invalidate_all(&self) {
        self.tlbs.invalidate(None, |_| self.tlbs.fault != Fault::NoInvalidateAll);
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        self.tlbs.invalidate(None, |index| {
            vmids.contains(&Vmid(index as u16)) && self.tlbs.fault != Fault::NoInvalidateVmid
        });
    }

    fn invalidate_all_here(&self) {
        self.tlbs.invalidate(Some(self.cpu), |_| self.tlbs.fault != Fault::NoInvalidateHere);
    }

    fn invalidate_vmid_here(&self, vmid: Vmid) {
        self.tlbs.invalidate(Some(self.cpu), |index| {
            index == vmid.0 as usize && self.tlbs.fault != Fault::NoInvalidateHere
        });
    }

    fn publish_id(&self) {}

    /// Each CPU of a model leaves its guest by and by.
    fn kick(&self, _: CpuId) {}

    fn wait(&self) {
        loom::thread::yield_now();
    }

    fn now(&self) -> u64 {
        0
    }
}

pub struct Machine {
    pub allocator: Allocator,
    pub vms: Vec<VmidCell>,
    tlbs: Tlbs,
}

impl Machine {
    pub fn new(config: impl Into<Config>, usable: u32, cpus: usize, fault: Fault) -> Arc<Self> {
        let cpu = Cpu { vttbr: None, tlb: vec![None; usable as usize + 1] };
        Arc::new(Machine {
            allocator: Allocator::with_usable(usable, cpus, config).unwrap(),
            vms: (0..6).map(|_| VmidCell::new()).collect(),
            tlbs: Tlbs {
                fault,
                state: Mutex::new(State { cpus: vec![cpu; cpus], wrong: None }),
                touched: AtomicUsize::new(0),
            },
        })
    }

    pub fn enter(&self, cpu: usize, vm: usize) {
        let slot = self.allocator.cpu(CpuId(cpu as u16));
        let vmid = self.allocator.schedule_in(slot, &self.vms[vm], &Here { tlbs: &self.tlbs, cpu });
        self.tlbs.load(cpu, vmid, vm);
    }

    pub fn leave(&self, cpu: usize) {
        let late = self.tlbs.fault == Fault::ParkedLate;
        if !late {
            self.tlbs.park(cpu);
        }
        self.allocator.schedule_out(self.allocator.cpu(CpuId(cpu as u16)));
        if late {
            self.tlbs.park(cpu);
        }
    }

    /// Runs VMs one after the other.
    pub fn visit(&self, cpu: usize, vms: &[usize]) {
        for &vm in vms {
            self.enter(cpu, vm);
            self.leave(cpu);
        }
    }

    pub fn end(&self, cpu: usize, vm: usize) {
        self.allocator.release(&self.vms[vm], &Here { tlbs: &self.tlbs, cpu });
        let mut state = self.tlbs.touch();
        let left = state.cpus.iter().any(|cpu| cpu.tlb.contains(&Some(vm)));
        // A CPU that flushes for itself may have some for as long as it can't meet them.
        let may_be_left = self.allocator.flush() == Flush::Local;
        state.require(may_be_left || !left, || format!("stale: entries of VM {vm}, which has ended"));
    }

    /// At the end of a model: nothing has been wrong, and the counters add up.
    pub fn assert_right(&self, schedule_ins: u64) {
        self.tlbs.assert_right();
        let counters = self.allocator.counters();
        assert_eq!(counters.schedule_ins, schedule_ins);
        assert_eq!(counters.fast + counters.slow, schedule_ins);
        assert_eq!(counters.slow, counters.unchanged + counters.reserved + counters.allocations);
    }
}

/// Checks all executions with at most that many preemptions (all of them without a bound).
pub fn model(preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(run);
}
