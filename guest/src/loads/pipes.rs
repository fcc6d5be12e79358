//! Pipes opened and closed, each access checked by shadow memory or not (E3). The checks are calls before each load and store, where a
//! compiler would put them.

use core::ptr::from_ref;
use core::sync::atomic::{AtomicBool, Ordering};

use super::threads;
use crate::arch::{mmu, shadow};
use crate::kernel::console::report;
use crate::kernel::error;
use crate::kernel::memory::Arena;
use crate::pipes::{Guard, Memory, Pipes, Table, Unchecked, WORDS, own_words, round, trespasses};
use crate::shadow::Checking;
use crate::sync::Lock;

/// Asks the shadow; with `COMMON`, memory whose shadow is the common page is allowed or not by the slow check.
struct Shadow<const COMMON: bool> {
    bad: u64,
}

impl<const COMMON: bool> Guard for Shadow<COMMON> {
    fn access(&mut self, word: &u64) {
        let address = from_ref(word).addr();
        let allowed = if COMMON { shadow::check_common(address, 8) } else { shadow::check(address, 8) };
        self.bad += u64::from(!allowed);
    }

    fn allow(&mut self, object: &[u64]) {
        shadow::allow_words(object.as_ptr().addr(), object.len());
    }

    fn forbid(&mut self, object: &[u64]) {
        shadow::forbid_words(object.as_ptr().addr(), object.len());
    }

    fn seal(&mut self, memory: &[u64]) {
        let start = memory.as_ptr().addr();
        if COMMON {
            shadow::forbid_pages(start..start + size_of_val(memory));
        } else {
            shadow::forbid_words(start, memory.len());
        }
    }

    fn reported(&self) -> u64 {
        self.bad
    }
}

/// What a run gave.
struct Outcome {
    time: u64,
    opens: u64,
    closes: u64,
    reported: u64,
    ok: bool,
}

/// What all threads use: a process' table of pipes, and whether each found what was due.
struct Common<G: 'static, A: 'static> {
    table: Lock<Table<'static, G, A>>,
    content: AtomicBool,
}

fn measure<G: Guard + Send + 'static, A: Guard + Send + 'static>(
    load: &Pipes,
    arena: &mut Arena,
    (memory, space): (Memory<'static>, Option<u64>),
    guard: G,
    allocator: A,
) -> Option<Outcome> {
    // Forbids all objects, which needs the shadow.
    if let Some(space) = space {
        mmu::switch_space(space);
    }
    let table = Lock::new(Table::new(memory, guard, allocator));
    let Some(common) = arena.keep(Common { table, content: AtomicBool::new(true) }) else {
        too_little(load);
        return None;
    };
    let (pipes, n) = (load.pipes as usize, load.n);
    let time = threads::run(arena, load.threads, space, move |index| {
        let own = index * pipes..(index + 1) * pipes;
        if !(0..n).fold(true, |content, _| content & round(&common.table, own.clone())) {
            common.content.store(false, Ordering::Relaxed);
        }
    })?;
    let mut table = common.table.lock();
    let (opens, closes) = (table.opens, table.closes);
    let all = u64::from(load.n) * load.all() as u64;
    let counts = opens == all && closes == 2 * all && table.used() == 0;
    let allowed = table.reported() == 0;
    let reported = table.trespass();
    let content = common.content.load(Ordering::Relaxed);
    let ok = content && counts && allowed && reported == trespasses(load);
    Some(Outcome { time, opens, closes, reported, ok })
}

fn too_little(load: &Pipes) {
    let checking = load.checking.name();
    error(format_args!(
        "too little memory for checking={checking} pipes={} threads={}",
        load.pipes, load.threads
    ));
}

/// Runs the load.
pub fn run(load: &Pipes, arena: &mut Arena) -> bool {
    if let Some(contradiction) = load.contradiction() {
        error(format_args!("{contradiction}"));
        return false;
    }
    let pipes = load.all();
    let memory = (|| {
        // None of the three shares a page of shadow with another.
        let objects = arena.take(pipes, shadow::SPAN, [0; WORDS])?;
        let descriptors = arena.take(2 * pipes, shadow::SPAN, 0)?;
        let own = arena.take(own_words(pipes), shadow::SPAN, 0)?;
        let (bytes, space) = match load.checking {
            Checking::Off => (0, None),
            Checking::Full => (shadow::full(arena)?, None),
            Checking::Page if load.common => {
                let start = objects.as_ptr().addr();
                (0, Some(shadow::common(arena, start..start + size_of_val(objects))?))
            }
            Checking::Page => (0, Some(shadow::by_page(arena)?)),
        };
        Some((Memory { objects, descriptors, own }, bytes, space))
    })();
    let Some((memory, bytes, space)) = memory else {
        too_little(load);
        return false;
    };
    let own = || Shadow::<false> { bad: 0 };
    let common = || Shadow::<true> { bad: 0 };
    let memory = (memory, space);
    let outcome = match (load.checking, load.common, load.allocator) {
        (Checking::Off, ..) => measure(load, arena, memory, Unchecked, Unchecked),
        (_, false, false) => measure(load, arena, memory, own(), Unchecked),
        (_, false, true) => measure(load, arena, memory, own(), own()),
        (_, true, false) => measure(load, arena, memory, common(), Unchecked),
        (_, true, true) => measure(load, arena, memory, common(), common()),
    };
    let Some(outcome) = outcome else { return false };
    report!(
        "pipes",
        "\"checking\":\"{}\",\"poisoned\":\"{}\",\"allocator\":\"{}\",\"pipes\":{},\"n\":{},\"threads\":{},\"opens\":{},\"closes\":{},\"time_ns\":{},\"shadow_bytes\":{},\"reported\":{},\"ok\":{}",
        load.checking.name(),
        if load.common { "common" } else { "own" },
        if load.allocator { "checked" } else { "unchecked" },
        load.pipes,
        load.n,
        load.threads,
        outcome.opens,
        outcome.closes,
        outcome.time,
        bytes + shadow::mapped(),
        outcome.reported,
        outcome.ok
    );
    outcome.ok
}
