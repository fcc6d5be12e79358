//! Vectored reads into buffers of one byte, each access checked by shadow memory or not (E3). The checks are calls around each load and store,
//! where a compiler would put them.

use core::hint::black_box;

use crate::arch::mmu::{self, PAGE};
use crate::arch::{cpu, shadow};
use crate::kernel::console::report;
use crate::kernel::error;
use crate::kernel::memory::Arena;
use crate::samples::nanoseconds;
use crate::shadow::{BUFFERS, Checking, Readv, buffer};

/// One vectored read of a file: a byte into each buffer. Returns how many accesses were reported.
fn read<const CHECKED: bool>(file: &[u8], page: &mut [u8], vector: &[usize]) -> u64 {
    let mut bad = 0;
    for (byte, at) in file.iter().zip(vector) {
        if CHECKED {
            bad += u64::from(!shadow::check(core::ptr::from_ref(at).addr(), size_of::<usize>()));
            bad += u64::from(!shadow::check(core::ptr::from_ref(byte).addr(), 1));
            bad += u64::from(!shadow::check(core::ptr::from_ref(&page[*at]).addr(), 1));
        }
        page[*at] = *black_box(byte);
    }
    bad
}

/// Runs the load.
pub fn run(load: &Readv, arena: &mut Arena) -> bool {
    let memory = (|| {
        // All of it lies where one page of shadow covers it, however long the image is.
        let file = arena.take_with(BUFFERS, shadow::SPAN, |i| (i % 251) as u8)?;
        let page = arena.take::<u8>(BUFFERS, PAGE, 0)?;
        let vector = arena.take_with(BUFFERS, PAGE, buffer)?;
        let (bytes, space) = match load.checking {
            Checking::Off => (0, None),
            Checking::Full => (shadow::full(arena)?, None),
            Checking::Page => (0, Some(shadow::by_page(arena)?)),
        };
        Some((file, page, vector, bytes, space))
    })();
    let Some((file, page, vector, bytes, space)) = memory else {
        error(format_args!("too little memory for checking={}", load.checking.name()));
        return false;
    };
    if let Some(space) = space {
        mmu::switch_space(space);
    }
    let checked = load.checking != Checking::Off;
    let start = cpu::counter();
    let mut bad = 0;
    for _ in 0..load.n {
        bad += if checked { read::<true>(file, page, vector) } else { read::<false>(file, page, vector) };
    }
    let time = nanoseconds(cpu::counter() - start, cpu::frequency());
    let copied = vector.iter().zip(file.iter()).all(|(at, byte)| page[*at] == *byte);
    // Eight of the buffers are forbidden now: each must be reported once.
    let reported = if checked {
        shadow::poison(page.as_ptr().addr() + 512);
        read::<true>(file, page, vector)
    } else {
        0
    };
    let ok = copied && bad == 0 && reported == if checked { 8 } else { 0 };
    report!(
        "readv",
        "\"checking\":\"{}\",\"n\":{},\"bytes\":{},\"time_ns\":{},\"shadow_bytes\":{},\"reported\":{},\"ok\":{}",
        load.checking.name(),
        load.n,
        u64::from(load.n) * BUFFERS as u64,
        time,
        bytes + shadow::mapped(),
        reported,
        ok
    );
    ok
}
