//! VMs' pages on the host: real tables, real frame allocator; memory and TLB are fakes that watch.

mod merging;
mod model;
mod rules;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

use super::common::CommonPages;
use super::*;
use crate::memory::address::PaRange;
use crate::memory::fake::{Event, FakeMemory};
use crate::memory::frames::{Frames, MemoryPlan, Reservation};
use crate::memory::stage2::Translation;

/// RAM of each VM: not a whole number of blocks.
const SIZE: u64 = 11 * BLOCK_2M / 2 + 3 * PAGE_SIZE;
const RAM: u64 = RAM_BASE.0;

/// The machine's memory.
const BANK: u64 = 0x8000_0000;
/// Frames for common pages: fewer than the kernel has pages.
const COMMON: u64 = 0x1_8000_0000;
const COMMON_FRAMES: u64 = 600;
/// The bundle, which is not the frame allocator's.
const BUNDLE: u64 = 0x2_0000_0000;
/// The kernel: at a page of the bundle, not a whole number of pages long, in three blocks of the VM's RAM.
const KERNEL: Place = Place { ipa: RAM + 0x8_0000, pa: BUNDLE + 0x1000, size: (4 << 20) + 1234 };
/// A ramdisk that a foreign tool put anywhere.
const RAMDISK: Place = Place { ipa: RAM + 0x61_0000, pa: BUNDLE + 0x80_0123, size: 300_005 };
/// A device tree: less than a page.
const TREE: Place = Place { ipa: RAM + 0x70_0000, pa: BUNDLE + 0x90_0000, size: 3000 };

struct Place {
    ipa: u64,
    pa: u64,
    size: usize,
}

/// All images' bytes, none of them zero, all pages different.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..KERNEL.size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1).collect()
});

fn segments() -> ArrayVec<Segment, MAX_SEGMENTS> {
    [&KERNEL, &RAMDISK, &TREE]
        .into_iter()
        .map(|place| Segment { ipa: place.ipa, pa: Pa(place.pa), bytes: &BYTES[..place.size] })
        .collect()
}

/// A machine.
struct World {
    memory: Rc<FakeMemory>,
    frames: Rc<RefCell<Frames>>,
    common: Rc<RefCell<CommonPages>>,
    config: Stage2Config,
    merges: bool,
    vms: [Option<TestVm>; 2],
}

/// A VM, and what its guest has written: bytes by address.
struct TestVm {
    pages: Pages,
    source: Source,
    written: BTreeMap<u64, u8>,
}

/// A VM's account, as `vm::ram` has it.
struct Source {
    memory: Rc<FakeMemory>,
    frames: Rc<RefCell<Frames>>,
    common: Rc<RefCell<CommonPages>>,
    reservation: Reservation,
}

impl TableSource for Source {
    fn allocate(&mut self, bytes: u64) -> Option<Pa> {
        self.take(bytes, bytes)
    }

    fn release(&mut self, base: Pa, bytes: u64) {
        self.memory.released(base);
        self.give(base, bytes);
    }
}

impl PageSource for Source {
    fn take(&mut self, bytes: u64, align: u64) -> Option<Pa> {
        self.frames.borrow_mut().alloc_reserved(&mut self.reservation, bytes, align)
    }

    fn give(&mut self, base: Pa, bytes: u64) {
        self.frames.borrow_mut().free_reserved(&mut self.reservation, base, bytes).unwrap();
    }

    fn join(&mut self, memory: &impl PhysMemory, page: Pa) -> Option<Pa> {
        self.common.borrow_mut().join(memory, page)
    }

    fn leave(&mut self, page: Pa) {
        self.common.borrow_mut().leave(page);
    }
}

/// How the machine's memory is divided before there are VMs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holes {
    /// All of it is free.
    None,
    /// A page of each block is used: no block is whole.
    InBlocks,
    /// Every second page is used: no two pages are beside each other.
    EverySecond,
}

impl World {
    /// A machine with just enough memory for its VMs.
    fn new(holes: Holes) -> World {
        let config = Stage2Config::from_id(5, 2 << 4, 1 << 40, 32).unwrap();
        let memory = Rc::new(FakeMemory::new());
        for place in [&KERNEL, &RAMDISK, &TREE] {
            memory.copy_in(Pa(place.pa), &BYTES[..place.size]);
        }
        let needed = 2 * Pages::most_bytes(&config, SIZE);
        let (size, step) = match holes {
            Holes::None => (needed, None),
            Holes::InBlocks => (needed + 16 * PAGE_SIZE, Some(BLOCK_2M)),
            Holes::EverySecond => (2 * needed, Some(2 * PAGE_SIZE)),
        };
        let mut plan = MemoryPlan::new();
        plan.add(PaRange::new(Pa(BANK), size)).unwrap();
        let mut frames = Frames::new(&plan, Vec::leak(vec![0; plan.metadata_words()])).unwrap();
        for at in step.into_iter().flat_map(|step| (BANK..BANK + size).step_by(step as usize)) {
            frames.claim(PaRange::new(Pa(at), PAGE_SIZE)).unwrap();
        }
        let common = CommonPages::new(PaRange::new(Pa(COMMON), COMMON_FRAMES * PAGE_SIZE));
        World {
            memory,
            frames: Rc::new(RefCell::new(frames)),
            common: Rc::new(RefCell::new(common)),
            config,
            merges: false,
            vms: [None, None],
        }
    }

    fn start(&mut self, vm: usize) {
        let reservation = self.frames.borrow_mut().reserve(Pages::most_bytes(&self.config, SIZE)).unwrap();
        let (memory, frames, common) = (self.memory.clone(), self.frames.clone(), self.common.clone());
        let mut source = Source { memory, frames, common, reservation };
        let pages =
            Pages::new(&self.config, SIZE, segments(), self.merges, &*self.memory, &mut source).unwrap();
        self.memory.watch(&pages.stage2);
        self.vms[vm] = Some(TestVm { pages, source, written: BTreeMap::new() });
    }

    fn vm(&mut self, vm: usize) -> &mut TestVm {
        self.vms[vm].as_mut().unwrap()
    }

    fn reset(&mut self, vm: usize) {
        let memory = self.memory.clone();
        let vm = self.vm(vm);
        memory.unwatch(vm.pages.root());
        vm.pages.reset(&*memory, &mut vm.source);
        vm.written.clear();
        memory.watch(&vm.pages.stage2);
    }

    fn end(&mut self, vm: usize) {
        let Some(TestVm { pages, mut source, .. }) = self.vms[vm].take() else { return };
        self.memory.unwatch(pages.root());
        pages.end(&*self.memory, &mut source);
        self.frames.borrow_mut().cancel(source.reservation);
    }

    /// Everything that is true at any time.
    fn check(&self) {
        self.memory.assert_settled();
        let mut used = 0;
        let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
        let mut users = 0;
        let is_common = |pa: u64| (COMMON..COMMON + COMMON_FRAMES * PAGE_SIZE).contains(&pa);
        for vm in self.vms.iter().flatten() {
            let (mut private, mut shared) = (0, 0);
            vm.pages.stage2.for_each_leaf(&*self.memory, |leaf| {
                assert!(leaf.attr.execute || self.merges && leaf.attr.write);
                assert!(RAM <= leaf.ipa.0 && leaf.ipa.0 + leaf.size <= RAM + SIZE, "{leaf:?}");
                if leaf.attr.write {
                    private += leaf.size;
                    assert!(leaf.pa.0 < COMMON, "a page is shared and writable: {leaf:?}");
                    let before = owned.range(..leaf.pa.0 + leaf.size).next_back();
                    assert!(
                        before.is_none_or(|(base, size)| base + size <= leaf.pa.0),
                        "a frame is writable twice: {leaf:?}"
                    );
                    owned.insert(leaf.pa.0, leaf.size);
                } else if is_common(leaf.pa.0) {
                    assert!(self.merges);
                    shared += leaf.size;
                    users += 1;
                } else {
                    shared += leaf.size;
                    // The tree is less than a page, and the ramdisk not aligned as the VM has it.
                    let offset = leaf.ipa.0 - KERNEL.ipa;
                    assert_eq!(leaf.pa.0, KERNEL.pa + offset);
                    assert!(offset + leaf.size <= KERNEL.size as u64);
                }
            });
            let usage = vm.pages.usage();
            assert_eq!((usage.private_bytes, usage.shared_bytes), (private, shared));
            let taken = private + usage.table_bytes;
            let most = Pages::most_bytes(&self.config, SIZE);
            assert_eq!(vm.source.reservation.left(), most - taken);
            used += taken;
        }
        assert_eq!(self.common.borrow().counters().users, users);
        let frames = self.frames.borrow();
        let before = frames.total_bytes() - frames.free_bytes() - used;
        assert_eq!(before % PAGE_SIZE, 0);
        assert_eq!(frames.refused(), 0);
    }

    fn used(&self) -> u64 {
        self.frames.borrow().used_bytes()
    }
}

impl TestVm {
    fn resolve(&mut self, ipa: u64, access: Access) -> Result<(), PageError> {
        let memory = self.source.memory.clone();
        let mut means = Means { memory: &*memory, tlb: &*memory, source: &mut self.source };
        self.pages.resolve(&mut means, ipa, access)
    }

    /// Where the guest's `ipa` leads.
    fn there(&self, ipa: u64) -> Option<Translation> {
        self.pages.stage2.translate(&*self.source.memory, Ipa(ipa))
    }

    /// What the guest finds at `ipa`, or `None` where it would fault.
    fn see(&self, ipa: u64, length: usize) -> Option<Vec<u8>> {
        let there = self.there(ipa)?;
        let mut bytes = vec![0; length];
        self.source.memory.copy_out(there.pa, &mut bytes);
        Some(bytes)
    }

    /// The same, after as many faults as it takes.
    fn read_page(&mut self, page: u64) -> Vec<u8> {
        if self.see(page, 0).is_none() {
            self.resolve(page, Access::Read).unwrap();
        }
        self.see(page, PAGE_SIZE as usize).expect("it is there now")
    }

    /// A store of the guest's, after as many faults as it takes.
    fn write(&mut self, ipa: u64, byte: u8) {
        let writable = |vm: &TestVm| vm.there(ipa).filter(|there| there.attr.write);
        if writable(self).is_none() {
            self.resolve(ipa, Access::Write).unwrap();
        }
        let there = writable(self).expect("it is writable now");
        self.source.memory.copy_in(there.pa, &[byte]);
        self.written.insert(ipa, byte);
    }

    /// An instruction fetch of the guest's, after as many faults as it takes.
    fn execute(&mut self, ipa: u64) {
        for _ in 0..2 {
            if !self.there(ipa).is_some_and(|there| there.attr.execute) {
                self.resolve(ipa, Access::Execute).unwrap();
            }
        }
        assert!(self.there(ipa).is_some_and(|there| there.attr.execute));
    }

    /// What must be in the page at `page`.
    fn expected(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_SIZE as usize];
        for place in [&KERNEL, &RAMDISK, &TREE] {
            for (at, byte) in (page..).zip(&mut bytes) {
                if let Some(image) =
                    at.checked_sub(place.ipa).and_then(|at| BYTES[..place.size].get(at as usize))
                {
                    *byte = *image;
                }
            }
        }
        for (at, byte) in self.written.range(page..page + PAGE_SIZE) {
            bytes[(at - page) as usize] = *byte;
        }
        bytes
    }
}
