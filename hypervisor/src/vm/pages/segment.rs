//! What a page holds before it is touched: the images that lie in a VM's RAM.

use crate::memory::address::{PAGE_SIZE, Pa, align_down};

/// An image of the bundle, and where the guest finds it.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The guest's address of its first byte.
    pub ipa: u64,
    /// Where the bundle has it.
    pub pa: Pa,
    /// Its bytes, which are those at `pa`.
    pub bytes: &'static [u8],
}

/// A range of a guest's pages; both ends are multiples of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
}

impl Span {
    /// The page at `page`.
    pub const fn page(page: u64) -> Span {
        Span { start: page, end: page + PAGE_SIZE }
    }

    /// The `size` bytes around `address`, aligned to `size` (a power of two).
    pub const fn around(address: u64, size: u64) -> Span {
        let start = align_down(address, size);
        Span { start, end: start.saturating_add(size) }
    }

    /// Length in bytes.
    pub const fn size(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The addresses of its pages.
    pub fn pages(self) -> impl Iterator<Item = u64> {
        (self.start..self.end).step_by(PAGE_SIZE as usize)
    }

    /// Whether `address` is in it.
    pub const fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// What is in both.
    pub fn clip(self, other: Span) -> Span {
        Span { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The part on `address`'s side of `other`, which does not contain `address`.
    pub fn beside(self, other: Span, address: u64) -> Span {
        if other.size() == 0 {
            self
        } else if other.end <= address {
            Span { start: self.start.max(other.end), end: self.end }
        } else {
            Span { start: self.start, end: self.end.min(other.start) }
        }
    }
}

/// What a page holds before it is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Nothing but zeros.
    Zero,
    /// Exactly a page of segment number so-and-so.
    Shared(usize),
    /// Bytes of one or more segments that can't be mapped: a part of a page, or not aligned to one in the bundle.
    Mixed,
}

impl Segment {
    /// First address behind it.
    const fn end(&self) -> u64 {
        self.ipa.saturating_add(self.bytes.len() as u64)
    }

    /// The pages of which it covers at least a byte.
    pub const fn touched(&self) -> Span {
        Span {
            start: align_down(self.ipa, PAGE_SIZE),
            end: align_down(self.end().saturating_add(PAGE_SIZE - 1), PAGE_SIZE),
        }
    }

    /// The pages that can be mapped to it.
    pub const fn shareable(&self) -> Span {
        if !self.ipa.wrapping_sub(self.pa.0).is_multiple_of(PAGE_SIZE) {
            return Span { start: self.ipa, end: self.ipa };
        }
        let start = align_down(self.ipa.saturating_add(PAGE_SIZE - 1), PAGE_SIZE);
        Span { start, end: align_down(self.end(), PAGE_SIZE) }
    }

    /// Whether all of the page at `page` is its bytes.
    pub const fn covers(&self, page: u64) -> bool {
        self.ipa <= page && page.saturating_add(PAGE_SIZE) <= self.end()
    }

    /// Where the bundle has the page at `page`, which is one of [`Segment::shareable`].
    pub const fn pa_of(&self, page: u64) -> Pa {
        Pa(self.pa.0.wrapping_add(page.wrapping_sub(self.ipa)))
    }

    /// Its bytes in `span`, and the guest's address of the first of them.
    pub fn part(&self, span: Span) -> Option<(u64, &'static [u8])> {
        let start = span.start.max(self.ipa);
        let end = span.end.min(self.end());
        let bytes =
            self.bytes.get(start.checked_sub(self.ipa)? as usize..end.checked_sub(self.ipa)? as usize)?;
        (!bytes.is_empty()).then_some((start, bytes))
    }
}
