//! The real VMID allocator under `loom`: all interleavings of a few steps of two or three CPUs, and all values
//! that the memory model lets a relaxed load return, a new generation that is seen late among them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p odometer --release --test loom_vmid`, with a target directory of its
//! own. Without that flag this file is empty.
//!
//! Each CPU has a software TLB that is as eager as the architecture allows: whatever VTTBR holds is in it at
//! once, and again right after each invalidation.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use odometer::ids::{CpuId, Vmid};
use odometer::vmid::{Allocator, Config, Flush, Policy, TlbHardware, Victim, VmidCell};
use std::sync::{Mutex, MutexGuard};

/// The policies with rollovers that must hold.
const SOUND: [Policy; 4] = [Policy::Clear, Policy::TriState, Policy::V3NoClear, Policy::V3ClearZero];

/// A policy whose CPUs flush for themselves.
fn local(policy: Policy) -> Config {
    Config { flush: Some(Flush::Local), ..Config::from(policy) }
}

/// VMIDs in the models of two CPUs: 1, 2, 3.
const USABLE: u32 = 3;

/// What a CPU's VTTBR and TLB hold.
#[derive(Clone, Default)]
struct Cpu {
    /// The VMID and the VM in VTTBR; `None` while it is parked.
    vttbr: Option<(u16, usize)>,
    /// The VM whose entries are there under each VMID.
    tlb: Vec<Option<usize>>,
}

/// All CPUs, and what has been wrong first. It is noted, and raised once all other threads have
/// ended: loom can't unwind a thread that holds its lock.
#[derive(Default)]
struct State {
    cpus: Vec<Cpu>,
    wrong: Option<String>,
}

impl State {
    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// A walk for what VTTBR holds.
    fn fill(&mut self, cpu: usize) {
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
enum Fault {
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
struct Tlbs {
    fault: Fault,
    /// `std`'s lock, not loom's: it is no part of the program under test and must not order anything in it.
    state: Mutex<State>,
    /// Tells loom that operations on the TLBs depend on each other, so that it tries them in every order; relaxed,
    /// so that it takes nothing else from that.
    touched: AtomicUsize,
}

impl Tlbs {
    fn touch(&self) -> MutexGuard<'_, State> {
        self.touched.fetch_add(1, Relaxed);
        self.state.lock().unwrap()
    }

    fn load(&self, cpu: usize, vmid: Vmid, vm: usize) {
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

    fn park(&self, cpu: usize) {
        self.touch().cpus[cpu].vttbr = None;
    }

    fn invalidate(&self, only: Option<usize>, which: impl Fn(usize) -> bool) {
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
    fn assert_right(&self) {
        let wrong = self.state.lock().unwrap().wrong.take();
        assert_eq!(wrong, None);
    }
}

/// The hardware, as one of the CPUs has it.
struct Here<'a> {
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

struct Machine {
    allocator: Allocator,
    vms: Vec<VmidCell>,
    tlbs: Tlbs,
}

impl Machine {
    fn new(config: impl Into<Config>, usable: u32, cpus: usize, fault: Fault) -> Arc<Self> {
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

    fn enter(&self, cpu: usize, vm: usize) {
        let slot = self.allocator.cpu(CpuId(cpu as u16));
        let vmid = self.allocator.schedule_in(slot, &self.vms[vm], &Here { tlbs: &self.tlbs, cpu });
        self.tlbs.load(cpu, vmid, vm);
    }

    fn leave(&self, cpu: usize) {
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
    fn visit(&self, cpu: usize, vms: &[usize]) {
        for &vm in vms {
            self.enter(cpu, vm);
            self.leave(cpu);
        }
    }

    fn end(&self, cpu: usize, vm: usize) {
        self.allocator.release(&self.vms[vm], &Here { tlbs: &self.tlbs, cpu });
        let mut state = self.tlbs.touch();
        let left = state.cpus.iter().any(|cpu| cpu.tlb.contains(&Some(vm)));
        // A CPU that flushes for itself may have some for as long as it can't meet them.
        let may_be_left = self.allocator.flush() == Flush::Local;
        state.require(may_be_left || !left, || format!("stale: entries of VM {vm}, which has ended"));
    }

    /// At the end of a model: nothing has been wrong, and the counters add up.
    fn assert_right(&self, schedule_ins: u64) {
        self.tlbs.assert_right();
        let counters = self.allocator.counters();
        assert_eq!(counters.schedule_ins, schedule_ins);
        assert_eq!(counters.fast + counters.slow, schedule_ins);
        assert_eq!(counters.slow, counters.unchanged + counters.reserved + counters.allocations);
    }
}

/// Checks all executions with at most that many preemptions (all of them without a bound).
fn model(preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(run);
}

/// CPU 0 has run VMs 0 (VMID 1) and 1 (VMID 2), CPU 1 VM 2 (VMID 3): the next new VM makes a rollover.
fn full_pool(config: Config, fault: Fault) -> Arc<Machine> {
    let machine = Machine::new(config, USABLE, 2, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine
}

/// CPU 0 enters VMs on the fast path, while CPU 1's new VM ends the generation and takes an index of one of them.
fn fast_path_against_rollover(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3]));
    machine.visit(0, &[0, 1]);
    machine.enter(0, 3);
    cpu1.join().unwrap();
    machine.assert_right(7);
}

/// VM 0 has VMID 1 for good, and CPU 0 enters it, and another, while CPU 1's new VM needs a VMID and there is none.
fn pinned_against_shortage(config: Config, fault: Fault) {
    let machine = Machine::new(config, USABLE + 1, 2, fault);
    machine.allocator.pin(&machine.vms[0]).unwrap();
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2, 3]);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[4]));
    machine.visit(0, &[0, 1]);
    machine.enter(0, 0);
    cpu1.join().unwrap();
    assert_eq!(machine.vms[0].vmid(), Some(Vmid(1)));
    machine.assert_right(8);
}

/// CPU 0 leaves a VM while CPU 1 ends the generation; then it enters one whose index CPU 1 may have given away.
fn schedule_out_against_rollover(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.enter(1, 3));
    machine.leave(0);
    machine.enter(0, 0);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// CPU 0 stays in a VM through one or two rollovers and then goes on to others.
fn suspended_animation(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3, 4, 5]));
    machine.leave(0);
    machine.visit(0, &[1]);
    cpu1.join().unwrap();
    machine.assert_right(8);
}

/// Both CPUs find the pool full at once, with one VM in common.
fn rollover_against_rollover(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3, 1]));
    machine.leave(0);
    machine.visit(0, &[4]);
    cpu1.join().unwrap();
    machine.assert_right(7);
}

/// A VM ends on CPU 1, which gives its VMID to a new one; CPU 0, which ran the ended VM last, enters others.
fn end_against_schedule_in(config: Config, fault: Fault) {
    let machine = Machine::new(config, USABLE, 2, fault);
    machine.visit(0, &[1, 0]);
    machine.visit(1, &[2]);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || {
        other.end(1, 0);
        other.visit(1, &[3]);
    });
    machine.visit(0, &[1, 3]);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// A VM ends on CPU 1 while CPU 0 makes a rollover.
fn end_against_rollover(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || {
        other.end(1, 1);
        other.visit(1, &[4]);
    });
    machine.visit(0, &[3, 0]);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// Three CPUs: one leaves and enters, one makes a rollover, one enters what the first has run.
fn three_cpus(config: Config, fault: Fault) {
    let machine = Machine::new(config, USABLE + 1, 3, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine.visit(2, &[3]);
    machine.enter(0, 1);
    let (second, third) = (machine.clone(), machine.clone());
    let cpu1 = loom::thread::spawn(move || second.visit(1, &[4]));
    let cpu2 = loom::thread::spawn(move || third.visit(2, &[0]));
    machine.leave(0);
    machine.visit(0, &[2]);
    cpu1.join().unwrap();
    cpu2.join().unwrap();
    machine.assert_right(8);
}

/// CPU 0 enters VM 0 on the fast path, while CPU 1 ends the generation, takes VM 0's index for VM 4 and stays in
/// it, and CPU 2 uses the new generation up too. An exchange in place of the compare-exchange would show the second
/// rollover an id that the first one ended, and VMs 0 and 4 would both keep its index.
fn fast_path_against_two_rollovers(config: Config, fault: Fault) {
    let machine = Machine::new(config, USABLE + 1, 3, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine.visit(2, &[3]);
    let (second, third) = (machine.clone(), machine.clone());
    let cpu1 = loom::thread::spawn(move || second.enter(1, 4));
    let cpu2 = loom::thread::spawn(move || third.visit(2, &[5, 1, 2, 3]));
    machine.enter(0, 0);
    cpu1.join().unwrap();
    cpu2.join().unwrap();
    machine.assert_right(10);
}

/// CPU 1 makes a rollover, and waits until CPU 0 has left its guest.
fn call_out(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3]));
    machine.leave(0);
    machine.visit(0, &[0]);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// `full_pool`, and then VM 3 has taken the VMID of one that ran on CPU 0: VMIDs go one by one from now on. CPU 0 has run
/// VMs 0 and 1 since, as far as they had one still, and CPU 1 VM 3.
fn short_pool(config: Config, fault: Fault) -> Arc<Machine> {
    let machine = full_pool(config, fault);
    machine.visit(1, &[3]);
    machine.visit(0, &[0, 1]);
    machine
}

/// CPU 0 enters VMs to which it was admitted, while CPU 1 takes VMIDs away for new ones, and CPU 0 meets those.
fn fast_path_against_reclaim(config: Config, fault: Fault) {
    let machine = short_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[4]));
    machine.visit(0, &[1, 0]);
    machine.enter(0, 4);
    cpu1.join().unwrap();
    machine.assert_right(10);
}

/// CPU 0 runs a VM while CPU 1 takes the VMID of another from under it, and gives it away; CPU 0 leaves its VM and
/// enters the other one.
fn schedule_out_against_reclaim(config: Config, fault: Fault) {
    let machine = short_pool(config, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.enter(1, 4));
    machine.leave(0);
    machine.visit(0, &[0]);
    cpu1.join().unwrap();
    machine.assert_right(9);
}

/// Both CPUs need a VMID that the other one's VM has.
fn reclaim_against_reclaim(config: Config, fault: Fault) {
    let machine = short_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[2, 1]));
    machine.visit(0, &[4, 3]);
    cpu1.join().unwrap();
    machine.assert_right(10);
}

/// A VM ends on CPU 1, which gives its VMID to a new one; CPU 0, which was admitted to the ended one, enters others.
fn end_against_admitted(config: Config, fault: Fault) {
    let machine = short_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || {
        other.end(1, 0);
        other.visit(1, &[4]);
    });
    machine.visit(0, &[1, 4]);
    cpu1.join().unwrap();
    machine.assert_right(9);
}

/// Three CPUs: one leaves and enters, one takes VMIDs away, one enters what the first has run.
fn three_cpus_reclaim(config: Config, fault: Fault) {
    let machine = Machine::new(config, USABLE + 1, 3, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine.visit(2, &[3, 4]);
    machine.visit(0, &[0, 1]);
    machine.enter(0, 1);
    let (second, third) = (machine.clone(), machine.clone());
    let cpu1 = loom::thread::spawn(move || second.visit(1, &[5]));
    let cpu2 = loom::thread::spawn(move || third.visit(2, &[0]));
    machine.leave(0);
    machine.visit(0, &[0]);
    cpu1.join().unwrap();
    cpu2.join().unwrap();
    machine.assert_right(11);
}

/// Checks a model for each sound policy with rollovers.
fn assert_holds(preemptions: Option<usize>, run: fn(Config, Fault)) {
    for policy in SOUND {
        model(preemptions, move || run(policy.into(), Fault::None));
    }
}

/// Checks a model for each way to take VMIDs one by one.
fn assert_reclaim_holds(preemptions: Option<usize>, run: fn(Config, Fault)) {
    for flush in [Flush::Local, Flush::Broadcast] {
        let config = Config { flush: Some(flush), victim: Victim::Random, ..Config::from(Policy::Reclaim) };
        model(preemptions, move || run(config, Fault::None));
    }
}

#[test]
fn fast_path_against_a_rollover() {
    assert_holds(Some(5), fast_path_against_rollover);
}

#[test]
fn a_pinned_vmid_while_they_run_short() {
    assert_holds(Some(3), pinned_against_shortage);
    assert_reclaim_holds(Some(3), pinned_against_shortage);
}

#[test]
fn schedule_out_against_a_rollover() {
    assert_holds(None, schedule_out_against_rollover);
}

#[test]
fn suspended_animation_through_two_rollovers() {
    assert_holds(Some(5), suspended_animation);
}

#[test]
fn two_rollovers_at_once() {
    assert_holds(Some(5), rollover_against_rollover);
}

#[test]
fn end_of_a_vm_against_schedule_in() {
    assert_holds(None, end_against_schedule_in);
}

#[test]
fn end_of_a_vm_against_a_rollover() {
    assert_holds(Some(4), end_against_rollover);
}

#[test]
fn three_cpus_at_once() {
    assert_holds(Some(3), three_cpus);
}

#[test]
fn fast_path_against_two_rollovers_of_other_cpus() {
    // The fast path is the same for all policies, and this model is a long one.
    model(Some(3), || fast_path_against_two_rollovers(Policy::Clear.into(), Fault::None));
}

/// A flush that each CPU is left to do comes before it meets anything else.
#[test]
fn local_flushes() {
    for policy in [Policy::Clear, Policy::TriState] {
        model(Some(4), move || fast_path_against_rollover(local(policy), Fault::None));
        model(Some(4), move || schedule_out_against_rollover(local(policy), Fault::None));
    }
    model(Some(3), || suspended_animation(local(Policy::TriState), Fault::None));
}

/// All CPUs are called out of their guests.
#[test]
fn calling_out() {
    model(Some(3), || fast_path_against_rollover(Policy::Global.into(), Fault::None));
    model(Some(4), || call_out(Policy::Global.into(), Fault::None));
    model(Some(3), || suspended_animation(Policy::Global.into(), Fault::None));
}

/// From enough VMIDs to the first shortage.
#[test]
fn the_first_shortage() {
    assert_reclaim_holds(Some(2), fast_path_against_rollover);
    assert_reclaim_holds(Some(2), schedule_out_against_rollover);
    assert_reclaim_holds(Some(2), suspended_animation);
}

#[test]
fn fast_path_against_a_vmid_taken_away() {
    assert_reclaim_holds(Some(3), fast_path_against_reclaim);
}

#[test]
fn schedule_out_against_a_vmid_taken_away() {
    assert_reclaim_holds(Some(3), schedule_out_against_reclaim);
}

#[test]
fn two_take_vmids_at_once() {
    assert_reclaim_holds(Some(2), reclaim_against_reclaim);
}

#[test]
fn end_of_a_vm_against_one_that_was_admitted() {
    assert_reclaim_holds(Some(4), end_against_admitted);
}

#[test]
fn three_cpus_and_vmids_taken_away() {
    assert_reclaim_holds(Some(2), three_cpus_reclaim);
}

#[test]
#[should_panic(expected = "stale")]
fn an_admission_without_its_flush_is_caught() {
    model(None, || fast_path_against_reclaim(Policy::Reclaim.into(), Fault::NoInvalidateHere));
}

#[test]
#[should_panic(expected = "stale")]
fn a_local_flush_left_out_is_caught() {
    model(None, || fast_path_against_rollover(local(Policy::Clear), Fault::NoInvalidateHere));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vttbr_parked_after_a_call_out_is_caught() {
    model(None, || call_out(Policy::Global.into(), Fault::ParkedLate));
}

/// The plain store at schedule-out loses a rollover's 0, the new generation is seen late, and two VMs are under
/// one VMID.
#[test]
#[should_panic(expected = "stale")]
fn a_plain_store_at_schedule_out_is_caught() {
    model(None, || schedule_out_against_rollover(Policy::Merged.into(), Fault::None));
}

#[test]
#[should_panic(expected = "stale")]
fn a_rollover_without_its_flush_is_caught() {
    model(None, || fast_path_against_rollover(Policy::Clear.into(), Fault::NoInvalidateAll));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vms_end_without_its_flush_is_caught() {
    model(None, || end_against_schedule_in(Policy::Clear.into(), Fault::NoInvalidateVmid));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vttbr_parked_after_schedule_out_is_caught() {
    model(None, || schedule_out_against_rollover(Policy::Clear.into(), Fault::ParkedLate));
}
