use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::memory::address::{BLOCK_1G, BLOCK_2M};
use crate::memory::fake::{FakeMemory, FakeSource};
use crate::memory::tables::Bump;

#[test]
fn an_image_inside_of_a_bank_gets_its_own_permissions() {
    let memory = Rc::new(FakeMemory::new());
    let mut source = FakeSource::new(&memory, 0x7000_0000, 1 << 20);
    let memory = &*memory;
    let mut map = El2Map::new(memory, &mut source).unwrap();
    let image = BLOCK_1G + 0x20_0000;
    for (base, size, kind) in [
        (BLOCK_1G, 4 * BLOCK_1G, Kind::Data),
        (image, 0x1_8000, Kind::Code),
        (image + 0x1_8000, 0x8000, Kind::ReadOnly),
        (0x0900_0000, 0x1000, Kind::Device),
    ] {
        map.map(memory, &mut source, PaRange::new(Pa(base), size), kind).unwrap();
    }
    map.unmap(memory, &mut source, PaRange::new(Pa(image + 0x3_0000), 0x1000)).unwrap();
    let kind = |at: u64| {
        map.translate(memory, Va(at)).map(|(pa, kind)| {
            assert_eq!(pa, Pa(at));
            kind
        })
    };
    assert_eq!(kind(BLOCK_1G - 1), None);
    assert_eq!(kind(BLOCK_1G), Some(Kind::Data));
    assert_eq!(kind(image - 1), Some(Kind::Data));
    assert_eq!(kind(image), Some(Kind::Code));
    assert_eq!(kind(image + 0x1_7fff), Some(Kind::Code));
    assert_eq!(kind(image + 0x1_8000), Some(Kind::ReadOnly));
    assert_eq!(kind(image + 0x2_0000), Some(Kind::Data));
    assert_eq!(kind(image + 0x2_ffff), Some(Kind::Data));
    assert_eq!(kind(image + 0x3_0000), None);
    assert_eq!(kind(image + 0x3_1000), Some(Kind::Data));
    assert_eq!(kind(image + BLOCK_2M), Some(Kind::Data));
    assert_eq!(kind(5 * BLOCK_1G - 1), Some(Kind::Data));
    assert_eq!(kind(5 * BLOCK_1G), None);
    assert_eq!(kind(0x0900_0fff), Some(Kind::Device));
    // Root, level 1, level 2 for the GiBs of devices and of the image, level 3 for each one's 2 MiB.
    assert_eq!(map.table_bytes(), 6 * TABLE_BYTES);
}

fn bits(value: u64, high: u32, low: u32) -> u64 {
    (value >> low) & ((1 << (high - low + 1)) - 1)
}

#[test]
fn tcr_has_each_field_where_the_architecture_puts_it() {
    let tcr = tcr(5).unwrap();
    assert_eq!(bits(tcr, 5, 0), 16, "T0SZ = 64 - 48");
    assert_eq!(bits(tcr, 9, 8), 1, "IRGN0: write-back, write-allocate");
    assert_eq!(bits(tcr, 11, 10), 1, "ORGN0: write-back, write-allocate");
    assert_eq!(bits(tcr, 13, 12), 3, "SH0: inner shareable");
    assert_eq!(bits(tcr, 15, 14), 0, "TG0: 4 KiB");
    assert_eq!(bits(tcr, 18, 16), 5, "PS: 48 bits");
    assert_eq!(bits(tcr, 20, 20), 0, "TBI: off");
    assert_eq!(bits(tcr, 22, 21), 0, "HA, HD: off");
    assert_eq!(bits(tcr, 23, 23), 1, "RES1");
    assert_eq!(bits(tcr, 31, 31), 1, "RES1");
    assert_eq!(tcr, 0x8085_3510);
    assert_eq!(bits(super::tcr(2).unwrap(), 18, 16), 2, "PS: 40 bits");
    assert_eq!(super::tcr(0xf << 28), Err(ConfigError::NoGranule));
}

#[test]
fn mair_says_what_the_descriptors_index() {
    assert_eq!(bits(MAIR, 7, 0), 0x04, "Device-nGnRE");
    assert_eq!(bits(MAIR, 15, 8), 0xff, "Normal, write-back, read and write allocate");
}

#[test]
fn descriptors_have_each_field_where_the_architecture_puts_it() {
    // Kind, AttrIndx, AP[2:1], SH, XN.
    for (kind, attr_index, ap, sh, xn) in [
        (Kind::Code, 1, 0b11, 3, 0),
        (Kind::ReadOnly, 1, 0b11, 3, 1),
        (Kind::Data, 1, 0b01, 3, 1),
        (Kind::Device, 0, 0b01, 0, 1),
    ] {
        let found = kind.bits();
        assert_eq!(bits(found, 1, 0), 0, "kind of descriptor is added by level");
        assert_eq!(bits(found, 4, 2), attr_index, "{kind:?}");
        assert_eq!(bits(found, 5, 5), 0, "NS");
        assert_eq!(bits(found, 7, 6), ap, "{kind:?}");
        assert_eq!(bits(found, 9, 8), sh, "{kind:?}");
        assert_eq!(bits(found, 10, 10), 1, "AF");
        assert_eq!(bits(found, 53, 11), 0, "nG, address, GP, DBM, contiguous, PXN");
        assert_eq!(bits(found, 54, 54), xn, "{kind:?}");
        assert_eq!(bits(found, 63, 55), 0);
        assert_eq!(Kind::from_bits(found), kind);
    }
}

#[test]
fn nothing_is_both_writable_and_executable() {
    for kind in [Kind::Code, Kind::ReadOnly, Kind::Data, Kind::Device] {
        let (writable, executable) = (kind.bits() & READ_ONLY == 0, kind.bits() & XN == 0);
        assert!(!(writable && executable), "{kind:?}");
    }
}

#[test]
fn refusals_name_the_range() {
    let memory = Rc::new(FakeMemory::new());
    let mut source = FakeSource::new(&memory, 0x7000_0000, 2 * TABLE_BYTES);
    let memory = &*memory;
    let mut map = El2Map::new(memory, &mut source).unwrap();
    for (base, size) in [(1, 4096), (0, 4095)] {
        let range = PaRange::new(Pa(base), size);
        assert_eq!(map.map(memory, &mut source, range, Kind::Data), Err(El2MapError::Misaligned(range)));
    }
    for (base, size) in [(1 << 48, 4096), ((1 << 48) - 4096, 8192), (!0xfff, 8192)] {
        let range = PaRange::new(Pa(base), size);
        assert_eq!(map.unmap(memory, &mut source, range), Err(El2MapError::OutOfRange(range)));
        assert!(El2MapError::OutOfRange(range).to_string().contains("0x"));
    }
    // A GiB takes the second and last table, which a page in it can't do with.
    map.map(memory, &mut source, PaRange::new(Pa(BLOCK_1G), BLOCK_1G), Kind::Data).unwrap();
    let page = PaRange::new(Pa(BLOCK_1G), 4096);
    assert_eq!(map.map(memory, &mut source, page, Kind::Code), Err(El2MapError::OutOfMemory));
    assert_eq!(map.translate(memory, Va(BLOCK_1G)), Some((Pa(BLOCK_1G), Kind::Data)));
    assert_eq!(map.translate(memory, Va(1 << 48)), None);
    map.map(memory, &mut source, PaRange::new(Pa((1 << 39) - BLOCK_1G), 0), Kind::Data).unwrap();
    assert_eq!(
        map.unmap(memory, &mut source, PaRange::new(Pa(1 << 47), 1 << 47)),
        Ok(()),
        "a hole takes no table"
    );
}

#[test]
fn bump_pages_serve_as_tables() {
    let memory = FakeMemory::new();
    let mut source = Bump::new(PaRange::new(Pa(0x7000_0000), 3 * TABLE_BYTES));
    let mut map = El2Map::new(&memory, &mut source).unwrap();
    let bank = PaRange::new(Pa(BLOCK_1G), 512 << 20);
    map.map(&memory, &mut source, bank, Kind::Data).unwrap();
    assert_eq!((map.root(), source.rest().size), (Pa(0x7000_0000), 0));
    assert_eq!(map.translate(&memory, Va(BLOCK_1G + 5)), Some((Pa(BLOCK_1G + 5), Kind::Data)));
}

fn kind() -> impl Strategy<Value = Option<Kind>> {
    prop_oneof![
        Just(Some(Kind::Data)),
        Just(Some(Kind::Code)),
        Just(Some(Kind::ReadOnly)),
        Just(Some(Kind::Device)),
        Just(None),
    ]
}

/// First page and pages of a range: near the ends of blocks, of 1 GiB and of 512 GiB.
fn pages() -> impl Strategy<Value = (u64, u64)> {
    let giant = prop_oneof![0u64..3, 511u64..513];
    let block = prop_oneof![Just(0u64), 0u64..3, Just(511)];
    let page = prop_oneof![Just(0u64), 0u64..3, Just(511)];
    let count =
        prop_oneof![0u64..4, Just(512), 500u64..1100, Just(1 << 18), Just((1 << 18) + 513), Just(3 << 18)];
    ((giant, block, page), count)
        .prop_map(|((giant, block, page), count)| (giant << 18 | block << 9 | page, count))
}

proptest! {
    #[test]
    fn later_calls_win(calls in prop::collection::vec((pages(), kind()), 1..16)) {
        let memory = Rc::new(FakeMemory::new());
        let mut source = FakeSource::new(&memory, 0x70_0000_0000, u64::MAX);
        let memory = &*memory;
        let mut map = El2Map::new(memory, &mut source).unwrap();
        for ((page, count), kind) in &calls {
            let range = PaRange::new(Pa(page * PAGE_SIZE), count * PAGE_SIZE);
            match kind {
                Some(kind) => map.map(memory, &mut source, range, *kind).unwrap(),
                None => map.unmap(memory, &mut source, range).unwrap(),
            }
        }
        // At each end of each call, just before and just after.
        let ends = calls.iter().flat_map(|((page, count), _)| [*page, page + count]);
        for end in ends {
            for page in [end.saturating_sub(1), end, end + 1] {
                let last = calls.iter().rev().find(|((first, count), _)| (*first..first + count).contains(&page));
                let expected = last.and_then(|(_, kind)| *kind);
                let at = page * PAGE_SIZE + 0x123;
                prop_assert_eq!(map.translate(memory, Va(at)), expected.map(|kind| (Pa(at), kind)), "{:#x}", at);
            }
        }
        prop_assert_eq!(map.table_bytes(), source.live.values().sum::<u64>());
    }
}
