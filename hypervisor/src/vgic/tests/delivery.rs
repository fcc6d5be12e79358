//! What reaches the guest, in which order, and what is taken back.

use super::machine::*;
use crate::ids::{IntId, VcpuIndex};
use crate::vgic::fake::{FakeLrs, SPURIOUS};
use crate::vgic::lr::{GROUP1, PENDING, STATE};
use crate::vgic::{ListRegisters, control};

fn write(vgic: &crate::vgic::Vgic, lrs: &FakeLrs, offset: u64, value: u64) {
    vgic.redist_write(V0, lrs, V0, SGI_BASE + offset, 4, value, &mut anybody);
}

#[test]
fn the_most_urgent_comes_first_and_makes_room_for_itself() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(2);
    for (intid, priority) in [(1, 0xb0), (2, 0xa0), (3, 0x90), (4, 0x90)] {
        redist_write(&vgic, V0, SGI_BASE + 0x400 + intid, 1, priority);
    }
    vgic.post_private(V0, IntId(1), &mut anybody);
    vgic.post_private(V0, IntId(2), &mut anybody);
    enter(&vgic, V0, &lrs);
    // Both list registers hold less urgent ones.
    vgic.post_private(V0, IntId(4), &mut anybody);
    vgic.post_private(V0, IntId(3), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.control(), control::EN | control::NPIE | control::UIE);
    let taken = take_all(&vgic, V0, &lrs);
    // Among equals the hardware chooses.
    assert!(taken == [3, 4, 2, 1] || taken == [4, 3, 2, 1], "{taken:?}");
}

#[test]
fn an_urgent_one_preempts_the_handler_of_another() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    redist_write(&vgic, V0, SGI_BASE + 0x402, 1, 0x40);
    vgic.post_private(V0, IntId(1), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 1);
    vgic.post_private(V0, IntId(3), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), SPURIOUS, "the same priority waits");
    vgic.post_private(V0, IntId(2), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 2);
    lrs.end(2);
    lrs.end(1);
    assert_eq!(lrs.acknowledge(), 3);
}

#[test]
fn list_registers_full_of_active_interrupts_do_not_lose_the_next_one() {
    // EOImode 1: priorities are dropped, deactivation comes much later and in any order.
    for count in [1, 2, 4] {
        for first in 0..count {
            let vgic = booted(1);
            let lrs = FakeLrs::open(count);
            lrs.set_eoi_mode(true);
            for intid in 0..count as u32 {
                vgic.post_private(V0, IntId(intid), &mut anybody);
                enter(&vgic, V0, &lrs);
                assert_eq!(lrs.acknowledge(), intid);
                lrs.end(intid);
            }
            vgic.post_private(V0, IntId(9), &mut anybody);
            enter(&vgic, V0, &lrs);
            assert_eq!(lrs.acknowledge(), SPURIOUS);
            lrs.deactivate_virtual(first as u32);
            assert!(lrs.maintenance_asserted(), "{count} list registers, {first} ends");
            enter(&vgic, V0, &lrs);
            assert_eq!(lrs.acknowledge(), 9);
        }
    }
}

#[test]
fn a_linked_timer_that_is_active_gives_its_list_register_back_too() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(1);
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    assert_eq!(lrs.acknowledge(), 27);
    vgic.post_private(V0, IntId(9), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(*lrs.physical_active.borrow(), [27]);
    lrs.end(27);
    enter(&vgic, V0, &lrs);
    assert!(lrs.physical_active.borrow().is_empty());
    assert_eq!(lrs.acknowledge(), 9);
}

#[test]
fn what_is_disabled_in_a_list_register_is_taken_back_and_kept() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.post_private(V0, IntId(3), &mut anybody);
    lrs.physical_fires(27);
    assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
    enter(&vgic, V0, &lrs);
    write(&vgic, &lrs, 0x180, 1 << 3 | 1 << 27);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), SPURIOUS);
    assert_eq!(vgic.redist_read(V0, &lrs, V0, SGI_BASE + 0x200, 4), 1 << 3 | 1 << 27);
    assert_eq!(*lrs.physical_active.borrow(), [27]);
    write(&vgic, &lrs, 0x100, 1 << 3 | 1 << 27);
    assert_eq!(take_all(&vgic, V0, &lrs), [3, 27]);
    assert!(lrs.physical_active.borrow().is_empty());
}

#[test]
fn an_spi_disabled_by_another_vcpu_is_taken_back_once_its_owner_is_told() {
    let vgic = booted(2);
    let (a, b) = (FakeLrs::open(4), FakeLrs::open(4));
    vgic.post_spi(IntId(48), &mut anybody);
    enter(&vgic, V0, &a);
    let disable = |bits| notified(|mut notify| vgic.dist_write(V1, &b, 0x184, 4, bits, &mut notify));
    assert!(disable(1 << 21).is_empty(), "not in a list register");
    assert_eq!(disable(1 << 16), [0]);
    enter(&vgic, V0, &a);
    assert_eq!(a.acknowledge(), SPURIOUS);
    let seen = notified(|mut notify| vgic.dist_write(V1, &b, 0x104, 4, 1 << 16, &mut notify));
    assert_eq!(seen, [0]);
    assert_eq!(take_all(&vgic, V0, &a), [48]);
}

#[test]
fn groups_decide_what_is_given_and_how() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    // SGI 2 goes to group 0, as does nothing else.
    write(&vgic, &lrs, 0x80, !(1u64 << 2) & 0xffff_ffff);
    dist_write(&vgic, 0, 4, 0b10);
    // Nothing but group 1 is on.
    vgic.post_private(V0, IntId(2), &mut anybody);
    vgic.post_private(V0, IntId(3), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.values()[0] & (STATE | GROUP1 | 0xff), PENDING | GROUP1 | 3);
    assert_eq!(lrs.values()[1], 0, "group 0 is off");
    let seen = notified(|mut notify| vgic.dist_write(V0, &lrs, 0, 4, 0b11, &mut notify));
    assert!(seen.is_empty());
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.values()[1] & (STATE | GROUP1 | 0xff), PENDING | 2);
    dist_write(&vgic, 0, 4, 0);
    enter(&vgic, V0, &lrs);
    assert!(lrs.values().iter().all(|lr| lr & STATE == 0), "all off: taken back");
    assert!(!vgic.has_deliverable(V0));
    dist_write(&vgic, 0, 4, 0b11);
    assert!(vgic.has_deliverable(V0));
}

#[test]
fn a_line_is_served_again_while_it_is_high_and_not_after() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    for _ in 0..3 {
        enter(&vgic, V0, &lrs);
        assert_eq!(lrs.acknowledge(), 33);
        assert_eq!(lrs.acknowledge(), SPURIOUS);
        lrs.end(33);
        assert!(lrs.maintenance_asserted());
    }
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 33);
    // The handler's access to the device lowers it.
    vgic.set_spi_line(IntId(33), false, &mut anybody);
    enter(&vgic, V0, &lrs);
    lrs.end(33);
    assert!(take_all(&vgic, V0, &lrs).is_empty());
    assert!(!lrs.maintenance_asserted() && lrs.values().iter().all(|&lr| lr == 0));
    // Raised and lowered before the guest looks: never seen.
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    enter(&vgic, V0, &lrs);
    vgic.set_spi_line(IntId(33), false, &mut anybody);
    assert!(take_all(&vgic, V0, &lrs).is_empty());
}

#[test]
fn only_a_change_of_a_line_is_told() {
    let vgic = booted(1);
    let change = |high| notified(|mut notify| vgic.set_spi_line(IntId(33), high, &mut notify));
    assert_eq!(change(true), [0]);
    assert!(change(true).is_empty());
    assert!(change(false).is_empty(), "not in a list register: nothing to give back");
    assert!(change(false).is_empty());
}

#[test]
fn an_spi_goes_where_it_is_routed() {
    let vgic = booted(3);
    let lrs = [FakeLrs::open(4), FakeLrs::open(4), FakeLrs::open(4)];
    let route = |intid: u64, to: u64| {
        notified(|mut notify| vgic.dist_write(V0, &lrs[0], 0x6000 + 8 * intid, 8, to, &mut notify))
    };
    assert!(route(48, 1).is_empty());
    assert_eq!(notified(|mut notify| vgic.post_spi(IntId(48), &mut notify)), [1]);
    assert!(take_all(&vgic, V0, &lrs[0]).is_empty());
    enter(&vgic, V1, &lrs[1]);
    // It is pending at vCPU 1 when it is moved on: taken back there, and told here.
    assert_eq!(route(48, 2), [1, 2]);
    assert!(take_all(&vgic, VcpuIndex(2), &lrs[2]).is_empty());
    assert_eq!(vgic.flush(V1, &lrs[1]).map(|vcpu| vcpu.0).collect::<Vec<_>>(), [2]);
    assert!(vgic.attention(VcpuIndex(2)));
    assert_eq!(take_all(&vgic, VcpuIndex(2), &lrs[2]), [48]);
    // To nobody: it waits for a route.
    for (nobody, last) in [(3, 2), (7, 1), (8, 1), (0x100, 1), (0x1_0000, 1), (1 << 32, 1)] {
        assert_eq!(route(48, nobody), [last], "which may have it still");
        enter(&vgic, VcpuIndex(last), &lrs[last as usize]);
        assert!(notified(|mut notify| vgic.post_spi(IntId(48), &mut notify)).is_empty(), "{nobody:#x}");
        route(48, 1);
        assert_eq!(take_all(&vgic, V1, &lrs[1]), [48]);
    }
}

#[test]
fn an_spi_moved_while_it_is_active_is_given_on_at_its_end() {
    let vgic = booted(2);
    let (a, b) = (FakeLrs::open(4), FakeLrs::open(4));
    vgic.post_spi(IntId(48), &mut anybody);
    enter(&vgic, V0, &a);
    assert_eq!(a.acknowledge(), 48);
    vgic.dist_write(V1, &b, 0x6000 + 8 * 48, 8, 1, &mut anybody);
    vgic.post_spi(IntId(48), &mut anybody);
    enter(&vgic, V0, &a);
    assert!(take_all(&vgic, V1, &b).is_empty(), "not on two CPUs at once");
    a.end(48);
    assert!(a.maintenance_asserted());
    assert!(vgic.maintenance(V0, &a).contains(V1));
    assert_eq!(take_all(&vgic, V1, &b), [48]);
}

#[test]
fn sgis_find_their_targets() {
    let vgic = booted(4);
    let send = |value| notified(|mut notify| vgic.send_sgi(V1, value, &mut notify));
    let pending = |v| redist_read(&vgic, VcpuIndex(v), SGI_BASE + 0x200, 4);
    assert_eq!(send(sgi(15, 0b1101)), [0, 2, 3]);
    assert_eq!([0, 1, 2, 3].map(pending), [1 << 15, 0, 1 << 15, 1 << 15]);
    // Itself, and those that don't exist.
    assert!(send(sgi(2, 0xfff2)).is_empty());
    assert_eq!(pending(1), 1 << 2);
    assert!(vgic.attention(V1));
    // All but itself; the list is ignored.
    assert_eq!(send(1 << 40 | sgi(1, 0b10)), [0, 2, 3]);
    assert_eq!(pending(1), 1 << 2);
    // Another cluster, or range.
    for beyond in [1 << 16, 1 << 32, 1 << 48, 1 << 44] {
        assert!(send(beyond | sgi(7, 0b1111)).is_empty());
    }
    assert!([0, 1, 2, 3].iter().all(|&v| pending(v) & 1 << 7 == 0));
    // One that its target has in group 0 is not for ICC_SGI1R_EL1.
    redist_write(&vgic, V0, SGI_BASE + 0x80, 4, !(1u64 << 9) & 0xffff_ffff);
    assert_eq!(send(sgi(9, 0b101)), [2]);
    assert_eq!(pending(0) & 1 << 9, 0);
    // One that is disabled is kept and not told.
    redist_write(&vgic, V0, SGI_BASE + 0x180, 4, 1 << 8);
    assert!(send(sgi(8, 1)).is_empty());
    let enabled = notified(|mut notify| {
        vgic.redist_write(V1, &FakeLrs::new(1), V0, SGI_BASE + 0x100, 4, 1 << 8, &mut notify)
    });
    assert_eq!(enabled, [0]);
}

#[test]
fn the_guest_reads_and_writes_the_state_of_what_is_in_its_list_registers() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    let read = |offset| vgic.redist_read(V0, &lrs, V0, SGI_BASE + offset, 4);
    vgic.post_private(V0, IntId(1), &mut anybody);
    vgic.post_private(V0, IntId(2), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), 1);
    assert_eq!((read(0x200), read(0x300)), (1 << 2, 1 << 1));
    assert_eq!((read(0x280), read(0x380)), (1 << 2, 1 << 1));
    // Active made inactive, pending cleared.
    write(&vgic, &lrs, 0x380, 1 << 1);
    write(&vgic, &lrs, 0x280, 1 << 2);
    assert_eq!((read(0x200), read(0x300)), (0, 0));
    lrs.end(1);
    assert!(take_all(&vgic, V0, &lrs).is_empty());
    // Made pending and active by registers: active at first, given when it is deactivated.
    write(&vgic, &lrs, 0x300, 1 << 4);
    write(&vgic, &lrs, 0x200, 1 << 4);
    assert_eq!((read(0x200), read(0x300)), (1 << 4, 1 << 4));
    enter(&vgic, V0, &lrs);
    assert_eq!(lrs.acknowledge(), SPURIOUS);
    assert_eq!((read(0x200), read(0x300)), (1 << 4, 1 << 4));
    write(&vgic, &lrs, 0x380, 1 << 4);
    assert_eq!(take_all(&vgic, V0, &lrs), [4]);
    // The same, deactivated by the CPU interface.
    write(&vgic, &lrs, 0x300, 1 << 5);
    enter(&vgic, V0, &lrs);
    lrs.deactivate_virtual(5);
    vgic.post_private(V0, IntId(5), &mut anybody);
    assert_eq!(take_all(&vgic, V0, &lrs), [5]);
}

#[test]
fn the_state_of_spis_in_list_registers_is_read_and_written_too() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    let read = |offset| vgic.dist_read(V0, &lrs, offset, 4);
    let write = |offset, value| vgic.dist_write(V0, &lrs, offset, 4, value, &mut anybody);
    vgic.post_spi(IntId(49), &mut anybody);
    vgic.set_spi_line(IntId(33), true, &mut anybody);
    enter(&vgic, V0, &lrs);
    assert_eq!(read(0x204), 1 << 1 | 1 << 17);
    assert_eq!(lrs.acknowledge(), 33);
    assert_eq!(read(0x304), 1 << 1);
    // A line that is high can't be cleared.
    write(0x284, 1 << 1 | 1 << 17);
    assert_eq!(read(0x204), 1 << 1);
    vgic.set_spi_line(IntId(33), false, &mut anybody);
    write(0x384, 1 << 1);
    assert_eq!((read(0x204), read(0x304)), (0, 0));
    lrs.end(33);
    // Set pending by the guest: once, whatever its kind.
    write(0x204, 1 << 9 | 1 << 25);
    assert_eq!(take_all(&vgic, V0, &lrs), [41, 57]);
    // Active by ISACTIVER: not given until it is deactivated.
    write(0x304, 1 << 19);
    vgic.post_spi(IntId(51), &mut anybody);
    assert!(take_all(&vgic, V0, &lrs).is_empty());
    assert_eq!(read(0x304), 1 << 19);
    write(0x384, 1 << 19);
    assert_eq!(take_all(&vgic, V0, &lrs), [51]);
}

#[test]
fn a_linked_timer_made_inactive_by_a_register_fires_again() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    for offset in [0x280, 0x380] {
        lrs.physical_fires(27);
        assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
        if offset == 0x380 {
            assert_eq!(lrs.acknowledge(), 27);
        }
        write(&vgic, &lrs, offset, 1 << 27);
        assert!(lrs.physical_active.borrow().is_empty());
        lrs.end(27);
        assert!(take_all(&vgic, V0, &lrs).is_empty());
    }
}

#[test]
fn a_timer_that_the_guest_made_pending_itself_is_given_once() {
    for acknowledged in [false, true] {
        let vgic = booted(1);
        let lrs = FakeLrs::open(4);
        write(&vgic, &lrs, 0x200, 1 << 27);
        enter(&vgic, V0, &lrs);
        if acknowledged {
            assert_eq!(lrs.acknowledge(), 27);
        }
        lrs.physical_fires(27);
        assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
        if acknowledged {
            lrs.end(27);
        }
        let taken = take_all(&vgic, V0, &lrs);
        assert_eq!(taken.len(), usize::from(!acknowledged));
        assert!(lrs.physical_active.borrow().is_empty());
        // The physical one fires again if its line is high.
        lrs.physical_fires(27);
        assert!(vgic.inject_timer(V0, &lrs, TIMER, TIMER).is_empty());
        assert_eq!(take_all(&vgic, V0, &lrs), [27]);
    }
}

#[test]
fn priority_mask_and_enables_of_the_cpu_interface_are_the_guests() {
    let vgic = booted(1);
    let lrs = FakeLrs::open(4);
    lrs.set_pmr(0xa0);
    vgic.post_private(V0, IntId(1), &mut anybody);
    enter(&vgic, V0, &lrs);
    assert!(!lrs.signalled());
    lrs.set_pmr(0xa8);
    assert!(lrs.signalled());
    lrs.set_vmcr(0xf000_0000);
    assert!(!lrs.signalled());
}
