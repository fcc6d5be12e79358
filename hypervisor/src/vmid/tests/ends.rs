//! What the end of a VM leaves of its VMID.

use super::recorder::Op;
use super::rules::{ALL, Bench, CLEARING, RESERVING};
use crate::vmid::id::Id;
use crate::vmid::{Policy, VmidCell};

#[test]
fn an_ended_vm_gives_its_vmid_back_after_one_targeted_invalidation() {
    for &policy in ALL {
        let bench = Bench::new(3, 1, 4, policy);
        for vm in 0..3 {
            bench.visit(0, vm);
        }
        bench.allocator.release(&bench.vms[1], &bench.hw);
        assert_eq!(bench.hw.take(), [Op::InvalidateVmids(vec![2])]);
        assert_eq!(bench.vms[1].vmid(), None);
        assert_eq!(bench.visit(0, 3), 2, "{policy}");
        assert_eq!(bench.hw.take(), [], "{policy}: no rollover needed");
        let counters = bench.counters();
        assert_eq!((counters.released, counters.tlbi_broadcast, counters.broadcast_barriers), (1, 1, 1));
    }
}

#[test]
fn a_vm_that_ends_twice_or_never_ran_has_nothing_to_give_back() {
    let bench = Bench::new(3, 1, 2, Policy::Clear);
    bench.allocator.release(&bench.vms[0], &bench.hw);
    assert_eq!(bench.hw.take(), []);
    bench.visit(0, 1);
    bench.allocator.release(&bench.vms[1], &bench.hw);
    bench.allocator.release(&bench.vms[1], &bench.hw);
    assert_eq!(bench.hw.take(), [Op::InvalidateVmids(vec![1])]);
}

/// The index of an old generation may be another VM's now: it must not be flushed as free.
#[test]
fn a_vm_of_an_older_generation_does_not_free_another_ones_vmid() {
    for &policy in CLEARING {
        let bench = Bench::new(3, 1, 5, policy);
        for vm in 0..4 {
            bench.visit(0, vm);
        }
        assert_eq!(bench.vms[0].vmid(), bench.vms[3].vmid());
        bench.hw.take();
        bench.allocator.release(&bench.vms[0], &bench.hw);
        assert_eq!(bench.hw.take(), []);
        assert_eq!(bench.enter(0, 3), 1);
        assert_ne!(bench.enter(0, 4), 1);
    }
}

/// A VM that ran through a rollover on one CPU and then ended: its id is old, yet its entries are there.
#[test]
fn a_vm_that_is_only_reserved_is_flushed_when_it_ends() {
    for &policy in RESERVING {
        let bench = Bench::new(3, 2, 6, policy);
        let vmid = bench.enter(0, 0);
        for vm in 1..4 {
            bench.visit(1, vm);
        }
        bench.hw.take();
        bench.leave(0);
        bench.allocator.release(&bench.vms[0], &bench.hw);
        assert_eq!(bench.hw.take(), [Op::InvalidateVmids(vec![vmid])], "{policy}");
        let pool = bench.allocator.pool();
        assert!(!pool.is_used(vmid), "{policy}");
        assert!(pool.reserved.iter().all(|reserved| reserved.index() != vmid), "{policy}");
    }
}

/// Trap 22, the VMID's part of it.
#[test]
fn ten_thousand_vms_one_after_the_other_need_no_rollover() {
    for &policy in ALL {
        let bench = Bench::new(15, 2, 1, policy);
        bench.enter(1, 0);
        for _ in 0..10_000 {
            let vm = VmidCell::new();
            let slot = bench.slot(0);
            bench.allocator.schedule_in(slot, &vm, &bench.hw);
            bench.allocator.schedule_out(slot);
            bench.allocator.release(&vm, &bench.hw);
        }
        let counters = bench.counters();
        assert_eq!((counters.rollovers, counters.released), (0, 10_000), "{policy}");
    }
}

#[test]
fn a_released_vms_slot_does_not_pin_its_index() {
    let bench = Bench::new(3, 2, 1, Policy::V3NoClear);
    bench.visit(0, 0);
    bench.allocator.release(&bench.vms[0], &bench.hw);
    assert_eq!(bench.active(0), Id::IDLE);
}
