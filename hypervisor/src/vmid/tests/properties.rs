//! Random schedules of the real allocator over software TLBs.

use super::machine::{Broken, Fault, Machine};
use crate::vmid::Policy;
use proptest::collection::vec;
use proptest::prelude::*;

/// Most CPUs of a machine.
const CPUS: usize = 8;
/// VMs: more than the VMIDs of the widest pool here, so that generations end all the time.
const VMS: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// A CPU takes its next step.
    Step { cpu: usize, vm: usize },
    /// A CPU takes steps until it is in a VM's guest and out again.
    Visit { cpu: usize, vm: usize },
    /// A VM's memory map changes.
    Unmap { vm: usize },
    /// A VM ends.
    End { vm: usize },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => (0..CPUS, 0..VMS).prop_map(|(cpu, vm)| Action::Step { cpu, vm }),
        4 => (0..CPUS, 0..VMS).prop_map(|(cpu, vm)| Action::Visit { cpu, vm }),
        1 => (0..VMS).prop_map(|vm| Action::Unmap { vm }),
        1 => (0..VMS).prop_map(|vm| Action::End { vm }),
    ]
}

/// A pool of one VMID more than CPUs or a few: the tightest that is allowed, and looser ones.
fn pool() -> impl Strategy<Value = (u32, usize)> {
    (1..=CPUS).prop_flat_map(|cpus| (cpus as u32 + 1..=cpus as u32 + 6, Just(cpus)))
}

fn run(
    usable: u32,
    cpus: usize,
    policy: Policy,
    fault: Fault,
    actions: &[Action],
) -> Result<Machine, Broken> {
    let mut machine = Machine::new(usable, cpus, VMS, policy, fault);
    for &action in actions {
        match action {
            Action::Step { cpu, vm } => machine.step(cpu % cpus, vm)?,
            Action::Visit { cpu, vm } => {
                for _ in 0..4 {
                    machine.step(cpu % cpus, vm)?;
                }
            }
            Action::Unmap { vm } => machine.unmap(vm)?,
            Action::End { vm } => machine.end(vm)?,
        }
    }
    machine.check_counters()?;
    Ok(machine)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_breaks_an_invariant((usable, cpus) in pool(), actions in vec(action(), 1..400)) {
        for &policy in Policy::ALL {
            if let Err(broken) = run(usable, cpus, policy, Fault::None, &actions) {
                prop_assert!(false, "{policy}, {cpus} CPUs, {usable} VMIDs: {broken}");
            }
        }
    }
}

/// Schedules from a fixed seed, the same on every run.
fn schedules(count: usize) -> impl Iterator<Item = ((u32, usize), Vec<Action>)> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let strategy = (pool(), vec(action(), 300));
    (0..count).map(move |_| strategy.new_tree(&mut runner).expect("no filter rejects anything").current())
}

/// Random schedules reach what they are meant to reach.
#[test]
fn the_schedules_have_rollovers_reserved_hits_and_ends() {
    for &policy in Policy::ALL {
        let mut sum = [0; 5];
        for ((usable, cpus), actions) in schedules(20) {
            let counters = run(usable, cpus, policy, Fault::None, &actions).unwrap().allocator.counters();
            let seen =
                [counters.fast, counters.unchanged, counters.reserved, counters.rollovers, counters.released];
            sum.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
        }
        let fast = sum[0];
        assert_eq!(fast == 0, policy == Policy::V3ClearZero, "{policy}: {sum:?}");
        assert!(sum[1..].iter().all(|&seen| seen > 20), "{policy}: {sum:?}");
    }
}

/// Each fault around the allocator is found, by the invariant that it breaks.
#[test]
fn faults_are_found() {
    for (fault, invariants) in [
        (Fault::NoInvalidateAll, "1 3 11"),
        (Fault::NoInvalidateVmid, "1 3 11"),
        (Fault::VmidReadEarly, "3"),
        (Fault::NotParked, "1 3 11"),
    ] {
        let broken: Vec<Broken> = schedules(20)
            .filter_map(|((usable, cpus), actions)| run(usable, cpus, Policy::Clear, fault, &actions).err())
            .collect();
        assert!(broken.len() > 10, "{fault:?} was found {} times", broken.len());
        for broken in broken {
            let (number, _) = broken.split_once(':').unwrap();
            assert!(invariants.split(' ').any(|expected| expected == number), "{fault:?}: {broken}");
        }
    }
}
