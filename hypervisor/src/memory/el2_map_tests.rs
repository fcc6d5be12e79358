use std::rc::Rc;

use super::*;
use crate::memory::address::{BLOCK_1G, BLOCK_2M};
use crate::memory::fake::{FakeMemory, FakeSource};

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
