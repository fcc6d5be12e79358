use super::*;
use crate::memory::address::{BLOCK_1G, BLOCK_2M};
use crate::memory::fake::{Event, FakeMemory, FakeSource};

/// ID_AA64MMFR0_EL1 with a PARange and TGran4 = 0.
const fn mmfr0(pa_range: u64) -> u64 {
    pa_range
}

const MMFR1_VMID16: u64 = 2 << 4;
const RAM: u64 = BLOCK_1G;
const HOST: u64 = 0x1_4000_0000;
const TABLES: u64 = 0x8000_0000;

struct World {
    memory: FakeMemory,
    source: FakeSource,
    stage2: Stage2,
}

impl World {
    fn new(bits: u8) -> Self {
        let config = Stage2Config::from_id(mmfr0(5), MMFR1_VMID16, bits).unwrap();
        let memory = FakeMemory::new();
        let mut source = FakeSource::new(TABLES, 1 << 30);
        let stage2 = Stage2::new(&config, &memory, &mut source).unwrap();
        memory.take_events();
        Self { memory, source, stage2 }
    }

    fn edit(&mut self) -> Editor<'_, FakeMemory, FakeMemory, FakeSource> {
        self.stage2.edit(&self.memory, &self.memory, &mut self.source)
    }
}

#[test]
fn a_guest_of_96_mib_takes_two_tables() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST), 96 << 20, Attr::RAM).unwrap();
    assert_eq!(world.stage2.table_bytes(), 8192);
    let found = world.stage2.translate(&world.memory, Ipa(RAM + 0x123_4567)).unwrap();
    assert_eq!(found, Translation { pa: Pa(HOST + 0x123_4567), attr: Attr::RAM, size: BLOCK_2M });
    assert_eq!(world.stage2.translate(&world.memory, Ipa(RAM + (96 << 20))), None);
    assert_eq!(world.stage2.translate(&world.memory, Ipa(RAM - 1)), None);
    let mut leaves = 0;
    let World { memory, mut source, stage2 } = world;
    stage2.destroy(&memory, &mut source, |leaf| leaves += leaf.size);
    assert_eq!(leaves, 96 << 20);
    assert!(source.live.is_empty());
}

#[test]
fn a_split_breaks_before_it_makes() {
    let mut world = World::new(32);
    world.edit().map(Ipa(RAM), Pa(HOST), BLOCK_2M, Attr::RAM).unwrap();
    world.memory.take_events();
    world.edit().split(Ipa(RAM + 0x5000)).unwrap();
    let events = world.memory.take_events();
    let block_entry = Pa(TABLES + 0x1000);
    let root = Pa(TABLES);
    assert_eq!(events.len(), 512 + 5);
    assert_eq!(
        events[512..],
        [
            Event::Write(block_entry, 0),
            Event::Publish,
            Event::InvalidateIpa(root, Ipa(RAM)),
            Event::Write(block_entry, (TABLES + 0x2000) | 3),
            Event::Publish,
        ]
    );
    let found = world.stage2.translate(&world.memory, Ipa(RAM + 0x5678)).unwrap();
    assert_eq!(found, Translation { pa: Pa(HOST + 0x5678), attr: Attr::RAM, size: PAGE_SIZE });
}
