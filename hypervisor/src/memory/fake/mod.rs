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

    fn word<R>(&self, at: u64, f: impl FnOnce(&mut u64) -> R) -> R {
        assert_eq!(at % 8, 0, "misaligned access to {at:#x}");
        let mut pages = self.pages.borrow_mut();
        let page = pages.entry(at / PAGE_SIZE).or_insert_with(|| Box::new([GARBAGE; 512]));
        f(&mut page[(at % PAGE_SIZE / 8) as usize])
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
                (base.0..base.0 + bytes).step_by(8).for_each(|at| walker.write(at, 0, &read));
            }
            Event::Publish => walker.publish(),
            Event::InvalidateIpa(_, ipa) => walker.invalidate(Some(ipa.0)),
            Event::InvalidateAll(_) => walker.invalidate(None),
        }
        self.events.borrow_mut().push(event);
    }

    /// From now on, panics when a change of `stage2` (which is empty) breaks a rule of the architecture.
    pub fn watch(&self, stage2: &Stage2) {
        let config = stage2.config();
        self.walker.borrow_mut().watch(stage2.root().0, config.start_level(), config.root_bytes());
    }

    /// Stops watching: no CPU has the tables, and the TLBs forgot the VM's VMID.
    pub fn unwatch(&self) {
        self.walker.replace(Walker::default());
    }

    /// Panics when something that was changed is not published, or not forgotten by the TLBs.
    pub fn assert_settled(&self) {
        self.walker.borrow().assert_settled();
    }
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
        for at in (base.0..base.0 + bytes).step_by(8) {
            self.word(at, |word| *word = 0);
        }
        self.record(Event::Zero(base, bytes));
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        for (at, byte) in (to.0..).zip(bytes) {
            let shift = at % 8 * 8;
            self.word(at & !7, |word| *word = *word & !(0xff << shift) | u64::from(*byte) << shift);
        }
    }

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        for (at, byte) in (from.0..).zip(bytes) {
            *byte = self.word(at & !7, |word| (*word >> (at % 8 * 8)) as u8);
        }
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
        self.memory.walker.borrow().release(base.0);
        self.budget += bytes;
        self.freed.push((base, bytes));
    }
}
