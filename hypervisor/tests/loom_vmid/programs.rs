//! What the CPUs do at once: a few steps each.

use super::machine::*;
use loom::sync::Arc;
use odometer::ids::Vmid;
use odometer::vmid::Config;

/// CPU 0 has run VMs 0 (VMID 1) and 1 (VMID 2), CPU 1 VM 2 (VMID 3): the next new VM makes a rollover.
pub fn full_pool(config: Config, fault: Fault) -> Arc<Machine> {
    let machine = Machine::new(config, USABLE, 2, fault);
    machine.visit(0, &[0, 1]);
    machine.visit(1, &[2]);
    machine
}

/// CPU 0 enters VMs on the fast path, while CPU 1's new VM ends the generation and takes an index of one of them.
pub fn fast_path_against_rollover(config: Config, fault: Fault) {
    let machine = full_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[3]));
    machine.visit(0, &[0, 1]);
    machine.enter(0, 3);
    cpu1.join().unwrap();
    machine.assert_right(7);
}

/// VM 0 has VMID 1 for good, and CPU 0 enters it, and another, while CPU 1's new VM needs a VMID and there is none.
pub fn pinned_against_shortage(config: Config, fault: Fault) {
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
pub fn schedule_out_against_rollover(config: Config, fault: Fault) {
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
pub fn suspended_animation(config: Config, fault: Fault) {
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
pub fn rollover_against_rollover(config: Config, fault: Fault) {
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
pub fn end_against_schedule_in(config: Config, fault: Fault) {
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
pub fn end_against_rollover(config: Config, fault: Fault) {
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
pub fn three_cpus(config: Config, fault: Fault) {
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
pub fn fast_path_against_two_rollovers(config: Config, fault: Fault) {
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
pub fn call_out(config: Config, fault: Fault) {
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
pub fn short_pool(config: Config, fault: Fault) -> Arc<Machine> {
    let machine = full_pool(config, fault);
    machine.visit(1, &[3]);
    machine.visit(0, &[0, 1]);
    machine
}

/// CPU 0 enters VMs to which it was admitted, while CPU 1 takes VMIDs away for new ones, and CPU 0 meets those.
pub fn fast_path_against_reclaim(config: Config, fault: Fault) {
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
pub fn schedule_out_against_reclaim(config: Config, fault: Fault) {
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
pub fn reclaim_against_reclaim(config: Config, fault: Fault) {
    let machine = short_pool(config, fault);
    let other = machine.clone();
    let cpu1 = loom::thread::spawn(move || other.visit(1, &[2, 1]));
    machine.visit(0, &[4, 3]);
    cpu1.join().unwrap();
    machine.assert_right(10);
}

/// A VM ends on CPU 1, which gives its VMID to a new one; CPU 0, which was admitted to the ended one, enters others.
pub fn end_against_admitted(config: Config, fault: Fault) {
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
pub fn three_cpus_reclaim(config: Config, fault: Fault) {
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
