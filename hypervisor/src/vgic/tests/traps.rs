//! Faults that other hypervisors have had with interrupts, each a test.

use super::machine::*;
use crate::ids::{IntId, VcpuIndex};
use crate::vgic::fake::{FakeLrs, SPURIOUS};
use crate::vgic::lr::{ACTIVE, HW, PENDING, STATE};
use crate::vgic::{Vgic, control};

#[test]
fn trap_11_a_waiting_vcpu_is_woken_by_injection() {
    let vgic = booted(2);
    let lrs = FakeLrs::open(4);
    // vCPU 1 is scheduled out, and stays so.
    assert!(!vgic.load(V1, &lrs));
    assert_eq!(vgic.pending_here(V1, &lrs), (false, Default::default()));
    assert!(!vgic.save(V1, &lrs, false).timer_active);
    assert!(!vgic.has_deliverable(V1));
    assert_eq!(notified(|mut notify| vgic.send_sgi(V0, sgi(3, 0b10), &mut notify)), [1]);
    assert!(vgic.has_deliverable(V1));
    // Loaded and saved again without having taken it: still to be woken.
    assert!(!vgic.load(V1, &lrs));
    assert!(vgic.flush(V1, &lrs).is_empty());
    vgic.save(V1, &lrs, false);
    assert!(!vgic.attention(V1));
    assert!(vgic.has_deliverable(V1));
}

#[test]
fn trap_11_wfi_does_not_block_on_what_is_in_a_list_register() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.post_private(V0, IntId(3), &mut anybody);
    // Posted, and then found by WFI itself.
    assert!(vgic.pending_here(V0, &lrs).0);
    assert!(vgic.pending_here(V0, &lrs).0, "and still");
    assert_eq!(lrs.acknowledge(), 3);
    assert!(!vgic.pending_here(V0, &lrs).0, "active isn't pending");
    // Completed and posted again, its list register not yet looked at.
    lrs.end(3);
    vgic.post_private(V0, IntId(3), &mut anybody);
    assert!(vgic.pending_here(V0, &lrs).0);
}

#[test]
fn trap_11_wfi_does_not_block_on_a_line_whose_maintenance_interrupt_is_on_its_way() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 33);
    lrs.end(33);
    assert!(vgic.pending_here(V0, &lrs).0);
}

#[test]
fn trap_12_a_timer_in_flight_moves_with_its_vcpu() {
    let vgic = booted(1);
    let (here, there) = (FakeLrs::open(4), FakeLrs::new(4));
    here.physical_fires(27);
    assert!(vgic.inject_timer(V0, &here, TIMER, TIMER).is_empty());
    // Scheduled out before the guest has seen it, its line high: it must be woken for it.
    assert!(vgic.save(V0, &here, true).timer_active);
    here.physical_active.borrow_mut().clear();
    assert!(vgic.has_deliverable(V0));
    // On another CPU: pending there, and its completion deactivates there.
    assert!(vgic.load(V0, &there));
    there.physical_active.borrow_mut().push(27);
    enter(&vgic, V0, &there);
    assert_eq!(there.acknowledge(), 27);
    // Scheduled out once more, in the handler.
    assert!(vgic.save(V0, &there, false).timer_active);
    there.physical_active.borrow_mut().clear();
    assert!(!vgic.has_deliverable(V0));
    assert!(vgic.load(V0, &here));
    here.physical_active.borrow_mut().push(27);
    here.end(27);
    assert!(here.physical_active.borrow().is_empty());
    assert!(!vgic.save(V0, &here, false).timer_active);
    assert!(!vgic.load(V0, &there));
}

#[test]
fn trap_13_more_pending_interrupts_than_list_registers() {
    for count in [1, 2, 4, 16] {
        let vgic = booted(1);
        let lrs = FakeLrs::open(count);
        let intids = (0..15).chain(48..64).collect::<Vec<_>>();
        for &intid in &intids {
            match intid {
                0..32 => vgic.post_private(V0, IntId(intid), &mut anybody),
                _ => vgic.post_spi(IntId(intid), &mut anybody),
            }
        }
        let mut taken = take_all(&vgic, V0, &lrs);
        // Among equals the hardware chooses.
        taken.sort_unstable();
        assert_eq!(taken, intids, "{count} list registers");
        enter(&vgic, V0, &lrs);
        assert_eq!(lrs.control(), control::EN);
    }
}

#[test]
fn trap_13_physical_intids_are_not_cut_to_8_bits() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(1);
    lrs.physical_fires(1019);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, IntId(1019)).is_empty());
    assert_eq!(lrs.values()[0] >> 32 & 0x1fff, 1019);
    // All list registers in use and one waits: the link is cut, and software deactivates the right one.
    vgic.post_private(V0, IntId(1), &mut anybody);
    enter(&vgic, V0, &lrs);
    let mut taken = take_all(&vgic, V0, &lrs);
    taken.sort_unstable();
    assert_eq!(taken, [1, 27]);
    assert!(lrs.physical_active.borrow().is_empty());
}

#[test]
fn trap_14_a_level_triggered_timer_is_injected_once() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 27);
    assert_eq!(lrs.values()[0] & (STATE | HW), ACTIVE | HW);
    assert_eq!(lrs.acknowledge(), SPURIOUS);
    assert_eq!(*lrs.physical_active.borrow(), [27]);
    lrs.end(27);
    assert!(lrs.physical_active.borrow().is_empty());
    assert!(!lrs.maintenance_asserted());
    assert!(take_all(&vgic, V0, &lrs).is_empty());
    // And again, in the same list register.
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    assert_eq!(lrs.values()[0] & (STATE | HW), PENDING | HW);
    assert_eq!(take_all(&vgic, V0, &lrs), [27]);
    assert!(lrs.physical_active.borrow().is_empty());
}

#[test]
fn trap_14_a_timer_masked_while_it_waits_is_not_injected() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    let enable = |on: bool| {
        let offset = SGI_BASE + if on { 0x100 } else { 0x180 };
        vgic.redist_write(V0, &lrs, V0, offset, 4, 1 << 27, &mut anybody);
        enter(&vgic, V0, &lrs);
    };
    enable(false);
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    assert_eq!(lrs.acknowledge(), SPURIOUS);
    assert_eq!(*lrs.physical_active.borrow(), [27], "silent while it waits");
    // The guest masks the timer (IMASK), then enables its interrupt.
    lrs.line.set(false);
    enable(true);
    assert_eq!(lrs.acknowledge(), SPURIOUS);
    assert!(lrs.physical_active.borrow().is_empty(), "it can fire again");
    // With the line still high it is injected when it is enabled.
    enable(false);
    lrs.line.set(true);
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    assert_eq!(redist_read(&vgic, V0, SGI_BASE + 0x200, 4), 1 << 27, "the guest sees it pending");
    enable(true);
    assert_eq!(take_all(&vgic, V0, &lrs), [27]);
    assert!(lrs.physical_active.borrow().is_empty());
}

#[test]
fn trap_14_a_timer_whose_line_fell_is_dropped_at_a_switch() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    assert!(vgic.save(V0, &lrs, false).timer_active, "the physical one was active");
    assert!(!vgic.has_deliverable(V0));
    assert!(!vgic.load(V0, &lrs));
    assert!(take_all(&vgic, V0, &lrs).is_empty());
}

#[test]
fn trap_15_an_sgi_from_two_sources_is_pending_once_as_gicv3_says() {
    let vgic = booted(3);
    let lrs = FakeLrs::open(4);
    assert_eq!(notified(|mut notify| vgic.send_sgi(V1, sgi(3, 0b001), &mut notify)), [0]);
    let second = notified(|mut notify| vgic.send_sgi(VcpuIndex(2), sgi(3, 0b001), &mut notify));
    assert!(second.is_empty(), "it was notified before");
    assert_eq!(take_all(&vgic, V0, &lrs), [3]);
}

#[test]
fn trap_15_an_sgi_that_is_sent_again_in_its_handler_comes_again() {
    let vgic = booted(2);
    let lrs = FakeLrs::open(4);
    vgic.send_sgi(V1, sgi(3, 0b001), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 3);
    for _ in 0..2 {
        vgic.send_sgi(V1, sgi(3, 0b001), &mut anybody);
        enter(&vgic, V0, &lrs);
        assert_eq!(lrs.values()[0] & STATE, STATE);
    }
    assert_eq!(lrs.acknowledge(), SPURIOUS, "not while it is active");
    lrs.end(3);
    assert_eq!(lrs.acknowledge(), 3, "without an exit");
    lrs.end(3);
    assert_eq!(lrs.acknowledge(), SPURIOUS, "once for both");
}

#[test]
fn trap_16_children_asleep_follows_processor_sleep() {
    let vgic = Vgic::new(2);
    for vcpu in [V0, V1] {
        assert_eq!(redist_read(&vgic, vcpu, 0x14, 4), 0b110);
        redist_write(&vgic, vcpu, 0x14, 4, 0b100);
        assert_eq!(redist_read(&vgic, vcpu, 0x14, 4), 0);
        redist_write(&vgic, vcpu, 0x14, 4, 0b010);
        assert_eq!(redist_read(&vgic, vcpu, 0x14, 4), 0b110);
    }
}

#[test]
fn trap_17_access_sizes_of_priorities_configuration_and_routes() {
    let vgic = Vgic::new(4);
    // Priorities of private interrupts and SPIs, bytes and words.
    redist_write(&vgic, V1, SGI_BASE + 0x400, 4, 0x0102_f8ff);
    assert_eq!(redist_read(&vgic, V1, SGI_BASE + 0x400, 4), 0x0000_f8f8);
    redist_write(&vgic, V1, SGI_BASE + 0x41f, 1, 0xa0);
    assert_eq!(redist_read(&vgic, V1, SGI_BASE + 0x41c, 4), 0xa000_0000);
    assert_eq!(redist_read(&vgic, V1, SGI_BASE + 0x41f, 1), 0xa0);
    assert_eq!(redist_read(&vgic, V0, SGI_BASE + 0x41f, 1), 0, "banked");
    dist_write(&vgic, 0x400 + 63, 1, 0x50);
    assert_eq!(dist_read(&vgic, 0x400 + 60, 4), 0x5000_0000);
    dist_write(&vgic, 0x400, 4, 0xffff_ffff);
    assert_eq!(dist_read(&vgic, 0x400, 4), 0, "private ones aren't the distributor's");
    // ITARGETSR is not used with affinity routing.
    dist_write(&vgic, 0x820, 4, 0x0101_0101);
    assert_eq!(dist_read(&vgic, 0x820, 4), 0);
    // Configuration: SGIs are fixed, PPIs and SPIs may be set, the lower bit of each field is reserved.
    redist_write(&vgic, V0, SGI_BASE + 0xc00, 4, 0);
    assert_eq!(redist_read(&vgic, V0, SGI_BASE + 0xc00, 4), 0xaaaa_aaaa);
    redist_write(&vgic, V0, SGI_BASE + 0xc04, 4, 0xc000_0003);
    assert_eq!(redist_read(&vgic, V0, SGI_BASE + 0xc04, 4), 0x8000_0002);
    dist_write(&vgic, 0xc0c, 4, 0xffff_ffff);
    assert_eq!(dist_read(&vgic, 0xc0c, 4), 0xaaaa_aaaa);
    assert_eq!(dist_read(&vgic, 0xc08, 4), 0);
    dist_write(&vgic, 0xc0c, 4, 0x8);
    assert_eq!(dist_read(&vgic, 0xc0c, 4), 0x8);
    // IROUTER as a whole and by halves; Interrupt_Routing_Mode is reserved.
    dist_write(&vgic, 0x6000 + 8 * 40, 8, 0xffff_ff12_8034_5678);
    assert_eq!(dist_read(&vgic, 0x6000 + 8 * 40, 8), 0x12_0034_5678);
    assert_eq!(dist_read(&vgic, 0x6000 + 8 * 40, 4), 0x34_5678);
    assert_eq!(dist_read(&vgic, 0x6004 + 8 * 40, 4), 0x12);
    dist_write(&vgic, 0x6004 + 8 * 40, 4, 0);
    dist_write(&vgic, 0x6000 + 8 * 40, 4, 3);
    assert_eq!(dist_read(&vgic, 0x6000 + 8 * 40, 8), 3);
    assert_eq!(dist_read(&vgic, 0x6000 + 8 * 31, 8), 0, "no SPI");
    // GICR_TYPER as a whole and by halves.
    assert_eq!(redist_read(&vgic, V1, 0x8, 8), 1 << 32 | 1 << 8);
    assert_eq!(redist_read(&vgic, V1, 0xc, 4), 1);
    assert_eq!(redist_read(&vgic, VcpuIndex(3), 0x8, 4), 3 << 8 | 1 << 4, "the last");
    // A size that a register doesn't have.
    for size in [1, 2, 8] {
        assert_eq!(dist_read(&vgic, 0x0, size), 0);
        assert_eq!(redist_read(&vgic, V0, SGI_BASE + 0xc00, size), 0);
    }
}

#[test]
fn trap_18_interrupts_that_do_not_exist_are_ignored() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    for intid in [64, 127, 128, 1019, 1020, 1023, 8192, u32::MAX] {
        vgic.post_spi(IntId(intid), &mut anybody);
        vgic.set_spi_line(IntId(intid), true, &mut anybody);
        vgic.post_private(V0, IntId(intid), &mut anybody);
        vgic.set_ppi_line(V0, IntId(intid), true, &mut anybody);
        lrs.physical_fires(27);
        assert!(vgic.inject_timer(V0, &lrs, IntId(intid), TIMER).is_empty());
        assert!(lrs.physical_active.borrow().is_empty(), "deactivated, or it never fires again");
    }
    for vcpu in [1, 7, 8, 255] {
        vgic.post_private(VcpuIndex(vcpu), IntId(1), &mut anybody);
        vgic.set_ppi_line(VcpuIndex(vcpu), IntId(20), true, &mut anybody);
    }
    vgic.send_sgi(V0, sgi(1, 0xfffe), &mut anybody);
    assert!(!vgic.attention(V0));
    assert!(take_all(&vgic, V0, &lrs).is_empty());
}

#[test]
fn trap_19_list_registers_belong_to_the_vcpu_not_to_the_cpu() {
    let vgic = booted(2);
    let other = booted(1);
    let (a, b) = (FakeLrs::open(2), FakeLrs::new(2));
    vgic.post_private(V0, IntId(4), &mut anybody);
    vgic.post_private(V1, IntId(5), &mut anybody);
    other.post_private(V0, IntId(6), &mut anybody);
    enter(&vgic, V0, &a);
    assert_eq!(a.acknowledge(), 4);
    // In its handler it is moved; others run where it was.
    vgic.save(V0, &a, false);
    assert_eq!(a.running(), 0x100, "its priority has gone with it");
    assert!(!vgic.load(V1, &a));
    crate::vgic::ListRegisters::set_vmcr(&a, crate::vgic::fake::OPEN);
    assert_eq!(take_all(&vgic, V1, &a), [5]);
    vgic.save(V1, &a, false);
    assert!(!other.load(V0, &a));
    crate::vgic::ListRegisters::set_vmcr(&a, crate::vgic::fake::OPEN);
    assert_eq!(take_all(&other, V0, &a), [6]);
    other.save(V0, &a, false);
    assert!(!vgic.load(V0, &b));
    assert_eq!(b.running(), 0xa0);
    b.end(4);
    assert!(take_all(&vgic, V0, &b).is_empty());
}
