mod config;
mod limits;
mod model;
mod order;

use std::rc::Rc;

use super::*;
use crate::memory::fake::{FakeMemory, FakeSource};

/// ID_AA64MMFR0_EL1 with 48 bits of physical address and the 4 KiB granule.
const MMFR0: u64 = 5;
const MMFR1_VMID16: u64 = 2 << 4;
/// Guest address of RAM.
const RAM: u64 = 0x4000_0000;
/// Where guests' memory is.
const HOST: u64 = 0x1_4000_0000;
/// Where tables come from.
const TABLES: u64 = 0x8000_0000;

fn config(bits: u8) -> Stage2Config {
    Stage2Config::from_id(MMFR0, MMFR1_VMID16, 0, bits).unwrap()
}

/// A machine with one VM's tables, all of whose changes are watched for breaches of the architecture's rules.
struct World {
    memory: Rc<FakeMemory>,
    source: FakeSource,
    stage2: Stage2,
}

impl World {
    fn new(bits: u8) -> Self {
        Self::with_budget(bits, u64::MAX)
    }

    fn with_budget(bits: u8, budget: u64) -> Self {
        let memory = Rc::new(FakeMemory::new());
        let mut source = FakeSource::new(&memory, TABLES, budget);
        let stage2 = Stage2::new(&config(bits), &*memory, &mut source).unwrap();
        memory.watch(&stage2);
        memory.take_events();
        Self { memory, source, stage2 }
    }

    fn edit(&mut self) -> Editor<'_, FakeMemory, FakeMemory, FakeSource> {
        self.stage2.edit(&self.memory, &self.memory, &mut self.source)
    }

    fn translate(&self, ipa: u64) -> Option<Translation> {
        self.stage2.translate(&*self.memory, Ipa(ipa))
    }

    fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        self.stage2.for_each_leaf(&*self.memory, |leaf| leaves.push(leaf));
        leaves
    }

    /// Ends the VM; returns the bytes that its leaves mapped. All tables are back then.
    fn destroy(mut self) -> u64 {
        self.memory.unwatch(self.stage2.root());
        let mut bytes = 0;
        self.stage2.destroy(&*self.memory, &mut self.source, |leaf| bytes += leaf.size);
        assert!(self.source.live.is_empty(), "tables that did not come back: {:?}", self.source.live);
        bytes
    }
}
