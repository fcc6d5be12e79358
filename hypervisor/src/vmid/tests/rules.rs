//! The rules one by one, on one thread.

use super::recorder::{Op, Recorder};
use crate::ids::{CpuId, Vmid};
use crate::vmid::id::Id;
use crate::vmid::sync::Relaxed;
use crate::vmid::{Allocator, CpuSlot, Policy, PoolError, VmidCell, VmidCounters};

/// An allocator, VMs, and the recording hardware.
pub struct Bench {
    pub allocator: Allocator,
    pub vms: Vec<VmidCell>,
    pub hw: Recorder,
}

impl Bench {
    pub fn new(usable: u32, cpus: usize, vms: usize, policy: Policy) -> Self {
        Bench {
            allocator: Allocator::with_usable(usable, cpus, policy).unwrap(),
            vms: (0..vms).map(|_| VmidCell::new()).collect(),
            hw: Recorder::default(),
        }
    }

    pub fn slot(&self, cpu: usize) -> &CpuSlot {
        self.allocator.cpu(CpuId(cpu as u16))
    }

    pub fn enter(&self, cpu: usize, vm: usize) -> u16 {
        self.allocator.schedule_in(self.slot(cpu), &self.vms[vm], &self.hw).0
    }

    pub fn leave(&self, cpu: usize) {
        self.allocator.schedule_out(self.slot(cpu));
    }

    /// Runs a VM for a moment.
    pub fn visit(&self, cpu: usize, vm: usize) -> u16 {
        let vmid = self.enter(cpu, vm);
        self.leave(cpu);
        vmid
    }

    pub fn active(&self, cpu: usize) -> Id {
        Id(self.slot(cpu).active.load(Relaxed))
    }

    pub fn counters(&self) -> VmidCounters {
        self.allocator.counters()
    }
}

pub const ALL: &[Policy] = Policy::ALL;
/// Those that clear the slot to something that no rollover reserves.
pub const CLEARING: &[Policy] = &[Policy::Clear, Policy::TriState, Policy::Merged];
/// Those with rollovers, through which what runs keeps its VMID.
pub const RESERVING: &[Policy] =
    &[Policy::Clear, Policy::TriState, Policy::V3NoClear, Policy::V3ClearZero, Policy::Merged];

#[test]
fn indices_are_given_from_1_on_and_0_never() {
    for &policy in ALL {
        let bench = Bench::new(15, 2, 40, policy);
        let given: Vec<u16> = (0..15).map(|vm| bench.visit(0, vm)).collect();
        assert_eq!(given, (1..=15).collect::<Vec<_>>());
        for round in 0..200 {
            assert_ne!(bench.visit(round % 2, round % 40), 0);
        }
    }
}

#[test]
fn a_vm_that_never_ran_has_no_vmid() {
    let bench = Bench::new(15, 1, 1, Policy::Clear);
    assert_eq!(bench.vms[0].vmid(), None);
    bench.enter(0, 0);
    assert_eq!(bench.vms[0].vmid(), Some(Vmid(1)));
}

#[test]
fn the_first_schedule_in_of_a_cpu_is_slow_and_the_next_ones_fast() {
    let bench = Bench::new(15, 2, 2, Policy::Clear);
    bench.visit(0, 0);
    bench.visit(0, 0);
    bench.visit(1, 0);
    bench.visit(1, 0);
    let counters = bench.counters();
    assert_eq!((counters.fast, counters.slow), (2, 2));
    assert_eq!((counters.allocations, counters.unchanged), (1, 1));
    assert_eq!(bench.hw.take(), []);
}

#[test]
fn a_vm_has_one_vmid_on_all_cpus() {
    for &policy in ALL {
        let bench = Bench::new(9, 8, 8, policy);
        let vmid = bench.enter(0, 3);
        for cpu in 1..8 {
            assert_eq!(bench.enter(cpu, 3), vmid);
        }
    }
}

/// Trap 8: a pool that runs out refuses nobody and never reuses a VMID in silence.
#[test]
fn a_full_pool_rolls_over_with_one_broadcast_before_a_vmid_is_given_again() {
    for &policy in RESERVING {
        let bench = Bench::new(3, 1, 4, policy);
        for vm in 0..3 {
            bench.visit(0, vm);
        }
        assert_eq!(bench.hw.take(), [], "{policy}");
        let vmid = bench.enter(0, 3);
        assert_eq!(bench.hw.take(), [Op::InvalidateAll], "{policy}");
        // Without the clear, the CPU's last VM is reserved still: it has VMID 3.
        assert_eq!(vmid, 1, "{policy}");
        assert_eq!(bench.counters().rollovers, 1);
    }
}

/// Trap 8, the other end: the widest pool gives all of 1..=65535, then rolls over.
#[test]
fn sixteen_bits_give_all_65535_before_the_first_rollover() {
    let allocator = Allocator::new(16, 128, Policy::Clear).unwrap();
    let hw = Recorder::default();
    let slot = allocator.cpu(CpuId(127));
    let cells: Vec<VmidCell> = (0..65536).map(|_| VmidCell::new()).collect();
    for (n, cell) in cells.iter().enumerate().take(65535) {
        assert_eq!(allocator.schedule_in(slot, cell, &hw).0 as usize, n + 1);
    }
    assert_eq!(hw.take(), []);
    assert_eq!(allocator.schedule_in(slot, &cells[65535], &hw), Vmid(1));
    assert_eq!(hw.take(), [Op::InvalidateAll]);
}

/// Trap 9: with 0 in the slot, everybody is in the slow path; with the distinct value nobody is.
#[test]
fn only_clear_zero_takes_the_lock_at_every_schedule_in() {
    for &policy in ALL {
        let bench = Bench::new(15, 1, 2, policy);
        bench.visit(0, 0);
        bench.visit(0, 1);
        let before = bench.counters();
        for n in 0..100 {
            bench.visit(0, n % 2);
        }
        let slow = bench.counters().slow - before.slow;
        assert_eq!(slow, if policy == Policy::V3ClearZero { 100 } else { 0 }, "{policy}");
    }
}

#[test]
fn a_running_vm_keeps_its_vmid_through_a_rollover() {
    for &policy in RESERVING {
        let bench = Bench::new(4, 2, 6, policy);
        let running = bench.enter(0, 0);
        for vm in 1..6 {
            assert_ne!(bench.visit(1, vm), running, "{policy}");
        }
        assert!(bench.counters().rollovers > 0);
        // Its second vCPU comes on the other CPU, while the first one still runs under the old generation.
        let reserved = bench.counters().reserved;
        assert_eq!(bench.enter(1, 0), running, "{policy}");
        assert_eq!(bench.counters().reserved, reserved + 1, "{policy}");
    }
}

/// Trap 10: CPU 0 runs VM 0 through many rollovers without ever coming back.
#[test]
fn a_cpu_in_suspended_animation_keeps_its_vmid_across_many_rollovers() {
    for &policy in RESERVING {
        let bench = Bench::new(3, 2, 8, policy);
        let running = bench.enter(0, 0);
        for n in 0..100 {
            assert_ne!(bench.visit(1, 1 + n % 7), running, "{policy}");
        }
        assert!(bench.counters().rollovers > 10);
        bench.leave(0);
        assert_eq!(bench.enter(0, 0), running, "{policy}");
    }
}

/// Several CPUs run one VM at the rollover, and those whose slots come first come back. If only the first
/// matching slot were rewritten, the CPU that sleeps through the next rollover too would hold an id that isn't
/// its VM's any more, and the VM would get a second VMID.
#[test]
fn every_matching_reserved_slot_is_rewritten() {
    for &policy in RESERVING {
        let bench = Bench::new(5, 4, 9, policy);
        let running = bench.enter(0, 0);
        bench.enter(1, 0);
        bench.enter(2, 0);
        let mut others = (1..9).cycle();
        for rollover in 1..20 {
            while bench.counters().rollovers < rollover {
                assert_ne!(bench.visit(3, others.next().unwrap()), running, "{policy}");
            }
            // CPU 2 stays in the guest. CPUs 0 and 1 come back, and go on to something else.
            for cpu in 0..2 {
                if rollover == 1 {
                    bench.leave(cpu);
                }
                assert_eq!(bench.visit(cpu, 0), running, "{policy}, CPU {cpu}, rollover {rollover}");
                bench.visit(cpu, 1);
            }
        }
    }
}

/// Schedule-out after a rollover must not make the CPU forget the rollover.
#[test]
fn schedule_out_leaves_a_rollovers_0_alone() {
    let bench = Bench::new(3, 2, 8, Policy::Clear);
    bench.enter(0, 0);
    for vm in 1..4 {
        bench.visit(1, vm);
    }
    assert_eq!(bench.counters().rollovers, 1);
    assert_eq!(bench.active(0), Id::NONE);
    bench.leave(0);
    assert_eq!(bench.active(0), Id::NONE);
    let slow = bench.counters().slow;
    bench.enter(0, 0);
    assert_eq!(bench.counters().slow, slow + 1);
}

#[test]
fn an_idle_cpu_reserves_nothing_with_the_clear_and_one_vmid_without() {
    for &policy in RESERVING {
        let bench = Bench::new(4, 2, 8, policy);
        bench.visit(0, 0);
        // Again, as clear-zero's first rollover finds 0 either way.
        bench.visit(0, 0);
        for vm in 1..5 {
            bench.visit(1, vm);
        }
        assert_eq!(bench.counters().rollovers, 1);
        let pool = bench.allocator.pool();
        let reserved = pool.reserved[0];
        match policy {
            Policy::V3NoClear => assert_eq!(reserved.index(), 1),
            _ => assert_eq!(reserved, Id::NONE, "{policy}"),
        }
    }
}

#[test]
fn a_vm_whose_old_index_is_free_takes_it_again() {
    for &policy in CLEARING {
        let bench = Bench::new(4, 1, 6, policy);
        for vm in 0..5 {
            bench.visit(0, vm);
        }
        // VM 4 rolled over and has 1. VM 2 had 3, which nobody has taken since.
        assert_eq!(bench.enter(0, 2), 3);
        let counters = bench.counters();
        assert_eq!((counters.allocations, counters.reserved, counters.rollovers), (6, 0, 1));
    }
}

/// Who unmaps something, and finds a VM's former VMID in its cell, must know that nobody walks under the new one yet.
#[test]
fn a_new_vmid_is_published_before_the_guest_is_entered() {
    for &policy in ALL {
        let bench = Bench::new(3, 1, 5, policy);
        for vm in 0..3 {
            bench.visit(0, vm);
            assert_eq!(bench.hw.take_all(), [Op::PublishId], "{policy}");
        }
        bench.visit(0, 3);
        let ops = bench.hw.take_all();
        let at = |wanted: Op| ops.iter().position(|op| *op == wanted);
        assert!(at(Op::PublishId) > at(Op::InvalidateAll), "{policy}: {ops:?}");
        bench.visit(0, 3);
        assert_eq!(bench.hw.take_all(), [], "{policy}: it has it already");
    }
}

#[test]
fn the_clock_is_read_on_the_slow_path_alone() {
    let bench = Bench::new(15, 1, 1, Policy::Clear);
    for _ in 0..50 {
        bench.visit(0, 0);
    }
    assert_eq!(bench.hw.clock_readings(), 2);
    assert_eq!(bench.counters().slow_ticks, 10);
}

#[test]
fn local_invalidations_are_counted_where_they_are_reported() {
    let bench = Bench::new(15, 2, 1, Policy::Clear);
    bench.slot(1).count_local_invalidation();
    assert_eq!(bench.counters().tlbi_local, 1);
}

#[test]
fn there_must_be_more_vmids_than_cpus_and_the_error_says_how_many() {
    let error = |bits, cpus| Allocator::new(bits, cpus, Policy::Clear).err().map(|error| error.to_string());
    assert_eq!(error(4, 14), None);
    assert_eq!(
        error(4, 15).unwrap(),
        "15 usable VMIDs are too few for 15 CPUs, as each CPU may keep one through a rollover: \
         use at least 5 bits, or at most 14 CPUs"
    );
    assert!(error(4, 16).unwrap().contains("at least 5 bits"));
    assert!(error(4, 128).unwrap().contains("at least 8 bits"));
    assert_eq!(error(8, 128), None);
    assert_eq!(error(16, 128), None);
    for bits in [0, 3, 17, 255] {
        assert_eq!(Allocator::new(bits, 1, Policy::Clear).err(), Some(PoolError::Width { bits }));
        assert!(error(bits, 1).unwrap().contains("from 4 to 16 bits"));
    }
    assert_eq!(Allocator::new(8, 0, Policy::Clear).err(), Some(PoolError::NoCpu));
    assert!(Allocator::with_usable(65536, 1, Policy::Clear).is_err());
}

#[test]
fn policies_have_names_that_parse() {
    for &policy in ALL {
        assert_eq!(Policy::parse(policy.name()), Ok(policy));
    }
    assert_eq!(Policy::default(), Policy::Clear);
    let error = "v2".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "no such VMID policy; there are: clear, tri-state, reclaim, v3-no-clear, v3-clear-zero, merged, global"
    );
}

#[test]
fn each_cpus_slot_has_its_own_cache_lines() {
    assert_eq!(align_of::<CpuSlot>(), 128);
    assert_eq!(size_of::<CpuSlot>() % 128, 0);
}
