//! What stage-1 and stage-2 translation tables have in common: geometry, descriptor kinds, and where the
//! memory of tables comes from.
//!
//! VMSAv8-64, 4 KiB granule (Arm ARM D8.2.7, D8.3): 512 descriptors of 8 bytes in a table, levels 0 to 3,
//! level 3 holds pages of 4 KiB, level 2 blocks of 2 MiB, level 1 blocks of 1 GiB, level 0 only tables.

use super::address::{PAGE_SIZE, Pa, PaRange, align_down};
use super::frames::Frames;

/// Bytes in one table.
pub const TABLE_BYTES: u64 = PAGE_SIZE;
/// Descriptors in one table.
pub const TABLE_ENTRIES: u64 = 512;
/// The level whose descriptors map pages.
pub const LAST_LEVEL: u8 = 3;

/// Bit 0 of each descriptor: without it the rest is ignored by hardware.
pub const VALID: u64 = 1;
/// Bit 1: table at levels 0 to 2, page at level 3; 0 is a block.
pub const TABLE_OR_PAGE: u64 = 1 << 1;
/// Output address or next table's address, bits 47:12.
pub const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// The number of address bits below those that index a table of `level`.
#[inline]
pub const fn shift(level: u8) -> u32 {
    12 + 9 * (LAST_LEVEL.saturating_sub(level)) as u32
}

/// Bytes that one descriptor of `level` covers.
#[inline]
pub const fn span(level: u8) -> u64 {
    1 << shift(level)
}

/// Which descriptor of a table of `level` translates `address`.
#[inline]
pub const fn index(address: u64, level: u8) -> u64 {
    (address >> shift(level)) & (TABLE_ENTRIES - 1)
}

/// Whether `descriptor`, found at `level`, points to a table of the next level.
#[inline]
pub const fn is_table(descriptor: u64, level: u8) -> bool {
    level < LAST_LEVEL && descriptor & (VALID | TABLE_OR_PAGE) == VALID | TABLE_OR_PAGE
}

/// Whether `descriptor` is valid: a table, a block or a page.
#[inline]
pub const fn is_valid(descriptor: u64) -> bool {
    descriptor & VALID != 0
}

/// The low bits that make a descriptor of `level` a block or a page.
#[inline]
pub const fn leaf_kind(level: u8) -> u64 {
    if level == LAST_LEVEL { VALID | TABLE_OR_PAGE } else { VALID }
}

/// A descriptor that points to the table at `table`, a multiple of 4 KiB below 2^48.
#[inline]
pub const fn table_descriptor(table: Pa) -> u64 {
    (table.0 & ADDRESS) | TABLE_OR_PAGE | VALID
}

/// The largest block or page that maps `remaining` bytes from `input` to `output` next: its level, at least
/// `first_level` and at least 1.
#[inline]
pub const fn best_level(input: u64, output: u64, remaining: u64, first_level: u8) -> u8 {
    let mut level = if first_level == 0 { 1 } else { first_level };
    while level < LAST_LEVEL {
        if (input | output) & (span(level) - 1) == 0 && remaining >= span(level) {
            break;
        }
        level += 1;
    }
    level
}

/// Where the memory of translation tables comes from and goes to.
pub trait TableSource {
    /// `bytes` (a power of two, at least 4 KiB) of memory aligned to their size, contents undefined, or
    /// `None` where there is no more.
    fn allocate(&mut self, bytes: u64) -> Option<Pa>;

    /// Takes back what [`TableSource::allocate`] gave.
    fn release(&mut self, base: Pa, bytes: u64);
}

impl TableSource for Frames {
    fn allocate(&mut self, bytes: u64) -> Option<Pa> {
        self.alloc(bytes, bytes)
    }

    fn release(&mut self, base: Pa, bytes: u64) {
        // A wrong release can't be repaired here; the allocator refuses and counts it.
        let _ = self.free(base, bytes);
    }
}

/// A source that hands out a range from its start and takes nothing back: for boot code, before there is
/// anything better. No heap, no locks.
#[derive(Debug)]
pub struct Bump {
    next: u64,
    end: u64,
}

impl Bump {
    /// Hands out whole pages of `range`.
    pub const fn new(range: PaRange) -> Self {
        let end = range.base.0.saturating_add(range.size);
        Self { next: range.base.0, end: align_down(end, PAGE_SIZE) }
    }

    /// What has not been handed out.
    pub const fn rest(&self) -> PaRange {
        PaRange::new(Pa(self.next), self.end.saturating_sub(self.next))
    }
}

impl TableSource for Bump {
    fn allocate(&mut self, bytes: u64) -> Option<Pa> {
        let base = Pa(self.next).align_up(bytes)?;
        let end = base.checked_add(bytes)?;
        if end.0 > self.end {
            return None;
        }
        self.next = end.0;
        Some(base)
    }

    fn release(&mut self, _base: Pa, _bytes: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::address::{BLOCK_1G, BLOCK_2M};

    #[test]
    fn geometry_is_that_of_the_4_kib_granule() {
        assert_eq!([0, 1, 2, 3].map(shift), [39, 30, 21, 12]);
        assert_eq!([1, 2, 3].map(span), [BLOCK_1G, BLOCK_2M, PAGE_SIZE]);
        let address = (3 << 39) | (5 << 30) | (7 << 21) | (511 << 12) | 0xabc;
        assert_eq!([0, 1, 2, 3].map(|level| index(address, level)), [3, 5, 7, 511]);
    }

    #[test]
    fn the_kind_of_a_descriptor_depends_on_its_level() {
        assert!(is_table(0b11, 0) && is_table(0b11, 2) && !is_table(0b11, 3));
        assert!(!is_table(0b01, 1) && !is_table(0b10, 1));
        assert_eq!([1, 2, 3].map(leaf_kind), [0b01, 0b01, 0b11]);
        assert_eq!(table_descriptor(Pa(0x8_1234_5000)), 0x8_1234_5003);
    }

    #[test]
    fn the_largest_aligned_block_is_taken() {
        assert_eq!(best_level(0, 0, BLOCK_1G, 0), 1);
        assert_eq!(best_level(0, 0, BLOCK_1G - 1, 0), 2);
        assert_eq!(best_level(0, 0, BLOCK_1G, 2), 2);
        assert_eq!(best_level(0, BLOCK_2M, BLOCK_1G, 0), 2);
        assert_eq!(best_level(BLOCK_2M, PAGE_SIZE, BLOCK_1G, 0), 3);
        assert_eq!(best_level(0, 0, PAGE_SIZE, 0), 3);
    }

    #[test]
    fn bump_hands_out_aligned_pages_until_the_end() {
        let mut bump = Bump::new(PaRange::new(Pa(0x1800), 0x4000));
        assert_eq!(bump.allocate(0x1000), Some(Pa(0x2000)));
        assert_eq!(bump.allocate(0x2000), None, "only 0x4000..0x5000 is left at that alignment");
        assert_eq!(bump.allocate(0x1000), Some(Pa(0x3000)));
        assert_eq!(bump.allocate(0x1000), Some(Pa(0x4000)));
        assert_eq!(bump.allocate(0x1000), None);
        assert_eq!(bump.rest().size, 0);
    }
}
