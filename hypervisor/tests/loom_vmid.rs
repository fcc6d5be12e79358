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
use odometer::vmid::{Allocator, Policy, TlbHardware, VmidCell};
use std::sync::{Mutex, MutexGuard};

/// The policies that must hold.
const SOUND: [Policy; 3] = [Policy::Clear, Policy::V3NoClear, Policy::V3ClearZero];

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

    fn invalidate(&self, which: impl Fn(usize) -> bool) {
        let mut state = self.touch();
        for cpu in 0..state.cpus.len() {
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

impl TlbHardware for Tlbs {
    fn invalidate_all(&self) {
        self.invalidate(|_| self.fault != Fault::NoInvalidateAll);
    }

    fn invalidate_vmid(&self, vmid: Vmid) {
        self.invalidate(|index| index == vmid.0 as usize && self.fault != Fault::NoInvalidateVmid);
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
    fn new(policy: Policy, usable: u32, cpus: usize, fault: Fault) -> Arc<Self> {
        let cpu = Cpu { vttbr: None, tlb: vec![None; usable as usize + 1] };
        Arc::new(Machine {
            allocator: Allocator::with_usable(usable, cpus, policy).unwrap(),
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
        let vmid = self.allocator.schedule_in(slot, &self.vms[vm], &self.tlbs);
        self.tlbs.load(cpu, vmid, vm);
    }

    fn leave(&self, cpu: usize, vm: usize) {
        let late = self.tlbs.fault == Fault::ParkedLate;
        if !late {
            self.tlbs.park(cpu);
        }
        self.allocator.schedule_out(self.allocator.cpu(CpuId(cpu as u16)), &self.vms[vm]);
        if late {
            self.tlbs.park(cpu);
        }
    }

    /// Runs VMs one after the other.
    fn visit(&self, cpu: usize, vms: &[usize]) {
        for &vm in vms {
            self.enter(cpu, vm);
            self.leave(cpu, vm);
        }
    }

    fn end(&self, vm: usize) {
        self.allocator.release(&self.vms[vm], &self.tlbs);
        let mut state = self.tlbs.touch();
        let left = state.cpus.iter().any(|cpu| cpu.tlb.contains(&Some(vm)));
        state.require(!left, || format!("stale: entries of VM {vm}, which has ended"));
    }

    /// At the end of a model: nothing has been wrong, and the counters add up.
    fn assert_right(&self, schedule_ins: u64) {
        self.tlbs.assert_right();
        let counters = self.allocator.counters();
        assert_eq!(counters.schedule_ins, schedule_ins);
        assert_eq!(counters.fast + counters.slow, schedule_ins);
        assert_eq!(counters.slow, counters.unchanged + counters.reserved + counters.allocations);
        assert_eq!(counters.tlbi_broadcast, counters.rollovers + counters.released);
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
fn full_pool(policy: Policy, fault: Fault) -> Arc<Machine> {
    let machine = Machine::new(policy, USABLE, 2, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine
}

/// CPU 0 enters VMs on the fast path, while CPU 1's new VM ends the generation and takes an index of one of them.
fn fast_path_against_rollover(policy: Policy, fault: Fault) {
    let machine = full_pool(policy, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3]));
    machine.visit(0, &[0, 1]);
    machine.enter(0, 3);
    cpu1.join().unwrap();
    machine.assert_right(7);
}

/// CPU 0 leaves a VM while CPU 1 ends the generation; then it enters one whose index CPU 1 may have given away.
fn schedule_out_against_rollover(policy: Policy, fault: Fault) {
    let machine = full_pool(policy, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.enter(1, 3));
    machine.leave(0, 1);
    machine.enter(0, 0);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// CPU 0 stays in a VM through one or two rollovers and then goes on to others.
fn suspended_animation(policy: Policy, fault: Fault) {
    let machine = full_pool(policy, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3, 4, 5]));
    machine.leave(0, 1);
    machine.visit(0, &[1]);
    cpu1.join().unwrap();
    machine.assert_right(8);
}

/// Both CPUs find the pool full at once, with one VM in common.
fn rollover_against_rollover(policy: Policy, fault: Fault) {
    let machine = full_pool(policy, fault);
    machine.enter(0, 1);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3, 1]));
    machine.leave(0, 1);
    machine.visit(0, &[4]);
    cpu1.join().unwrap();
    machine.assert_right(7);
}

/// A VM ends on CPU 1, which gives its VMID to a new one; CPU 0, which ran the ended VM last, enters others.
fn end_against_schedule_in(policy: Policy, fault: Fault) {
    let machine = Machine::new(policy, USABLE, 2, fault);
    machine.visit(0, &[1, 0]);
    machine.visit(1, &[2]);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || {
        other.end(0);
        other.visit(1, &[3]);
    });
    machine.visit(0, &[1, 3]);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// A VM ends on CPU 1 while CPU 0 makes a rollover.
fn end_against_rollover(policy: Policy, fault: Fault) {
    let machine = full_pool(policy, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || {
        other.end(1);
        other.visit(1, &[4]);
    });
    machine.visit(0, &[3, 0]);
    cpu1.join().unwrap();
    machine.assert_right(6);
}

/// Three CPUs: one leaves and enters, one makes a rollover, one enters what the first has run.
fn three_cpus(policy: Policy, fault: Fault) {
    let machine = Machine::new(policy, USABLE + 1, 3, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine.visit(2, &[3]);
    machine.enter(0, 1);
    let (second, third) = (machine.clone(), machine.clone());
    let cpu1 = loom::thread::spawn(move || second.visit(1, &[4]));
    let cpu2 = loom::thread::spawn(move || third.visit(2, &[0]));
    machine.leave(0, 1);
    machine.visit(0, &[2]);
    cpu1.join().unwrap();
    cpu2.join().unwrap();
    machine.assert_right(8);
}

/// CPU 0 enters VM 0 on the fast path, while CPU 1 ends the generation, takes VM 0's index for VM 4 and stays in
/// it, and CPU 2 uses the new generation up too. An exchange in place of the compare-exchange would show the second
/// rollover an id that the first one ended, and VMs 0 and 4 would both keep its index.
fn fast_path_against_two_rollovers(policy: Policy, fault: Fault) {
    let machine = Machine::new(policy, USABLE + 1, 3, fault);
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

/// Checks a model for each sound policy.
fn assert_holds(preemptions: Option<usize>, run: fn(Policy, Fault)) {
    for policy in SOUND {
        model(preemptions, move || run(policy, Fault::None));
    }
}

#[test]
fn fast_path_against_a_rollover() {
    assert_holds(Some(5), fast_path_against_rollover);
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
    model(Some(3), || fast_path_against_two_rollovers(Policy::Clear, Fault::None));
}

/// The plain store at schedule-out loses a rollover's 0, the new generation is seen late, and two VMs are under
/// one VMID.
#[test]
#[should_panic(expected = "stale")]
fn a_plain_store_at_schedule_out_is_caught() {
    model(None, || schedule_out_against_rollover(Policy::Merged, Fault::None));
}

#[test]
#[should_panic(expected = "stale")]
fn a_rollover_without_its_flush_is_caught() {
    model(None, || fast_path_against_rollover(Policy::Clear, Fault::NoInvalidateAll));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vms_end_without_its_flush_is_caught() {
    model(None, || end_against_schedule_in(Policy::Clear, Fault::NoInvalidateVmid));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vttbr_parked_after_schedule_out_is_caught() {
    model(None, || schedule_out_against_rollover(Policy::Clear, Fault::ParkedLate));
}
