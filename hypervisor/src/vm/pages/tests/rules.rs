//! What each kind of fault does, and in which order.

use super::*;
use crate::memory::fake::Event::{InvalidateAll, InvalidateIpa, Publish, Settle, Write, Zero};

fn world() -> World {
    let mut world = World::new(Holes::None);
    world.start(0);
    world.memory.take_events();
    world
}

/// Empty RAM: a whole block without an image.
const EMPTY: u64 = RAM + 4 * BLOCK_2M + BLOCK_2M / 2;

#[test]
fn nothing_is_there_before_it_is_touched() {
    let mut world = world();
    let root = world.config.root_bytes();
    assert_eq!(world.used(), root);
    assert_eq!(world.vm(0).see(RAM, 1), None);
    world.start(1);
    assert_eq!(world.used(), 2 * root);
}

#[test]
fn a_read_of_an_image_takes_no_memory_but_tables() {
    let mut world = world();
    assert!(world.vm(0).read_page(KERNEL.ipa) == BYTES[..PAGE_SIZE as usize]);
    let usage = world.vm(0).pages.usage();
    // To the end of the block.
    assert_eq!((usage.private_bytes, usage.shared_bytes), (0, BLOCK_2M - 0x8_0000));
    assert_eq!(usage.table_bytes, world.config.root_bytes() + 2 * TABLE_BYTES);
    let events = world.memory.take_events();
    assert!(!events.iter().any(|event| matches!(event, Settle(..) | InvalidateIpa(..) | InvalidateAll(..))));
    world.check();
}

#[test]
fn empty_memory_comes_as_a_zeroed_block() {
    let mut world = world();
    let block = align_down(EMPTY, BLOCK_2M);
    world.vm(0).resolve(EMPTY + 0x1234, Access::Read).unwrap();
    let there = world.vm(0).there(block).unwrap();
    assert_eq!(there.size, BLOCK_2M);
    // Zeroed, made visible, and only then mapped.
    let events = world.memory.take_events();
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).expect("it happens");
    let zeroed = at(&|event| *event == Zero(there.pa, BLOCK_2M));
    let settled = at(&|event| *event == Settle(there.pa, BLOCK_2M, false));
    let mapped = at(
        &|event| matches!(event, Write(_, value) if value & 0xffff_ffff_f000 == there.pa.0 && value & 3 == 1),
    );
    assert!(zeroed < settled && settled < mapped);
    assert_eq!(events.last(), Some(&Publish));
    world.check();
}

#[test]
fn a_guest_that_goes_through_its_memory_gets_more_at_a_time() {
    const BLOCKS: u64 = 10;
    for downwards in [false, true] {
        let world = World::new(Holes::None);
        let size = BLOCKS * BLOCK_2M;
        let reservation = world.frames.borrow_mut().reserve(Pages::most_bytes(&world.config, size)).unwrap();
        let (frames, common) = (world.frames.clone(), world.common.clone());
        let mut source = Source { memory: world.memory.clone(), frames, common, reservation };
        let memory = &*world.memory;
        let mut pages = Pages::new(&world.config, size, ArrayVec::new(), false, memory, &mut source).unwrap();
        memory.watch(&pages.stage2);
        let mut faults = 0;
        for block in 0..BLOCKS {
            let ipa = RAM + BLOCK_2M * if downwards { BLOCKS - 1 - block } else { block };
            if pages.stage2.translate(memory, Ipa(ipa)).is_none() {
                faults += 1;
                let means = &mut Means { memory, tlb: memory, source: &mut source };
                pages.resolve(means, ipa + 0x1234, Access::Write).unwrap();
                let is_there = pages.stage2.translate(memory, Ipa(ipa)).is_some_and(|at| at.size == BLOCK_2M);
                assert!(is_there, "what was asked for, whatever else");
            }
            let private = pages.usage().private_bytes;
            let asked = (block + 1) * BLOCK_2M;
            assert!((asked..=asked + asked / 4).contains(&private), "{private:#x} for {asked:#x}");
        }
        assert_eq!(faults, 6, "for ten blocks");
        memory.unwatch(pages.root());
        pages.end(memory, &mut source);
    }
}

#[test]
fn a_second_vcpu_that_faults_on_the_same_piece_finds_it_mapped() {
    let mut world = world();
    for (ipa, access) in [(EMPTY, Access::Write), (KERNEL.ipa, Access::Read), (KERNEL.ipa, Access::Write)] {
        world.vm(0).resolve(ipa, access).unwrap();
        world.memory.take_events();
        let used = world.used();
        for access in [Access::Read, access] {
            world.vm(0).resolve(ipa, access).unwrap();
        }
        assert_eq!((world.memory.take_events(), world.used()), (vec![], used));
    }
}

#[test]
fn a_write_to_a_shared_page_copies_breaks_and_only_then_makes() {
    let mut world = world();
    // The first of what is copied at a time.
    let page = KERNEL.ipa;
    world.vm(0).resolve(page, Access::Read).unwrap();
    world.memory.take_events();
    world.vm(0).resolve(page + 0x18, Access::Write).unwrap();
    let root = world.vm(0).pages.root();
    let there = world.vm(0).there(page).unwrap();
    let pages = (window::ALONE.smallest / PAGE_SIZE) as usize;
    let events = world.memory.take_events();
    // The copy is whole and visible, to instruction fetches too.
    assert_eq!(events[0], Settle(there.pa, window::ALONE.smallest, true));
    let broken = &events[1..][..pages];
    assert!(broken.iter().all(|event| matches!(event, Write(_, 0))), "{broken:?}");
    assert_eq!(events[1 + pages..][..2], [Publish, InvalidateAll(root)]);
    let made = &events[3 + pages..][..pages];
    for (index, event) in made.iter().enumerate() {
        let Write(at, value) = event else { panic!("{event:?}") };
        let Write(broken_at, _) = broken[index] else { panic!() };
        assert_eq!((*at, value & 0xffff_ffff_f000), (broken_at, there.pa.0 + index as u64 * PAGE_SIZE));
    }
    assert_eq!(events[3 + 2 * pages..], [Publish]);
    let usage = world.vm(0).pages.usage();
    assert_eq!((usage.private_bytes, usage.copied_pages), (window::ALONE.smallest, pages as u64));
    assert_eq!(usage.shared_bytes, BLOCK_2M - 0x8_0000 - window::ALONE.smallest);
    world.check();
}

#[test]
fn a_single_page_that_is_replaced_is_forgotten_by_its_address() {
    let mut world = World::new(Holes::EverySecond);
    world.start(0);
    world.vm(0).resolve(KERNEL.ipa, Access::Read).unwrap();
    world.memory.take_events();
    world.vm(0).resolve(KERNEL.ipa, Access::Write).unwrap();
    let root = world.vm(0).pages.root();
    let events = world.memory.take_events();
    assert!(events.contains(&InvalidateIpa(root, Ipa(KERNEL.ipa))), "{events:?}");
    world.check();
}

#[test]
fn pages_of_part_of_an_image_are_filled_with_zeros_and_never_shared() {
    let mut world = world();
    let end = KERNEL.ipa + KERNEL.size as u64;
    for page in [align_down(end, PAGE_SIZE), RAMDISK.ipa, TREE.ipa] {
        let seen = world.vm(0).read_page(page);
        assert!(seen == world.vm(0).expected(page), "{page:#x}");
        let there = world.vm(0).there(page).unwrap();
        assert!(there.attr.write, "{page:#x}");
    }
    world.check();
}

#[test]
fn writing_through_a_whole_image_takes_few_faults() {
    let mut world = world();
    let mut faults = 0;
    for page in (KERNEL.ipa..KERNEL.ipa + KERNEL.size as u64).step_by(PAGE_SIZE as usize) {
        let there = world.vm(0).there(page);
        if there.is_none_or(|there| !there.attr.write) {
            world.vm(0).resolve(page, Access::Write).unwrap();
            faults += 1;
        }
    }
    let pages = KERNEL.size as u64 / PAGE_SIZE;
    assert!(faults <= 16, "{faults} faults for {pages} pages");
    world.check();
}

#[test]
fn what_is_not_ram_is_refused_and_changes_nothing() {
    let mut world = world();
    let used = world.used();
    for ipa in [0, RAM - 1, RAM + SIZE, RAM + SIZE + 0x1000, 1 << 40, u64::MAX] {
        for access in [Access::Read, Access::Write] {
            assert_eq!(world.vm(0).resolve(ipa, access), Err(PageError::NotRam), "{ipa:#x}");
        }
    }
    assert_eq!((world.used(), world.memory.take_events()), (used, vec![]));
}

#[test]
fn a_reset_vm_finds_everything_as_at_the_start() {
    let mut world = world();
    for at in [KERNEL.ipa, EMPTY, RAMDISK.ipa, TREE.ipa] {
        world.vm(0).write(at, 0);
    }
    world.reset(0);
    assert_eq!(world.used(), world.config.root_bytes());
    assert_eq!(world.vm(0).see(KERNEL.ipa, 1), None);
    for at in [KERNEL.ipa, EMPTY, RAMDISK.ipa, TREE.ipa] {
        let page = align_down(at, PAGE_SIZE);
        let seen = world.vm(0).read_page(page);
        assert!(seen == world.vm(0).expected(page), "{page:#x}");
    }
    world.check();
}

#[test]
fn what_is_promised_is_enough_however_memory_is_divided() {
    for holes in [Holes::InBlocks, Holes::EverySecond] {
        let mut world = World::new(holes);
        for vm in 0..2 {
            world.start(vm);
            // Everything shared first, and then everything copied: the most tables and the most pages.
            for access in [Access::Read, Access::Write] {
                for page in (RAM..RAM + SIZE).step_by(PAGE_SIZE as usize) {
                    world.vm(vm).resolve(page, access).unwrap();
                }
            }
            let usage = world.vm(vm).pages.usage();
            assert_eq!((usage.private_bytes, usage.shared_bytes), (SIZE, 0));
        }
        world.check();
    }
}

#[test]
fn a_fault_that_finds_no_memory_changes_nothing() {
    let mut world = world();
    world.vm(0).resolve(KERNEL.ipa, Access::Read).unwrap();
    let left = world.vm(0).source.reservation.left();
    // Somebody takes all that the VM was promised, which can't happen.
    let mut taken = Vec::new();
    for _ in 0..left / PAGE_SIZE {
        taken.push(world.vm(0).source.take(PAGE_SIZE, PAGE_SIZE).unwrap());
    }
    world.memory.take_events();
    for (ipa, access) in [(EMPTY, Access::Read), (KERNEL.ipa, Access::Write), (TREE.ipa, Access::Read)] {
        assert_eq!(world.vm(0).resolve(ipa, access), Err(PageError::OutOfMemory));
    }
    assert_eq!(world.memory.take_events(), []);
    world.vm(0).resolve(KERNEL.ipa, Access::Read).unwrap();
    for page in taken {
        world.vm(0).source.give(page, PAGE_SIZE);
    }
    world.check();
    world.vm(0).resolve(EMPTY, Access::Read).unwrap();
}

#[test]
fn what_is_loaded_before_the_start_takes_single_pages_and_is_there() {
    let mut world = world();
    let memory = world.memory.clone();
    let vm = world.vm(0);
    let text: Vec<u8> = (0..6000u32).map(|n| n as u8).collect();
    let mut means = Means { memory: &*memory, tlb: &*memory, source: &mut vm.source };
    vm.pages.load(&mut means, EMPTY + 0x800, &text).unwrap();
    assert_eq!(vm.pages.usage().private_bytes, 2 * PAGE_SIZE);
    let page = vm.read_page(EMPTY);
    assert!(page[..0x800] == [0; 0x800] && page[0x800..] == text[..0x800]);
    let tail = vm.read_page(EMPTY + PAGE_SIZE);
    assert!(tail[..6000 - 0x800] == text[0x800..]);
    // What is around it comes later, as zeros.
    assert!(vm.read_page(EMPTY + 2 * PAGE_SIZE).iter().all(|byte| *byte == 0));
    world.check();
}

#[test]
fn the_hypervisors_own_accesses_bring_pages_too() {
    let mut world = world();
    let memory = world.memory.clone();
    let vm = world.vm(0);
    let mut means = Means { memory: &*memory, tlb: &*memory, source: &mut vm.source };
    let (pa, room) = vm.pages.reach(&mut means, KERNEL.ipa + 0x10, Access::Read).unwrap();
    assert_eq!((pa, room), (Pa(KERNEL.pa + 0x10), PAGE_SIZE - 0x10));
    let (copy, _) = vm.pages.reach(&mut means, KERNEL.ipa + 0x10, Access::Write).unwrap();
    assert!(copy.0 < BUNDLE);
    assert_eq!(vm.pages.reach(&mut means, RAM + SIZE, Access::Read), Err(PageError::NotRam));
    world.check();
}

#[test]
fn what_is_shown_to_a_guest_is_read_only_and_goes_with_a_reset() {
    let mut world = world();
    let root = world.config.root_bytes();
    let ipa = crate::vm::layout::STOLEN_TIME_BASE;
    for _ in 0..2 {
        let vm = world.vm(0);
        let memory = vm.source.memory.clone();
        let page = vm.source.take(PAGE_SIZE, PAGE_SIZE).unwrap();
        let mut means = Means { memory: &*memory, tlb: &*memory, source: &mut vm.source };
        assert_eq!(vm.pages.show(&mut means, ipa, page), Ok(()));
        let there = vm.there(ipa.0).unwrap();
        assert_eq!((there.pa, there.attr.write, there.attr.execute), (page, false, false));
        // Neither the guest nor a device of its can have it made writable.
        assert_eq!(vm.resolve(ipa.0, Access::Write), Err(PageError::NotRam));
        let usage = vm.pages.usage();
        assert_eq!((usage.private_bytes, usage.shared_bytes), (0, 0));
        world.reset(0);
        assert!(world.vm(0).there(ipa.0).is_none());
        world.vm(0).source.give(page, PAGE_SIZE);
        assert_eq!(world.used(), root);
    }
}
