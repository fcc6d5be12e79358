//! Faults that other hypervisors have had with interrupts, each a test.

use super::machine::*;
use crate::ids::IntId;
use crate::vgic::fake::{FakeLrs, SPURIOUS};
use crate::vgic::lr::{ACTIVE, HW, PENDING, STATE};

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
fn trap_13_more_pending_interrupts_than_list_registers() {
    for count in [1, 2, 4, 16] {
        let vgic = booted(1);
        let lrs = FakeLrs::open(count);
        let intids = (0..15).chain(64..80).collect::<Vec<_>>();
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
        assert_eq!(lrs.control(), crate::vgic::control::EN);
    }
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
