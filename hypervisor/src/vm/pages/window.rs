//! How much is copied at a time.
//!
//! A kernel that patches its own text, or relocates its data, writes from one end of them to the other: a page at a time that
//! is thousands of exits. One that writes here and there should not be given copies of what it only reads. So a copy begins
//! small, and grows while the next write follows the last copy: half of the copies at most are too much, as in read-ahead.
//!
//! Measured with Debian's 6.1 cloud kernel and a ramdisk, 30 MiB, of which the guest writes to 22 (it patches nearly all of its
//! text): from 64 to 512 KiB, 24.3 MiB are copied and the VM takes 114 faults in all; to 1 MiB, 26.5 MiB and 92 faults; a fixed 64 KiB would
//! be 24 MiB and some 400 faults.
//!
//! A guest whose kernel no other VM boots ([`ALONE`]) has nothing to share it with but the bundle, and is given more: from 512 KiB to 2 MiB,
//! 26.9 MiB are copied, and one with 96 MiB of RAM takes 47 faults in all instead of 115.

use super::segment::Span;

/// Where nothing has been copied before, and after many copies that followed each other, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// A first copy.
    pub smallest: u64,
    /// A copy after many that followed each other.
    pub largest: u64,
}

/// For VMs that boot one kernel.
pub const AMONG_OTHERS: Sizes = Sizes { smallest: 64 << 10, largest: 512 << 10 };
/// For a VM whose kernel no other boots.
pub const ALONE: Sizes = Sizes { smallest: 512 << 10, largest: 2 << 20 };
/// The smallest of what had been copied before, and become common: not many pages are rewritten twice.
pub const SMALLEST_AGAIN: u64 = 16 << 10;

/// What was copied last.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    last: Span,
    size: u64,
    sizes: Sizes,
}

impl Window {
    /// Nothing has been copied yet.
    pub const fn new(sizes: Sizes) -> Window {
        Window { last: Span { start: 0, end: 0 }, size: sizes.smallest, sizes }
    }

    /// How much it copies.
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The pages around `page`, aligned to their number, that should be copied when `page` is written. `again`: it had been copied
    /// before, and become common.
    pub fn around(&mut self, page: u64, again: bool) -> Span {
        let smallest = if again { SMALLEST_AGAIN } else { self.sizes.smallest };
        let near = Span {
            start: self.last.start.saturating_sub(self.size),
            end: self.last.end.saturating_add(self.size),
        };
        self.size = if near.contains(page) { (self.size * 2).min(self.sizes.largest) } else { smallest };
        self.last = Span::around(page, self.size);
        self.last
    }
}

const _: () = assert!(
    ALONE.largest <= crate::memory::address::BLOCK_2M && AMONG_OTHERS.largest <= ALONE.largest,
    "a copy's pages are all in one table, so that it is broken and made once"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_grow_while_writes_go_on_beside_each_other_and_begin_small_elsewhere() {
        let mut window = Window::new(AMONG_OTHERS);
        let mut at = 0x4020_0000;
        let mut sizes = Vec::new();
        for _ in 0..6 {
            let span = window.around(at, false);
            assert!(span.contains(at));
            assert!(span.start.is_multiple_of(span.size()));
            sizes.push(span.size() >> 10);
            at = span.end;
        }
        assert_eq!(sizes, [64, 128, 256, 512, 512, 512]);
        assert_eq!(window.around(0x4800_3000, false).size(), AMONG_OTHERS.smallest, "elsewhere");
        assert_eq!(window.around(0x4800_0000 - 0x1000, false).size(), 128 << 10, "downwards");
        assert_eq!(window.around(0x4900_0000, true).size(), SMALLEST_AGAIN, "what was common");
    }
}
