//! The `pipes` load's logic: pipes that are opened and closed, their objects from a small allocator, with somebody who is asked before
//! each access (E3).

use core::hint::black_box;
use core::ops::Range;

use crate::arguments::number;
use crate::shadow::{Checking, set_threads};
use crate::sync::Lock;

/// Words of a pipe's object: its open readers and writers, and what is cleared when it is opened.
pub const WORDS: usize = 32;
/// Pipes at most.
const MOST: usize = 1000;
/// Words of the allocator's own memory before the links: the first free object, and how many are in use.
const HEAD: usize = 0;
const USED: usize = 1;
const LINKS: usize = 2;

/// The load's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipes {
    /// Pipes that each thread has open at once.
    pub pipes: u32,
    /// How often they are opened and closed.
    pub n: u32,
    /// Threads.
    pub threads: u32,
    /// How accesses are checked.
    pub checking: Checking,
    /// Whether memory other than the pipes' objects has one common shadow page that forbids everything.
    pub common: bool,
    /// Whether the allocator's own memory is checked too.
    pub allocator: bool,
}

impl Default for Pipes {
    fn default() -> Self {
        Pipes { pipes: 10, n: 10_000, threads: 1, checking: Checking::Off, common: false, allocator: false }
    }
}

impl Pipes {
    /// Sets one parameter; the result is as that of `arguments::set`.
    pub fn set(&mut self, key: &str, value: &str) -> Option<&'static str> {
        match (key, value) {
            ("pipes", _) => return number(value, 1, 1000, "1 to 1000", &mut self.pipes),
            ("n", _) => return number(value, 1, 100_000_000, "1 to 100000000", &mut self.n),
            ("threads", _) => return set_threads(value, &mut self.threads),
            ("checking", _) => return self.checking.set(value),
            ("poisoned", "own") => self.common = false,
            ("poisoned", "common") => self.common = true,
            ("poisoned", _) => return Some("own or common"),
            ("allocator", "unchecked") => self.allocator = false,
            ("allocator", "checked") => self.allocator = true,
            ("allocator", _) => return Some("checked or unchecked"),
            _ => return Some(""),
        }
        None
    }

    /// Pipes that all threads have open at once.
    pub const fn all(&self) -> usize {
        self.pipes as usize * self.threads as usize
    }

    /// What of the parameters doesn't go together, if anything.
    pub const fn contradiction(&self) -> Option<&'static str> {
        match self.checking {
            _ if self.all() > MOST => Some("pipes x threads may be at most 1000"),
            Checking::Off if self.allocator => Some("allocator=checked needs checking=full or page"),
            Checking::Off | Checking::Full if self.common => Some("poisoned=common needs checking=page"),
            _ => None,
        }
    }
}

/// Who is asked before each access.
pub trait Guard {
    /// A word is about to be accessed.
    fn access(&mut self, word: &u64);
    /// An object may be used from now on.
    fn allow(&mut self, object: &[u64]);
    /// An object may not be used any more.
    fn forbid(&mut self, object: &[u64]);
    /// Memory that isn't an object may not be used any more.
    fn seal(&mut self, memory: &[u64]);
    /// How many accesses were not allowed.
    fn reported(&self) -> u64;
}

/// Nobody is asked.
pub struct Unchecked;

impl Guard for Unchecked {
    fn access(&mut self, _: &u64) {}
    fn allow(&mut self, _: &[u64]) {}
    fn forbid(&mut self, _: &[u64]) {}
    fn seal(&mut self, _: &[u64]) {}
    fn reported(&self) -> u64 {
        0
    }
}

/// The memory of the load.
pub struct Memory<'a> {
    /// The pipes' objects.
    pub objects: &'a mut [[u64; WORDS]],
    /// The descriptors, two for each pipe: 0 is a closed one.
    pub descriptors: &'a mut [u64],
    /// The allocator's own memory, of [`own_words`].
    pub own: &'a mut [u64],
}

/// Words of the allocator's own memory for so many objects.
pub const fn own_words(objects: usize) -> usize {
    LINKS + objects
}

/// The table of pipes, and the allocator of their objects.
pub struct Table<'a, G, A> {
    memory: Memory<'a>,
    guard: G,
    allocator: A,
    /// Pipes that were opened.
    pub opens: u64,
    /// Descriptors that were closed.
    pub closes: u64,
}

fn load(guard: &mut impl Guard, word: &u64) -> u64 {
    guard.access(word);
    black_box(*word)
}

fn store(guard: &mut impl Guard, word: &mut u64, value: u64) {
    guard.access(word);
    // Else the compiler makes one wide store of many.
    *word = black_box(value);
}

impl<'a, G: Guard, A: Guard> Table<'a, G, A> {
    /// A table with all objects free. `allocator` is asked before the allocator's accesses to its own memory, `guard` before all others.
    pub fn new(memory: Memory<'a>, mut guard: G, allocator: A) -> Self {
        let objects = memory.objects.len();
        memory.own[HEAD] = 1;
        memory.own[USED] = 0;
        for (i, link) in memory.own[LINKS..].iter_mut().enumerate() {
            *link = if i + 1 < objects { i as u64 + 2 } else { 0 };
        }
        memory.objects.iter().for_each(|object| guard.forbid(object));
        Table { memory, guard, allocator, opens: 0, closes: 0 }
    }

    fn allocate(&mut self) -> Option<usize> {
        let own = &mut *self.memory.own;
        let slot = load(&mut self.allocator, &own[HEAD]).checked_sub(1)? as usize;
        let next = load(&mut self.allocator, &own[LINKS + slot]);
        store(&mut self.allocator, &mut own[HEAD], next);
        let used = load(&mut self.allocator, &own[USED]);
        store(&mut self.allocator, &mut own[USED], used + 1);
        self.guard.allow(&self.memory.objects[slot]);
        Some(slot)
    }

    fn free(&mut self, slot: usize) {
        self.guard.forbid(&self.memory.objects[slot]);
        let own = &mut *self.memory.own;
        let next = load(&mut self.allocator, &own[HEAD]);
        store(&mut self.allocator, &mut own[LINKS + slot], next);
        store(&mut self.allocator, &mut own[HEAD], slot as u64 + 1);
        let used = load(&mut self.allocator, &own[USED]);
        store(&mut self.allocator, &mut own[USED], used.wrapping_sub(1));
    }

    /// Opens a pipe as descriptors `2 * i` and `2 * i + 1`. False: one is open already, or no object is free.
    pub fn open(&mut self, i: usize) -> bool {
        for end in &self.memory.descriptors[2 * i..2 * i + 2] {
            if load(&mut self.guard, end) != 0 {
                return false;
            }
        }
        let Some(slot) = self.allocate() else { return false };
        let object = &mut self.memory.objects[slot];
        object.iter_mut().for_each(|word| store(&mut self.guard, word, 0));
        for (side, count) in object[..2].iter_mut().enumerate() {
            store(&mut self.guard, count, 1);
            let end = 2 * slot as u64 + side as u64 + 1;
            store(&mut self.guard, &mut self.memory.descriptors[2 * i + side], end);
        }
        self.opens += 1;
        true
    }

    /// Closes a descriptor; with its second one a pipe's object is free. False: it isn't open.
    pub fn close(&mut self, descriptor: usize) -> bool {
        let Some(end) = load(&mut self.guard, &self.memory.descriptors[descriptor]).checked_sub(1) else {
            return false;
        };
        store(&mut self.guard, &mut self.memory.descriptors[descriptor], 0);
        let (slot, side) = (end as usize / 2, end as usize % 2);
        let object = &mut self.memory.objects[slot];
        if load(&mut self.guard, &object[side]) != 1 {
            return false;
        }
        store(&mut self.guard, &mut object[side], 0);
        if load(&mut self.guard, &object[1 - side]) == 0 {
            self.free(slot);
        }
        self.closes += 1;
        true
    }

    /// Objects that are in use, by the allocator's books.
    pub fn used(&self) -> u64 {
        self.memory.own[USED]
    }

    /// Accesses that were not allowed.
    pub fn reported(&self) -> u64 {
        self.guard.reported() + self.allocator.reported()
    }

    /// Uses a free object, forbids the descriptors and the allocator's own memory, and opens and closes one more pipe. Returns how many
    /// accesses were reported. All must be closed.
    pub fn trespass(&mut self) -> u64 {
        let before = self.reported();
        load(&mut self.guard, &self.memory.objects[0][0]);
        self.guard.seal(self.memory.descriptors);
        self.guard.seal(self.memory.own);
        let _ = self.open(0) && self.close(0) && self.close(1);
        self.reported() - before
    }
}

/// Opens pipes and closes them all. A thread holds the table of its process for each call, as others may want it.
pub fn round<G: Guard, A: Guard>(table: &Lock<Table<'_, G, A>>, pipes: Range<usize>) -> bool {
    let mut descriptors = 2 * pipes.start..2 * pipes.end;
    pipes.into_iter().all(|i| table.lock().open(i))
        && descriptors.all(|descriptor| table.lock().close(descriptor))
}

/// What [`Table::trespass`] must return: one use of a free object, eight of the descriptors, and ten of the allocator's memory.
pub const fn trespasses(parameters: &Pipes) -> u64 {
    match parameters.checking {
        Checking::Off => 0,
        _ => 1 + 8 + if parameters.allocator { 10 } else { 0 },
    }
}

#[cfg(test)]
mod tests;
