//! The exact order of table writes, barriers and invalidations (TRAPS 1, 2, 5, 6), and that the checker which all other
//! tests run under notices when one is missing.

use super::*;
use crate::memory::address::{BLOCK_1G, BLOCK_2M};
use crate::memory::fake::Event::{self, InvalidateAll, InvalidateIpa, Publish, Write, Zero};
use crate::memory::tables::TABLE_ENTRIES;

const ROOT: Pa = Pa(TABLES);
/// Root descriptor of guest RAM's first GiB.
const ROOT_ENTRY: Pa = Pa(TABLES + 8);
const TABLE_2: Pa = Pa(TABLES + 0x1000);
const TABLE_3: Pa = Pa(TABLES + 0x2000);

const RAM_BLOCK: u64 = HOST | 0x7fd;
const RAM_PAGE: u64 = HOST | 0x7ff;

fn world_with(size: u64) -> World {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST), size, Attr::RAM).unwrap();
    world.memory.take_events();
    world
}

#[test]
fn a_new_table_is_published_before_it_is_linked_and_the_rest_at_the_end() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST), 2 * BLOCK_2M, Attr::RAM).unwrap();
    assert_eq!(
        world.memory.take_events(),
        [
            Zero(TABLE_2, 4096),
            Publish,
            Write(ROOT_ENTRY, TABLE_2.0 | 3),
            Write(TABLE_2, RAM_BLOCK),
            Write(Pa(TABLE_2.0 + 8), RAM_BLOCK + BLOCK_2M),
            Publish,
        ]
    );
}

fn fill(table: Pa, first: u64, step: u64) -> impl Iterator<Item = Event> {
    (0..TABLE_ENTRIES).map(move |index| Write(Pa(table.0 + index * 8), first + index * step))
}

#[test]
fn a_split_breaks_before_it_makes() {
    let mut world = world_with(BLOCK_2M);
    world.edit().split(Ipa(RAM + 0x5000)).unwrap();
    let mut expected: Vec<Event> = fill(TABLE_3, RAM_PAGE, 4096).collect();
    expected.extend([
        Write(TABLE_2, 0),
        Publish,
        InvalidateIpa(ROOT, Ipa(RAM)),
        Write(TABLE_2, TABLE_3.0 | 3),
        Publish,
    ]);
    assert_eq!(world.memory.take_events(), expected);
    let found = Translation { pa: Pa(HOST + 0x5678), attr: Attr::RAM, size: 4096 };
    assert_eq!(world.translate(RAM + 0x5678), Some(found));
}

#[test]
fn a_block_of_1_gib_is_split_in_two_steps() {
    let mut world = world_with(BLOCK_1G);
    world.edit().split(Ipa(RAM + BLOCK_2M + 0x1000)).unwrap();
    let mut expected: Vec<Event> = fill(TABLE_2, RAM_BLOCK, BLOCK_2M).collect();
    expected.extend([
        Write(ROOT_ENTRY, 0),
        Publish,
        InvalidateIpa(ROOT, Ipa(RAM)),
        Write(ROOT_ENTRY, TABLE_2.0 | 3),
        Publish,
    ]);
    expected.extend(fill(TABLE_3, RAM_PAGE + BLOCK_2M, 4096));
    expected.extend([
        Write(Pa(TABLE_2.0 + 8), 0),
        Publish,
        InvalidateIpa(ROOT, Ipa(RAM + BLOCK_2M)),
        Write(Pa(TABLE_2.0 + 8), TABLE_3.0 | 3),
        Publish,
    ]);
    assert_eq!(world.memory.take_events(), expected);
    assert_eq!(world.stage2.table_bytes(), 3 * 4096);
}

#[test]
fn one_block_is_unmapped_by_its_address_and_its_empty_table_goes_with_it() {
    let mut world = world_with(BLOCK_2M);
    assert_eq!(world.edit().unmap(Ipa(RAM), BLOCK_2M), Ok(BLOCK_2M));
    assert_eq!(
        world.memory.take_events(),
        [
            Write(TABLE_2, 0),
            Write(ROOT_ENTRY, 0),
            // The chain of tables to give back; not a valid descriptor to a walker that is still in the table.
            Write(TABLE_2, 0),
            Publish,
            InvalidateIpa(ROOT, Ipa(RAM)),
        ]
    );
    assert_eq!(world.source.live.keys().collect::<Vec<_>>(), [&ROOT]);
}

#[test]
fn many_are_unmapped_with_one_broadcast() {
    let mut world = world_with(3 * BLOCK_2M);
    assert_eq!(world.edit().unmap(Ipa(RAM), 2 * BLOCK_2M), Ok(2 * BLOCK_2M));
    let events = world.memory.take_events();
    assert_eq!(events, [Write(TABLE_2, 0), Write(Pa(TABLE_2.0 + 8), 0), Publish, InvalidateAll(ROOT)]);
}

#[test]
fn nothing_unmapped_is_nothing_invalidated() {
    let mut world = world_with(BLOCK_2M);
    assert_eq!(world.edit().unmap(Ipa(RAM + BLOCK_2M), BLOCK_1G), Ok(0));
    assert_eq!(world.memory.take_events(), []);
}

#[test]
fn permissions_change_by_break_before_make() {
    let mut world = world_with(BLOCK_2M);
    world.edit().protect(Ipa(RAM), BLOCK_2M, Attr::RAM_READ_ONLY).unwrap();
    assert_eq!(
        world.memory.take_events(),
        [
            Write(TABLE_2, RAM_BLOCK & !1),
            Publish,
            InvalidateIpa(ROOT, Ipa(RAM)),
            Write(TABLE_2, RAM_BLOCK & !(1 << 7)),
            Publish,
        ]
    );
    world.edit().protect(Ipa(RAM), BLOCK_2M, Attr::RAM_READ_ONLY).unwrap();
    assert_eq!(world.memory.take_events(), [], "nothing to change");
}

#[test]
fn a_page_is_replaced_by_break_before_make() {
    let mut world = world_with(4096);
    let copy = Pa(HOST + 0x10_0000);
    assert_eq!(world.edit().replace(Ipa(RAM), copy, Attr::RAM), Ok(Pa(HOST)));
    assert_eq!(
        world.memory.take_events(),
        [Write(TABLE_3, 0), Publish, InvalidateIpa(ROOT, Ipa(RAM)), Write(TABLE_3, copy.0 | 0x7ff), Publish]
    );
}

#[test]
fn the_tlb_is_given_the_root_that_vttbr_holds() {
    // TRAPS 2: a VTTBR put together from the VMID alone has base 0 for a moment.
    for bits in [32, 41] {
        let mut world = World::new(bits);
        let root = world.stage2.root();
        assert!(root.is_aligned(world.stage2.config().root_bytes()));
        world.edit().map(Ipa(RAM), Pa(HOST), BLOCK_2M, Attr::RAM).unwrap();
        world.edit().unmap(Ipa(RAM), 4096).unwrap();
        world.edit().unmap(Ipa(RAM), BLOCK_2M).unwrap();
        let mut count = 0;
        for event in world.memory.take_events() {
            if let InvalidateIpa(given, _) | InvalidateAll(given) = event {
                assert_eq!(given, root);
                count += 1;
            }
        }
        assert_eq!(count, 3);
    }
}

/// A TLB that leaves one thing out.
struct Faulty<'a> {
    memory: &'a FakeMemory,
    publishes: bool,
    invalidates: bool,
}

impl Stage2Tlb for Faulty<'_> {
    fn publish(&self) {
        if self.publishes {
            self.memory.publish();
        }
    }

    fn invalidate_ipa(&self, root: Pa, ipa: Ipa) {
        if self.invalidates {
            self.memory.invalidate_ipa(root, ipa);
        }
    }

    fn invalidate_all(&self, root: Pa) {
        if self.invalidates {
            self.memory.invalidate_all(root);
        }
    }
}

fn with_fault(
    publishes: bool,
    invalidates: bool,
    f: impl Fn(&mut Editor<'_, FakeMemory, Faulty<'_>, FakeSource>),
) {
    let mut world = world_with(2 * BLOCK_2M);
    let tlb = Faulty { memory: &world.memory, publishes, invalidates };
    f(&mut world.stage2.edit(&world.memory, &tlb, &mut world.source));
    world.memory.assert_settled();
}

#[test]
fn the_checker_is_silent_without_a_fault() {
    with_fault(true, true, |editor| {
        editor.split(Ipa(RAM)).unwrap();
        editor.protect(Ipa(RAM), BLOCK_2M, Attr::RAM_READ_ONLY).unwrap();
        editor.unmap(Ipa(RAM), BLOCK_1G).unwrap();
    });
}

#[test]
#[should_panic(expected = "no break-before-make")]
fn the_checker_notices_a_split_without_invalidation() {
    with_fault(true, false, |editor| editor.split(Ipa(RAM)).unwrap());
}

#[test]
#[should_panic(expected = "no break-before-make")]
fn the_checker_notices_an_invalidation_before_the_change_is_published() {
    with_fault(false, true, |editor| editor.protect(Ipa(RAM), BLOCK_2M, Attr::RAM_READ_ONLY).unwrap());
}

#[test]
#[should_panic(expected = "before it was published")]
fn the_checker_notices_a_table_linked_too_early() {
    with_fault(false, true, |editor| editor.map(Ipa(RAM + BLOCK_1G), Pa(HOST), 4096, Attr::RAM).unwrap());
}

#[test]
#[should_panic(expected = "given back while walkers may use it")]
fn the_checker_notices_a_table_given_back_too_early() {
    with_fault(true, false, |editor| {
        editor.unmap(Ipa(RAM), BLOCK_1G).unwrap();
    });
}

#[test]
#[should_panic(expected = "may still be cached")]
fn the_checker_notices_an_unmap_without_invalidation() {
    with_fault(true, false, |editor| {
        editor.unmap(Ipa(RAM), BLOCK_2M).unwrap();
    });
}
