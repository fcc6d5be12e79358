//! Vectored reads into buffers of one byte, each access checked by shadow memory or not (E3). The checks are calls around each load and store,
//! where a compiler would put them.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::threads;
use crate::arch::mmu::PAGE;
use crate::arch::shadow;
use crate::kernel::console::report;
use crate::kernel::error;
use crate::kernel::memory::Arena;
use crate::shadow::{BUFFERS, Checking, Readv, buffer};
use crate::sync::Lock;

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

/// What all threads use.
struct Reads {
    checked: bool,
    n: u32,
    file: &'static [u8],
    /// Where each buffer lies.
    vector: &'static [usize],
    /// Each thread's buffers, which it takes as long as it runs.
    buffers: &'static [Lock<&'static mut [u8]>],
    /// Accesses that were not allowed.
    bad: AtomicU64,
}

impl Reads {
    fn once(&self, page: &mut [u8]) -> u64 {
        if self.checked {
            read::<true>(self.file, page, self.vector)
        } else {
            read::<false>(self.file, page, self.vector)
        }
    }

    /// A thread.
    fn thread(&self, index: usize) {
        let page = core::mem::take(&mut *self.buffers[index].lock());
        let bad: u64 = (0..self.n).map(|_| self.once(page)).sum();
        self.bad.fetch_add(bad, Ordering::Relaxed);
        *self.buffers[index].lock() = page;
    }
}

/// Runs the load.
pub fn run(load: &Readv, arena: &mut Arena) -> bool {
    let memory = (|| {
        // All of it lies where one page of shadow covers it, however long the image is, unless the file is long.
        let file = arena.take_with(load.size as usize, shadow::SPAN, |i| (i % 251) as u8)?;
        let mut pages = arena.take::<u8>(load.threads as usize * BUFFERS, PAGE, 0)?.chunks_exact_mut(BUFFERS);
        let buffers =
            arena.take_with(load.threads as usize, 64, |_| Lock::new(pages.next().unwrap_or_default()))?;
        let vector = arena.take_with(load.buffers(), PAGE, buffer)?;
        let (bytes, space) = match load.checking {
            Checking::Off => (0, None),
            Checking::Full => (shadow::full(arena)?, None),
            Checking::Page => (0, Some(shadow::by_page(arena)?)),
        };
        let (checked, bad) = (load.checking != Checking::Off, AtomicU64::new(0));
        let reads = arena.keep(Reads { checked, n: load.n, file, vector, buffers, bad })?;
        Some((reads, bytes, space))
    })();
    let Some((reads, bytes, space)) = memory else {
        error(format_args!(
            "too little memory for checking={} size={} threads={}",
            load.checking.name(),
            load.size,
            load.threads
        ));
        return false;
    };
    let Some(time) = threads::run(arena, load.threads, space, |index| reads.thread(index)) else {
        return false;
    };
    let copied = reads.buffers.iter().all(|page| {
        let page = page.lock();
        reads.vector.iter().zip(reads.file).all(|(at, byte)| page[*at] == *byte)
    });
    // The first eight bytes of the first thread's buffers are forbidden now: each buffer there must be reported once.
    let reported = if reads.checked {
        let mut page = reads.buffers[0].lock();
        shadow::poison(page.as_ptr().addr());
        reads.once(&mut page)
    } else {
        0
    };
    let expected = if reads.checked { load.buffers_in_front() } else { 0 };
    let ok = copied && reads.bad.load(Ordering::Relaxed) == 0 && reported == expected;
    report!(
        "readv",
        "\"checking\":\"{}\",\"size\":{},\"n\":{},\"threads\":{},\"bytes\":{},\"time_ns\":{},\"shadow_bytes\":{},\"reported\":{},\"ok\":{}",
        load.checking.name(),
        load.size,
        load.n,
        load.threads,
        u64::from(load.n) * u64::from(load.threads) * load.buffers() as u64,
        time,
        bytes + shadow::mapped(),
        reported,
        ok
    );
    ok
}
