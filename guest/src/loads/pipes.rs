//! Pipes opened and closed, each access checked by shadow memory or not (E3). The checks are calls before each load and store, where a
//! compiler would put them.

use core::ptr::from_ref;

use crate::arch::mmu;
use crate::arch::{cpu, shadow};
use crate::kernel::console::report;
use crate::kernel::error;
use crate::kernel::memory::Arena;
use crate::pipes::{Guard, Memory, Pipes, Table, Unchecked, WORDS, own_words, trespasses};
use crate::samples::nanoseconds;
use crate::shadow::Checking;

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

fn measure(load: &Pipes, memory: Memory, guard: impl Guard, allocator: impl Guard) -> Outcome {
    let mut table = Table::new(memory, guard, allocator);
    let start = cpu::counter();
    let mut content = true;
    for _ in 0..load.n {
        content &= table.round(load.pipes as usize);
    }
    let time = nanoseconds(cpu::counter() - start, cpu::frequency());
    let (opens, closes) = (table.opens, table.closes);
    let all = u64::from(load.n) * u64::from(load.pipes);
    let counts = opens == all && closes == 2 * all && table.used() == 0;
    let allowed = table.reported() == 0;
    let reported = table.trespass();
    Outcome {
        time,
        opens,
        closes,
        reported,
        ok: content && counts && allowed && reported == trespasses(load),
    }
}

/// Runs the load.
pub fn run(load: &Pipes, arena: &mut Arena) -> bool {
    if let Some(contradiction) = load.contradiction() {
        error(format_args!("{contradiction}"));
        return false;
    }
    let pipes = load.pipes as usize;
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
        error(format_args!("too little memory for checking={} pipes={pipes}", load.checking.name()));
        return false;
    };
    if let Some(space) = space {
        mmu::switch_space(space);
    }
    let own = || Shadow::<false> { bad: 0 };
    let common = || Shadow::<true> { bad: 0 };
    let outcome = match (load.checking, load.common, load.allocator) {
        (Checking::Off, ..) => measure(load, memory, Unchecked, Unchecked),
        (_, false, false) => measure(load, memory, own(), Unchecked),
        (_, false, true) => measure(load, memory, own(), own()),
        (_, true, false) => measure(load, memory, common(), Unchecked),
        (_, true, true) => measure(load, memory, common(), common()),
    };
    report!(
        "pipes",
        "\"checking\":\"{}\",\"poisoned\":\"{}\",\"allocator\":\"{}\",\"pipes\":{},\"n\":{},\"opens\":{},\"closes\":{},\"time_ns\":{},\"shadow_bytes\":{},\"reported\":{},\"ok\":{}",
        load.checking.name(),
        if load.common { "common" } else { "own" },
        if load.allocator { "checked" } else { "unchecked" },
        pipes,
        load.n,
        outcome.opens,
        outcome.closes,
        outcome.time,
        bytes + shadow::mapped(),
        outcome.reported,
        outcome.ok
    );
    outcome.ok
}
