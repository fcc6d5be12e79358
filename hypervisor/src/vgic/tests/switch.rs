//! Saving and loading, reset, and how many accesses the short paths take.

use super::machine::*;
use crate::ids::IntId;
use crate::vgic::fake::FakeLrs;
use crate::vgic::{ListRegisters, Vgic, control};

/// Accesses to the hardware that `action` makes.
fn accesses<T>(lrs: &FakeLrs, action: impl FnOnce() -> T) -> usize {
    lrs.accesses.set(0);
    action();
    lrs.accesses.get()
}

#[test]
fn short_paths_touch_few_registers() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.post_private(V0, IntId(1), &mut anybody);
    assert_eq!(accesses(&lrs, || vgic.flush(V0, &lrs)), 1, "no list register in use");
    assert_eq!(take_all(&vgic, V0, &lrs), [1]);
    vgic.post_private(V0, IntId(2), &mut anybody);
    assert_eq!(accesses(&lrs, || vgic.flush(V0, &lrs)), 2, "one that has ended");
    assert_eq!(take_all(&vgic, V0, &lrs), [2]);
    lrs.physical_fires(27);
    assert_eq!(accesses(&lrs, || vgic.inject_timer(V0, &lrs, TIMER, TIMER)), 2);
    assert_eq!(accesses(&lrs, || vgic.save(V0, &lrs, true)), 5, "one list register in use");
    assert_eq!(accesses(&lrs, || vgic.load(V0, &lrs)), 2);
    lrs.physical_active.borrow_mut().clear();
    assert_eq!(take_all(&vgic, V0, &lrs), [27]);
    vgic.save(V0, &lrs, false);
    assert_eq!(accesses(&lrs, || vgic.load(V0, &lrs)), 1, "nothing in use");
    assert_eq!(accesses(&lrs, || vgic.save(V0, &lrs, false)), 3);
}

#[test]
fn init_cpu_puts_the_hardware_at_rest() {
    let lrs = FakeLrs::open(4);
    lrs.write(2, u64::MAX);
    lrs.set_apr(1, 0, 7);
    lrs.set_control(control::UIE);
    Vgic::init_cpu(&lrs);
    assert!(lrs.values().iter().all(|&lr| lr == 0));
    assert_eq!((lrs.running(), lrs.vmcr(), lrs.control()), (0x100, 0, control::EN));
}

#[test]
fn what_waits_for_a_list_register_still_waits_on_another_cpu() {
    let vgic = booted(1);
    let (a, b) = (FakeLrs::open(2), FakeLrs::new(2));
    for intid in 0..6 {
        vgic.post_private(V0, IntId(intid), &mut anybody);
    }
    enter(&vgic, V0, &a);
    assert_eq!(a.acknowledge(), 0);
    vgic.save(V0, &a, false);
    assert_eq!(a.control(), control::EN);
    assert!(vgic.has_deliverable(V0));
    assert!(!vgic.load(V0, &b));
    b.end(0);
    let mut taken = take_all(&vgic, V0, &b);
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 3, 4, 5]);
}

#[test]
fn a_line_that_is_high_at_the_end_wakes_a_vcpu_that_was_switched_away_before_the_maintenance_interrupt() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 33);
    lrs.end(33);
    // The exit that switches is quicker than the maintenance interrupt.
    vgic.save(V0, &lrs, false);
    assert!(vgic.has_deliverable(V0));
    assert!(!vgic.load(V0, &lrs));
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 33);
}

#[test]
fn a_line_that_falls_while_its_vcpu_is_not_loaded_is_taken_back() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    enter(&vgic, V0, &lrs);
    vgic.save(V0, &lrs, false);
    vgic.set_spi_line(IntId(33), false, &mut anybody);
    assert!(!vgic.load(V0, &lrs));
    assert!(take_all(&vgic, V0, &lrs).is_empty());
}

#[test]
fn a_vcpu_that_is_reset_gives_everything_back() {
    let vgic = booted(2);
    let (a, b) = (FakeLrs::open(8), FakeLrs::open(8));
    for intid in [48, 49] {
        vgic.post_spi(IntId(intid), &mut anybody);
    }
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    vgic.post_private(V0, IntId(3), &mut anybody);
    enter(&vgic, V0, &a);
    assert_eq!(a.acknowledge(), 3);
    vgic.save(V0, &a, false);
    // The guest moves its SPIs to vCPU 1; vCPU 0 turns itself off before it has given them back.
    for intid in [33, 48, 49] {
        vgic.dist_write(V1, &b, 0x6000 + 8 * intid, 8, 1, &mut anybody);
    }
    assert!(take_all(&vgic, V1, &b).is_empty());
    assert_eq!(vgic.reset_vcpu(V0).map(|vcpu| vcpu.0).collect::<Vec<_>>(), [1]);
    vgic.set_spi_line(IntId(33), false, &mut anybody);
    assert_eq!(take_all(&vgic, V1, &b), [48, 49]);
    // Back on: nothing is active, nothing is pending, its interface is closed.
    assert!(!vgic.load(V0, &a));
    assert_eq!((a.vmcr(), a.running()), (0, 0x100));
    crate::vgic::ListRegisters::set_vmcr(&a, crate::vgic::fake::OPEN);
    assert!(take_all(&vgic, V0, &a).is_empty());
    vgic.post_private(V0, IntId(3), &mut anybody);
    assert_eq!(take_all(&vgic, V0, &a), [3]);
}

#[test]
fn a_vm_that_is_reset_is_as_new() {
    let vgic = booted(2);
    let lrs = FakeLrs::open(1);
    for intid in 0..4 {
        vgic.post_private(V0, IntId(intid), &mut anybody);
        vgic.post_spi(IntId(48 + intid), &mut anybody);
    }
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    dist_write(&vgic, 0x6000 + 8 * 54, 8, 1);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 0);
    vgic.save(V0, &lrs, false);
    vgic.reset();
    let new = Vgic::new(2);
    for offset in (0..0x1_0000).step_by(4) {
        assert_eq!(dist_read(&vgic, offset, 4), dist_read(&new, offset, 4), "{offset:#x}");
    }
    for offset in (0..0x2_0000).step_by(4) {
        for vcpu in [V0, V1] {
            assert_eq!(
                redist_read(&vgic, vcpu, offset, 4),
                redist_read(&new, vcpu, offset, 4),
                "{offset:#x}"
            );
        }
    }
    for vcpu in [V0, V1] {
        assert!(!vgic.attention(vcpu) && !vgic.has_deliverable(vcpu));
        assert!(!vgic.load(vcpu, &lrs));
        assert_eq!((lrs.vmcr(), lrs.running(), lrs.control()), (0, 0x100, control::EN));
    }
}
