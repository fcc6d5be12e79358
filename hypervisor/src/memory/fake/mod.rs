//! Physical memory and TLB on the host, for tests: sparse memory that records what is written, and a TLB
//! that remembers whatever a real one might.

mod walker;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::address::{Ipa, PAGE_SIZE, Pa};
use super::phys::PhysMemory;
use super::stage2::{Stage2, Stage2Tlb};
use super::tables::TableSource;
use walker::Walker;

/// What was done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A 64-bit store.
    Write(Pa, u64),
    /// A range was filled with zeros.
    Zero(Pa, u64),
    /// `dsb ishst`.
    Publish,
    /// All about one address under the VM's VMID, root given.
    InvalidateIpa(Pa, Ipa),
    /// All about the VM, root given.
    InvalidateAll(Pa),
    /// A range was made visible to guests, or visible as code.
    Settle(Pa, u64, bool),
}

/// Sparse physical memory, filled with a pattern that no code should rely on.
#[derive(Default)]
pub struct FakeMemory {
    pages: RefCell<BTreeMap<u64, Box<[u64; 512]>>>,
    events: RefCell<Vec<Event>>,
    walker: RefCell<Walker>,
}

/// What memory holds before it is written.
const GARBAGE: u64 = 0xdead_beef_dead_beef;

impl FakeMemory {
    /// Memory that was never written.
    pub fn new() -> Self {
        Self::default()
    }

    fn page<R>(&self, number: u64, f: impl FnOnce(&mut [u64; 512]) -> R) -> R {
        let mut pages = self.pages.borrow_mut();
        f(pages.entry(number).or_insert_with(|| Box::new([GARBAGE; 512])))
    }

    fn word<R>(&self, at: u64, f: impl FnOnce(&mut u64) -> R) -> R {
        assert_eq!(at % 8, 0, "misaligned access to {at:#x}");
        self.page(at / PAGE_SIZE, |page| f(&mut page[(at % PAGE_SIZE / 8) as usize]))
    }

    /// The events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        self.events.take()
    }

    fn record(&self, event: Event) {
        let read = |at| self.word(at, |word| *word);
        let mut walker = self.walker.borrow_mut();
        match event {
            Event::Write(at, value) => walker.write(at.0, value, &read),
            Event::Zero(base, bytes) => {
                for page in (base.0..base.0 + bytes).step_by(PAGE_SIZE as usize) {
                    if walker.is_elsewhere(page, PAGE_SIZE) {
                        walker.write_page(page);
                    } else {
                        (page..page + PAGE_SIZE).step_by(8).for_each(|at| walker.write(at, 0, &read));
                    }
                }
            }
            Event::Publish => walker.publish(),
            Event::InvalidateIpa(root, ipa) => walker.invalidate(root.0, Some(ipa.0)),
            Event::InvalidateAll(root) => walker.invalidate(root.0, None),
            Event::Settle(..) => {}
        }
        self.events.borrow_mut().push(event);
    }

    /// From now on, panics when a change of `stage2` (which is empty) breaks a rule of the architecture.
    pub fn watch(&self, stage2: &Stage2) {
        let config = stage2.config();
        self.walker.borrow_mut().watch(stage2.root().0, config.start_level(), config.root_bytes());
    }

    /// Stops watching the VM with this root: no CPU has its tables, and the TLBs forgot its VMID.
    pub fn unwatch(&self, root: Pa) {
        self.walker.borrow_mut().unwatch(root.0);
    }

    /// A table's memory, or a page's, is given back.
    pub fn released(&self, base: Pa) {
        self.walker.borrow().release(base.0);
    }

    /// Panics when something that was changed is not published, or not forgotten by the TLBs.
    pub fn assert_settled(&self) {
        self.walker.borrow().assert_settled();
    }
}

fn bytes_of(page: &[u64; 512]) -> [u8; PAGE_SIZE as usize] {
    let mut bytes = [0; PAGE_SIZE as usize];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(page) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl PhysMemory for FakeMemory {
    fn read(&self, at: Pa) -> u64 {
        self.word(at.0, |word| *word)
    }

    fn write(&self, at: Pa, value: u64) {
        self.word(at.0, |word| *word = value);
        self.record(Event::Write(at, value));
    }

    fn read16(&self, at: Pa) -> u16 {
        let mut bytes = [0; 2];
        self.copy_out(at, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    fn write16(&self, at: Pa, value: u16) {
        self.copy_in(at, &value.to_le_bytes());
    }

    fn zero(&self, base: Pa, bytes: u64) {
        assert!(base.is_aligned(PAGE_SIZE) && bytes.is_multiple_of(PAGE_SIZE));
        for page in (base.0..base.0 + bytes).step_by(PAGE_SIZE as usize) {
            self.pages.borrow_mut().insert(page / PAGE_SIZE, Box::new([0; 512]));
        }
        self.record(Event::Zero(base, bytes));
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        let (mut at, mut rest) = (to.0, bytes);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min((PAGE_SIZE - at % PAGE_SIZE) as usize));
            self.page(at / PAGE_SIZE, |page| {
                let mut bytes = bytes_of(page);
                bytes[(at % PAGE_SIZE) as usize..][..now.len()].copy_from_slice(now);
                for (word, bytes) in page.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
                }
            });
            at += now.len() as u64;
            rest = later;
        }
    }

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        let (mut at, mut rest) = (from.0, bytes);
        while !rest.is_empty() {
            let room = rest.len().min((PAGE_SIZE - at % PAGE_SIZE) as usize);
            let (now, later) = rest.split_at_mut(room);
            let page = self.page(at / PAGE_SIZE, |page| bytes_of(page));
            now.copy_from_slice(&page[(at % PAGE_SIZE) as usize..][..room]);
            at += room as u64;
            rest = later;
        }
    }

    fn settle(&self, base: Pa, bytes: u64, code: bool) {
        self.record(Event::Settle(base, bytes, code));
    }
}

impl Stage2Tlb for FakeMemory {
    fn publish(&self) {
        self.record(Event::Publish);
    }

    fn invalidate_ipa(&self, root: Pa, ipa: Ipa) {
        self.record(Event::InvalidateIpa(root, ipa));
    }

    fn invalidate_all(&self, root: Pa) {
        self.record(Event::InvalidateAll(root));
    }
}

/// A source of tables that counts, and that can run out.
pub struct FakeSource {
    memory: Rc<FakeMemory>,
    next: u64,
    /// How many more bytes it gives.
    pub budget: u64,
    /// What is out: base and size.
    pub live: BTreeMap<Pa, u64>,
    /// Released ranges, reused first, so that a table that is given back too early is found out.
    freed: Vec<(Pa, u64)>,
}

impl FakeSource {
    /// A source that gives at most `budget` bytes of `memory`, from `base` on.
    pub fn new(memory: &Rc<FakeMemory>, base: u64, budget: u64) -> Self {
        Self { memory: memory.clone(), next: base, budget, live: BTreeMap::new(), freed: Vec::new() }
    }
}

impl TableSource for FakeSource {
    fn allocate(&mut self, bytes: u64) -> Option<Pa> {
        self.budget = self.budget.checked_sub(bytes)?;
        let again = self.freed.iter().rposition(|(_, size)| *size == bytes);
        let base = match again {
            Some(at) => self.freed.remove(at).0,
            None => {
                let base = self.next.next_multiple_of(bytes);
                self.next = base + bytes;
                Pa(base)
            }
        };
        self.live.insert(base, bytes);
        Some(base)
    }

    fn release(&mut self, base: Pa, bytes: u64) {
        assert_eq!(self.live.remove(&base), Some(bytes), "released {base} that was not out");
        self.memory.released(base);
        self.budget += bytes;
        self.freed.push((base, bytes));
    }
}
