//! Copies that are executed and become common pages.

use super::*;
use crate::memory::fake::Event;

fn world() -> World {
    let mut world = World::new(Holes::None);
    world.merges = true;
    world.start(0);
    world.start(1);
    world
}

/// A page in the middle of the kernel.
const TEXT: u64 = KERNEL.ipa + 0x10_0000;

#[test]
fn what_two_vms_patched_alike_and_execute_is_one_page() {
    let mut world = world();
    for vm in 0..2 {
        world.vm(vm).write(TEXT + 8, 0x77);
        assert!(!world.vm(vm).there(TEXT).unwrap().attr.execute);
        world.vm(vm).execute(TEXT);
        world.check();
    }
    let (one, other) = (world.vm(0).there(TEXT).unwrap(), world.vm(1).there(TEXT).unwrap());
    assert_eq!(one, other);
    assert!(one.attr.execute && !one.attr.write);
    let counters = world.common.borrow().counters();
    let pages = window::AMONG_OTHERS.smallest / PAGE_SIZE;
    assert_eq!((counters.joined, counters.first), (pages, pages));
    for vm in 0..2 {
        assert_eq!(world.vm(vm).pages.usage().private_bytes, 0);
        let expected = world.vm(vm).expected(TEXT);
        assert!(world.vm(vm).read_page(TEXT) == expected);
    }
}

#[test]
fn what_one_vm_writes_to_a_common_page_the_other_does_not_see() {
    let mut world = world();
    for vm in 0..2 {
        world.vm(vm).write(TEXT, 1);
        world.vm(vm).execute(TEXT);
    }
    world.vm(0).write(TEXT + 1, 2);
    world.check();
    assert_eq!(world.vm(0).see(TEXT, 2), Some(vec![1, 2]));
    let expected = world.vm(1).expected(TEXT);
    assert!(world.vm(1).read_page(TEXT) == expected);
    // And back again: different now.
    world.vm(0).execute(TEXT);
    assert_ne!(world.vm(0).there(TEXT).unwrap().pa, world.vm(1).there(TEXT).unwrap().pa);
    world.check();
    world.end(0);
    world.end(1);
    assert_eq!(world.common.borrow().counters().used, 0);
}

#[test]
fn nobody_can_write_to_a_page_while_it_is_looked_up() {
    let mut world = world();
    world.vm(0).write(TEXT, 1);
    world.memory.take_events();
    let root = world.vm(0).pages.root();
    world.vm(0).execute(TEXT);
    let events = world.memory.take_events();
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).expect("it happens");
    let forgotten = at(&|event| *event == Event::InvalidateAll(root));
    let copied = at(&|event| matches!(event, Event::Settle(pa, PAGE_SIZE, true) if pa.0 >= COMMON));
    let mapped = at(&|event| matches!(event, Event::Write(_, value) if value & 0xffff_ffff_f000 >= COMMON));
    assert!(forgotten < copied && copied < mapped);
}

#[test]
fn a_guest_that_rewrites_what_it_executes_gets_its_own_pages_in_the_end() {
    let mut world = world();
    let mut faults = 0;
    for _ in 0..3 * u32::from(merge::MOST) {
        let now = world.vm(0).there(TEXT);
        let (write, execute) = now.map_or((false, false), |there| (there.attr.write, there.attr.execute));
        if !write {
            world.vm(0).resolve(TEXT, Access::Write).unwrap();
            faults += 1;
        } else if !execute {
            world.vm(0).resolve(TEXT, Access::Execute).unwrap();
            faults += 1;
        } else {
            break;
        }
    }
    let there = world.vm(0).there(TEXT).unwrap();
    assert!(there.attr.write && there.attr.execute);
    world.check();
    assert!(faults <= 2 * u32::from(merge::MOST) + 2, "{faults}");
}

#[test]
fn where_there_is_no_room_pages_stay_their_vms() {
    let mut world = world();
    world.common = Rc::new(RefCell::new(CommonPages::new(PaRange::new(Pa(COMMON), 0))));
    world.end(0);
    world.start(0);
    world.vm(0).write(TEXT, 9);
    world.vm(0).execute(TEXT);
    let there = world.vm(0).there(TEXT).unwrap();
    assert!(there.attr.write && there.attr.execute);
    assert_eq!(world.vm(0).see(TEXT, 1), Some(vec![9]));
    world.check();
}

#[test]
fn a_reset_gives_common_pages_up() {
    let mut world = world();
    world.vm(0).write(TEXT, 9);
    world.vm(0).execute(TEXT);
    world.reset(0);
    world.check();
    assert_eq!(world.common.borrow().counters().used, 0);
    let expected = world.vm(0).expected(TEXT);
    assert!(world.vm(0).read_page(TEXT) == expected);
}
