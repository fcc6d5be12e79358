//! Sizes, ends and refusals.

use super::*;
use crate::memory::address::{BLOCK_1G, BLOCK_2M};

#[test]
fn a_guest_of_96_mib_takes_two_tables() {
    let mut world = World::new(ipa_bits_for(RAM + (96 << 20)));
    world.edit().map(Ipa(RAM), Pa(HOST), 96 << 20, Attr::RAM).unwrap();
    assert_eq!(world.stage2.table_bytes(), 8192);
    let found = Translation { pa: Pa(HOST + 0x123_4567), attr: Attr::RAM, size: BLOCK_2M };
    assert_eq!(world.translate(RAM + 0x123_4567), Some(found));
    assert_eq!(world.translate(RAM + (96 << 20)), None);
    assert_eq!(world.translate(RAM - 1), None);
    assert_eq!(world.destroy(), 96 << 20);
}

#[test]
fn a_large_guest_is_mapped_by_1_gib_blocks() {
    let mut world = World::new(36);
    world.edit().map(Ipa(RAM), Pa(HOST), 16 * BLOCK_1G, Attr::RAM).unwrap();
    assert_eq!(world.stage2.table_bytes(), 4096);
    assert!(world.leaves().iter().all(|leaf| leaf.size == BLOCK_1G));
    assert_eq!(world.destroy(), 16 * BLOCK_1G);
}

#[test]
fn scattered_memory_falls_back_to_what_its_alignment_allows() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST + 0x1000), BLOCK_2M, Attr::RAM).unwrap();
    assert_eq!(world.leaves().len(), 512);
    world.edit().map(Ipa(RAM + BLOCK_2M), Pa(HOST + BLOCK_2M), BLOCK_2M, Attr::RAM).unwrap();
    assert_eq!(world.leaves().len(), 513);
    assert_eq!(world.translate(RAM + 0xfff).unwrap().pa, Pa(HOST + 0x1fff));
    assert_eq!(world.destroy(), 2 * BLOCK_2M);
}

#[test]
fn concatenated_roots_are_indexed_as_one_table() {
    for bits in [40, 43, 44, 48] {
        let mut world = World::new(bits);
        let top = (1 << bits) - BLOCK_1G;
        world.edit().map(Ipa(top), Pa(HOST), BLOCK_1G, Attr::RAM).unwrap();
        world.edit().map(Ipa(0), Pa(0), 4096, Attr::DEVICE).unwrap();
        assert_eq!(world.translate((1 << bits) - 1).unwrap().pa, Pa(HOST + BLOCK_1G - 1));
        assert_eq!(world.translate(top - 1), None);
        assert_eq!(world.translate(1 << bits), None);
        assert_eq!(world.translate(u64::MAX), None);
        assert_eq!(world.leaves().len(), 2);
        world.edit().unmap(Ipa(0), 1 << bits).unwrap();
        assert_eq!(world.stage2.table_bytes(), config(bits).root_bytes());
        assert_eq!(world.destroy(), 0);
    }
}

#[test]
fn a_run_across_root_tables_is_contiguous() {
    let mut world = World::new(41);
    let middle = 1 << 39;
    world.edit().map(Ipa(middle - BLOCK_1G), Pa(0), 2 * BLOCK_1G, Attr::RAM).unwrap();
    assert_eq!(world.translate(middle).unwrap().pa, Pa(BLOCK_1G));
    assert_eq!(world.translate(middle - 1).unwrap().pa, Pa(BLOCK_1G - 1));
}

#[test]
fn refusals_name_the_reason_and_change_nothing() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST), BLOCK_2M, Attr::RAM).unwrap();
    world.memory.take_events();
    let top = 1 << 32;
    let far = 1 << 48;
    use Stage2Error::*;
    for (ipa, pa, size, error) in [
        (RAM + 1, HOST, 4096, Misaligned),
        (RAM, HOST + 1, 4096, Misaligned),
        (RAM, HOST, 4095, Misaligned),
        (RAM, HOST, 0, Misaligned),
        (top, HOST, 4096, OutOfRange),
        (top - 4096, HOST, 8192, OutOfRange),
        (!0xfff, HOST, 8192, OutOfRange),
        (RAM, HOST, !0xfff, OutOfRange),
        (0, far - 4096, 8192, OutOfRange),
        (0, !0xfff, 4096, OutOfRange),
        (RAM, HOST, 4096, AlreadyMapped(Ipa(RAM))),
        (RAM + 0x3000, HOST, 4096, AlreadyMapped(Ipa(RAM + 0x3000))),
        (0, HOST, 2 * BLOCK_1G, AlreadyMapped(Ipa(RAM))),
    ] {
        assert_eq!(
            world.edit().map(Ipa(ipa), Pa(pa), size, Attr::RAM),
            Err(error),
            "{ipa:#x} {pa:#x} {size:#x}"
        );
    }
    for (ipa, size, error) in [
        (RAM + 1, 4096, Misaligned),
        (RAM, 0, Misaligned),
        (top, 4096, OutOfRange),
        (RAM, 2 * BLOCK_2M, NotMapped(Ipa(RAM + BLOCK_2M))),
        (RAM - 4096, 8192, NotMapped(Ipa(RAM - 4096))),
    ] {
        assert_eq!(world.edit().protect(Ipa(ipa), size, Attr::DEVICE), Err(error));
    }
    assert_eq!(world.edit().unmap(Ipa(RAM), top), Err(OutOfRange));
    assert_eq!(world.edit().split(Ipa(RAM - 4096)), Err(NotMapped(Ipa(RAM - 4096))));
    assert_eq!(world.edit().replace(Ipa(RAM - 4096), Pa(HOST), Attr::RAM), Err(NotMapped(Ipa(RAM - 4096))));
    assert_eq!(world.edit().replace(Ipa(RAM), Pa(far), Attr::RAM), Err(OutOfRange));
    assert_eq!(world.edit().replace(Ipa(RAM), Pa(1), Attr::RAM), Err(Misaligned));
    assert_eq!(world.memory.take_events(), []);
    for error in [Misaligned, OutOfRange, AlreadyMapped(Ipa(1)), NotMapped(Ipa(1)), OutOfMemory] {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn a_map_that_runs_out_of_tables_is_undone() {
    // Root, one level-2 and one level-3 table, and no more.
    let mut world = World::with_budget(32, 3 * 4096);
    let start = RAM + BLOCK_2M - 4096;
    assert_eq!(
        world.edit().map(Ipa(start), Pa(HOST + start), 8192, Attr::RAM),
        Err(Stage2Error::OutOfMemory)
    );
    world.memory.assert_settled();
    assert_eq!(world.leaves(), []);
    assert_eq!(world.stage2.table_bytes(), 4096);
    assert_eq!(world.destroy(), 0);
}

#[test]
fn a_split_that_runs_out_of_tables_leaves_the_block() {
    let mut world = World::with_budget(32, 2 * 4096);
    world.edit().map(Ipa(RAM), Pa(HOST), BLOCK_2M, Attr::RAM).unwrap();
    let before = world.leaves();
    assert_eq!(world.edit().unmap(Ipa(RAM), 4096), Err(Stage2Error::OutOfMemory));
    assert_eq!(world.edit().protect(Ipa(RAM), 4096, Attr::RAM_READ_ONLY), Err(Stage2Error::OutOfMemory));
    assert_eq!(world.edit().replace(Ipa(RAM), Pa(HOST), Attr::RAM), Err(Stage2Error::OutOfMemory));
    assert_eq!(world.leaves(), before);
    world.memory.assert_settled();
}

#[test]
fn no_root_no_stage_2() {
    let memory = Rc::new(FakeMemory::new());
    let mut source = FakeSource::new(&memory, TABLES, 4096);
    let refused = Stage2::new(&config(40), &*memory, &mut source).err();
    assert_eq!(refused, Some(Stage2Error::OutOfMemory));
}

#[test]
fn a_thousand_vms_come_and_go_without_losing_a_frame() {
    // TRAPS 22, on the real frame allocator.
    use crate::memory::address::PaRange;
    use crate::memory::frames::{Frames, MemoryPlan};
    let mut plan = MemoryPlan::new();
    plan.add(PaRange::new(Pa(RAM), 256 << 20)).unwrap();
    let metadata = Vec::leak(vec![0; plan.metadata_words()]);
    let mut frames = Frames::new(&plan, metadata).unwrap();
    let memory = FakeMemory::new();
    for round in 0..1000u64 {
        let size = 96 << 20;
        let ram = frames.alloc(size, BLOCK_2M).unwrap();
        let mut stage2 = Stage2::new(&config(32), &memory, &mut frames).unwrap();
        let mut editor = stage2.edit(&memory, &memory, &mut frames);
        editor.map(Ipa(RAM), ram, size, Attr::RAM).unwrap();
        if round % 100 == 0 {
            editor.protect(Ipa(RAM + 0x1000), 4096, Attr::RAM_READ_ONLY).unwrap();
        }
        assert_eq!(frames.used_bytes(), size + stage2.table_bytes());
        let mut leaves = Vec::new();
        stage2.destroy(&memory, &mut frames, |leaf| leaves.push((leaf.pa, leaf.size)));
        for (pa, size) in leaves {
            frames.free(pa, size).unwrap();
        }
        assert_eq!((frames.used_bytes(), frames.refused()), (0, 0));
        memory.take_events();
    }
}

#[test]
fn a_hole_is_as_large_as_the_missing_table() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM + BLOCK_2M), Pa(HOST), 4096, Attr::RAM).unwrap();
    let hole = |world: &World, ipa| world.stage2.hole(&*world.memory, Ipa(ipa));
    assert_eq!(hole(&world, RAM + BLOCK_1G), BLOCK_1G);
    assert_eq!(hole(&world, RAM + 0x1234), BLOCK_2M);
    assert_eq!(hole(&world, RAM + BLOCK_2M + 0x1000), 4096);
    assert_eq!(hole(&world, RAM + BLOCK_2M), 0, "mapped");
    assert_eq!(hole(&world, 1 << 32), 0, "beyond");
}

#[test]
fn a_map_that_is_cleared_maps_nothing_and_keeps_its_root() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST), BLOCK_2M + 4096, Attr::RAM).unwrap();
    world.edit().map(Ipa(RAM + BLOCK_1G), Pa(HOST + BLOCK_1G), 4096, Attr::RAM_READ_ONLY).unwrap();
    let root = world.stage2.root();
    world.memory.unwatch(root);
    let mut leaves = Vec::new();
    world
        .stage2
        .clear(&*world.memory, &mut world.source, |_, leaf| leaves.push((leaf.ipa.0, leaf.attr.write)));
    assert_eq!(leaves, [(RAM, true), (RAM + BLOCK_2M, true), (RAM + BLOCK_1G, false)]);
    assert_eq!((world.leaves(), world.stage2.root()), (vec![], root));
    assert_eq!(world.source.live.keys().collect::<Vec<_>>(), [&root]);
    assert_eq!(world.stage2.table_bytes(), world.stage2.config().root_bytes());
    world.memory.watch(&world.stage2);
    world.edit().map(Ipa(RAM), Pa(HOST), BLOCK_2M, Attr::RAM).unwrap();
    assert_eq!(world.translate(RAM).map(|there| there.pa), Some(Pa(HOST)));
    world.destroy();
}
