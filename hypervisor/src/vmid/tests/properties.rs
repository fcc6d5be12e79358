//! Random schedules of the real allocator over software TLBs.

use super::machine::{Broken, Machine};
use super::tlbs::Fault;
use crate::vmid::{Config, Flush, Policy, Victim};
use proptest::collection::vec;
use proptest::prelude::*;

/// Most CPUs of a machine.
pub(super) const CPUS: usize = 8;
/// VMs: more than the VMIDs of the widest pool here, so that generations end all the time.
pub(super) const VMS: usize = 24;

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
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

/// A pool of one VMID more than CPUs or a few, beside those that are pinned: the tightest that is allowed, and looser ones.
fn pool() -> impl Strategy<Value = Pool> {
    let pinned = prop_oneof![2 => Just(0), 1 => 1..4usize];
    (1..=CPUS, 1..=6u32, pinned).prop_map(|(cpus, more, pinned)| Pool {
        usable: (cpus + pinned) as u32 + more,
        cpus,
        pinned,
    })
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    pub(super) usable: u32,
    pub(super) cpus: usize,
    /// So many VMs, the first ones, have a VMID for good.
    pub(super) pinned: usize,
}

pub(super) fn run(
    Pool { usable, cpus, pinned }: Pool,
    config: Config,
    fault: Fault,
    actions: &[Action],
) -> Result<Machine, Broken> {
    let mut machine = Machine::new(usable, cpus, VMS, config, fault);
    machine.pin(pinned);
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

/// Every policy with each way to flush that it allows, and with each choice of victims.
pub(super) fn configs() -> Vec<Config> {
    let mut configs = Vec::new();
    for &policy in Policy::ALL {
        for &flush in Flush::ALL {
            if policy == Policy::Merged && flush == Flush::Local {
                continue;
            }
            let config = Config { flush: Some(flush), ..Config::from(policy) };
            if policy != Policy::Reclaim {
                configs.push(config);
                continue;
            }
            for &victim in Victim::ALL {
                configs.extend([1, 3].map(|batch| Config { victim, batch, ..config }));
            }
        }
    }
    configs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_breaks_an_invariant(pool in pool(), actions in vec(action(), 1..400)) {
        for config in configs() {
            if let Err(broken) = run(pool, config, Fault::None, &actions) {
                prop_assert!(false, "{config:?}, {pool:?}: {broken}");
            }
        }
    }
}

/// Schedules from a fixed seed, the same on every run.
fn schedules(count: usize) -> impl Iterator<Item = (Pool, Vec<Action>)> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let strategy = (pool(), vec(action(), 300));
    (0..count).map(move |_| strategy.new_tree(&mut runner).expect("no filter rejects anything").current())
}

/// Random schedules reach what they are meant to reach.
#[test]
fn the_schedules_have_all_kinds_of_events() {
    for config in configs() {
        let (mut sum, mut special) = ([0; 4], [0; 4]);
        for (pool, actions) in schedules(20) {
            let machine = run(pool, config, Fault::None, &actions).unwrap();
            let counters = machine.allocator().counters();
            let seen = [counters.unchanged, counters.allocations, counters.released, counters.slow];
            sum.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
            let seen = [counters.fast, counters.reserved, counters.kicks, counters.reclaimed];
            special.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
        }
        assert!(sum.iter().all(|&seen| seen > 20), "{config:?}: {sum:?}");
        let [fast, reserved, kicks, reclaimed] = special.map(|seen| seen > 20);
        assert_eq!(fast, config.policy != Policy::V3ClearZero, "{config:?}: {special:?}");
        // With `global`, only what is pinned.
        assert_eq!(reserved, config.policy != Policy::Reclaim, "{config:?}: {special:?}");
        assert_eq!(kicks, config.policy == Policy::Global, "{config:?}: {special:?}");
        assert_eq!(reclaimed, config.policy == Policy::Reclaim, "{config:?}: {special:?}");
    }
}

/// Each fault around the allocator is found, by the invariant that it breaks.
#[test]
fn faults_are_found() {
    let with = |policy, flush| Config { flush: Some(flush), ..Config::from(policy) };
    let clear = Config::from(Policy::Clear);
    let reclaim = Config::from(Policy::Reclaim);
    for (config, fault, invariants) in [
        (clear, Fault::NoInvalidateAll, "1 3 11"),
        (clear, Fault::NoInvalidateVmid, "1 3 11"),
        (clear, Fault::VmidReadEarly, "3"),
        (clear, Fault::NotParked, "1 3 11"),
        (with(Policy::Clear, Flush::Local), Fault::NoInvalidateHere, "1 3 11"),
        (with(Policy::TriState, Flush::Local), Fault::NoInvalidateHere, "1 3 11"),
        (Config::from(Policy::Global), Fault::NotParked, "1 3 11"),
        (with(Policy::Global, Flush::Local), Fault::NoInvalidateHere, "1 3 11"),
        (reclaim, Fault::NoInvalidateHere, "1 3 11"),
        (reclaim, Fault::NotParked, "1 3 11"),
        (reclaim, Fault::VmidReadEarly, "3"),
        (with(Policy::Reclaim, Flush::Broadcast), Fault::NoInvalidateVmid, "1 3 11"),
        (with(Policy::Reclaim, Flush::Broadcast), Fault::NoInvalidateHere, "1 3 11"),
    ] {
        let broken: Vec<Broken> =
            schedules(20).filter_map(|(pool, actions)| run(pool, config, fault, &actions).err()).collect();
        assert!(broken.len() > 5, "{config:?}, {fault:?} was found {} times", broken.len());
        for broken in broken {
            let (number, _) = broken.split_once(':').unwrap();
            assert!(
                invariants.split(' ').any(|expected| expected == number),
                "{config:?}, {fault:?}: {broken}"
            );
        }
    }
}
