//! Address types: what an address counts from is part of its type.
//!
//! Three address spaces meet in a hypervisor, and a value of one that is used in another is a fault that
//! no test of a happy path finds. [`Pa`] is what the memory system sees, [`Ipa`] what a guest takes for
//! physical (the input of stage 2), [`Va`] what code at EL2 dereferences. EL2 maps the machine one to one,
//! so a `Va` has the value of its `Pa`; [`crate::memory::phys`] is the one place that makes use of that.
//!
//! All arithmetic is checked: addresses come from device trees, bundles and guests.

use core::fmt;

/// Bytes in a page: the only translation granule used, at stage 1 of EL2 and at stage 2.
pub const PAGE_SIZE: u64 = 4096;

/// Binary logarithm of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// Bytes that a level-2 block descriptor maps (2 MiB).
pub const BLOCK_2M: u64 = 1 << 21;

/// Bytes that a level-1 block descriptor maps (1 GiB).
pub const BLOCK_1G: u64 = 1 << 30;

/// Widest address that a 4 KiB granule translates without FEAT_LPA2, in bits.
pub const MAX_ADDRESS_BITS: u8 = 48;

/// `value` rounded down to a multiple of `align`, which must be a power of two (others give 0 or a value
/// that is no multiple; nothing panics).
#[inline]
pub const fn align_down(value: u64, align: u64) -> u64 {
    value & !align.wrapping_sub(1)
}

/// `value` rounded up to a multiple of `align` (a power of two), or `None` where that exceeds 64 bits.
#[inline]
pub const fn align_up(value: u64, align: u64) -> Option<u64> {
    match value.checked_add(align.wrapping_sub(1)) {
        Some(sum) => Some(align_down(sum, align)),
        None => None,
    }
}

/// Whether `value` is a multiple of `align` (a power of two).
#[inline]
pub const fn is_aligned(value: u64, align: u64) -> bool {
    value & align.wrapping_sub(1) == 0
}

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The plain number.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Rounded down to a multiple of `align`, a power of two.
            #[inline]
            pub const fn align_down(self, align: u64) -> Self {
                Self(align_down(self.0, align))
            }

            /// Rounded up to a multiple of `align`, a power of two; `None` past the end of 64 bits.
            #[inline]
            pub const fn align_up(self, align: u64) -> Option<Self> {
                match align_up(self.0, align) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// Whether this is a multiple of `align`, a power of two.
            #[inline]
            pub const fn is_aligned(self, align: u64) -> bool {
                is_aligned(self.0, align)
            }

            /// The address `bytes` further on, or `None` past the end of 64 bits.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// How many bytes this lies above `base`, or `None` where it lies below.
            #[inline]
            pub const fn offset_from(self, base: Self) -> Option<u64> {
                self.0.checked_sub(base.0)
            }

            /// Offset in bytes inside the address's 4 KiB page.
            #[inline]
            pub const fn page_offset(self) -> u64 {
                self.0 & (PAGE_SIZE - 1)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// A physical address of the machine.
    Pa
}
address! {
    /// An intermediate physical address: what a guest takes for a physical one.
    Ipa
}
address! {
    /// A virtual address in EL2's own translation regime.
    Va
}

/// A range of physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PaRange {
    /// First address.
    pub base: Pa,
    /// Length in bytes.
    pub size: u64,
}

impl PaRange {
    /// The range of `size` bytes from `base` on. Nothing is checked: see [`PaRange::end`].
    pub const fn new(base: Pa, size: u64) -> Self {
        Self { base, size }
    }

    /// The first address after the range, or `None` where that exceeds 64 bits.
    pub const fn end(self) -> Option<Pa> {
        self.base.checked_add(self.size)
    }

    /// Whether `address` lies in the range.
    pub const fn contains(self, address: Pa) -> bool {
        match address.offset_from(self.base) {
            Some(offset) => offset < self.size,
            None => false,
        }
    }

    /// The smallest range of whole pages that covers this one (what a device or a reservation takes), or
    /// `None` where its end exceeds 64 bits.
    pub const fn to_pages(self) -> Option<Self> {
        let base = self.base.align_down(PAGE_SIZE);
        let Some(end) = self.end() else { return None };
        let Some(end) = end.align_up(PAGE_SIZE) else { return None };
        Some(Self { base, size: end.0 - base.0 })
    }
}

impl fmt::Debug for PaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.base.0, u128::from(self.base.0) + u128::from(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(Pa(u64::MAX).checked_add(1), None);
        assert_eq!(Pa(u64::MAX).align_up(PAGE_SIZE), None);
        assert_eq!(Pa(u64::MAX).align_down(PAGE_SIZE), Pa(!0xfff));
        assert_eq!(Pa(1).align_up(PAGE_SIZE), Some(Pa(0x1000)));
        assert_eq!(Pa(0x1000).align_up(PAGE_SIZE), Some(Pa(0x1000)));
        assert_eq!(Ipa(0x1000).offset_from(Ipa(0x2000)), None);
        assert_eq!(Ipa(0x2345).offset_from(Ipa(0x2000)), Some(0x345));
        assert_eq!(Va(0x2345).page_offset(), 0x345);
        assert_eq!(PaRange::new(Pa(0x1000), u64::MAX).end(), None);
        assert_eq!(PaRange::new(Pa(0x1000), u64::MAX).to_pages(), None);
    }

    #[test]
    fn addresses_print_in_hexadecimal_with_their_kind() {
        assert_eq!(format!("{:?} {:?} {:?}", Pa(0x1000), Ipa(0x2a), Va(0)), "Pa(0x1000) Ipa(0x2a) Va(0x0)");
        assert_eq!(format!("{} {:x} {:#x}", Pa(0x1000), Pa(0x2a), Ipa(0x2a)), "0x1000 2a 0x2a");
        assert_eq!(PaRange::new(Pa(0x1000), u64::MAX).to_string(), "0x1000..0x10000000000000fff");
    }

    #[test]
    fn ranges_cover_whole_pages() {
        let range = PaRange::new(Pa(0x1ff8), 0x10);
        assert_eq!(range.to_pages(), Some(PaRange::new(Pa(0x1000), 0x2000)));
        assert!(range.contains(Pa(0x1ff8)) && range.contains(Pa(0x2007)));
        assert!(!range.contains(Pa(0x1ff7)) && !range.contains(Pa(0x2008)));
        assert!(!PaRange::new(Pa(0x1000), 0).contains(Pa(0x1000)));
    }
}
