//! VMIDs that belong to one VM for good. `properties` has random schedules with some.

use super::properties::{Action, CPUS, Pool, VMS, configs, run};
use super::recorder::{Op, Recorder};
use super::tlbs::Fault;
use crate::ids::{CpuId, Vmid};
use crate::vmid::{Allocator, Policy, PoolError, VmidCell};

/// With the most that may be pinned, on every CPU what is left of VMIDs goes round among all other VMs, and each gets to run.
#[test]
fn the_others_get_on_beside_as_many_pinned_ones_as_there_may_be() {
    for config in configs() {
        for cpus in [1, 3, CPUS] {
            let pool = Pool { usable: 15, cpus, pinned: 15 - 1 - cpus };
            let visits =
                |round: usize| (0..VMS).map(move |vm| Action::Visit { cpu: (vm + round) % cpus, vm });
            let ends = (0..VMS).map(|vm| Action::End { vm });
            let actions: Vec<Action> =
                (0..3).flat_map(visits).chain(ends).chain((3..6).flat_map(visits)).collect();
            let machine = run(pool, config, Fault::None, &actions)
                .unwrap_or_else(|broken| panic!("{config:?}, {pool:?}: {broken}"));
            assert_eq!(machine.allocator().counters().schedule_ins, 6 * VMS as u64, "{config:?}");
            assert!(machine.allocator().pin(&VmidCell::new()).is_err(), "one more");
        }
    }
}

#[test]
fn the_bound_is_kept_and_said() {
    for &policy in Policy::ALL {
        let allocator = Allocator::with_usable(15, 8, policy).unwrap();
        for number in 1..=6 {
            assert_eq!(allocator.pin(&VmidCell::new()), Ok(Vmid(number)), "{policy}");
        }
        let refused = allocator.pin(&VmidCell::new()).unwrap_err();
        assert_eq!(refused, PoolError::TooManyPinned { usable: 15, cpus: 8 }, "{policy}");
        for part in ["at most 6 VMs", "15 usable", "8 CPUs", "vmid.bits"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }
}

#[test]
fn a_pinned_vm_that_ends_is_flushed_and_keeps_its_vmid() {
    for &policy in Policy::ALL {
        let allocator = Allocator::with_usable(4, 1, policy).unwrap();
        let (pinned, hw, slot) = (VmidCell::new(), Recorder::default(), allocator.cpu(CpuId(0)));
        let visit = |cell: &VmidCell| {
            let vmid = allocator.schedule_in(slot, cell, &hw);
            allocator.schedule_out(slot);
            vmid
        };
        assert_eq!(allocator.pin(&pinned), Ok(Vmid(1)));
        assert!(allocator.holds(&pinned));
        visit(&pinned);
        hw.take();
        allocator.release(&pinned, &hw);
        assert_eq!(hw.take(), [Op::InvalidateVmids(vec![1])], "{policy}");
        let others: Vec<VmidCell> = (0..9).map(|_| VmidCell::new()).collect();
        for other in others.iter().chain(&others) {
            assert_ne!(visit(other), Vmid(1), "{policy}");
        }
        assert!(allocator.holds(&pinned), "{policy}");
        assert_eq!(visit(&pinned), Vmid(1), "{policy}");
    }
}
