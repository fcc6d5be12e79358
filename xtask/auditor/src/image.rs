//! Whether an instruction is Odometer's.
//!
//! Its virtual address alone doesn't say so: at EL2 the image lies where it lies in physical memory, and a guest may well run its
//! own code at the same virtual address. QEMU also says where in its own memory it has read an instruction. The image is one
//! piece there, and no guest is ever given the frames it lies in; so an instruction is Odometer's if both addresses are the
//! image's and have the distance from one another that they had at the image's first instruction. That one is executed before
//! there is any guest.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The image.
#[derive(Debug)]
pub struct Image {
    base: u64,
    size: u64,
    /// QEMU's address of an instruction less the instruction's own, once the first instruction has been seen.
    distance: OnceLock<u64>,
    unplaced: AtomicU64,
}

impl Image {
    /// An image of `size` bytes that is started at the address `base`.
    pub fn new(base: u64, size: u64) -> Self {
        Image { base, size, distance: OnceLock::new(), unplaced: AtomicU64::new(0) }
    }

    /// How far into the image the instruction at `address` is, which QEMU has read at its own address `host` (0: it can't say);
    /// `None` if it isn't in the image.
    pub fn offset(&self, address: u64, host: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base).filter(|offset| *offset < self.size)?;
        if host == 0 {
            self.doubt();
            return None;
        }
        let distance = host.wrapping_sub(address);
        let known =
            if offset == 0 { Some(self.distance.get_or_init(|| distance)) } else { self.distance.get() };
        (known == Some(&distance)).then_some(offset)
    }

    /// Takes note of an instruction in the image of which QEMU doesn't say what must be known.
    pub fn doubt(&self) {
        self.unplaced.fetch_add(1, Relaxed);
    }

    /// Whether the first instruction was where it should be.
    pub fn is_found(&self) -> bool {
        self.distance.get().is_some()
    }

    /// Instructions at the image's addresses that were translated without QEMU saying where they were read, or what they are.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_code_at_the_same_address_is_not_the_images() {
        let image = Image::new(0x4020_0000, 0x8_0000);
        assert_eq!(image.offset(0x4000_0000, 0x7000_0000), None, "the loader");
        assert_eq!(image.offset(0x4020_0400, 0x7020_0400), None, "before the first instruction");
        assert!(!image.is_found());
        assert_eq!(image.offset(0x4020_0000, 0x7020_0000), Some(0));
        assert!(image.is_found());
        assert_eq!(image.offset(0x4020_0400, 0x7020_0400), Some(0x400));
        assert_eq!(image.offset(0x4020_0400, 0x7820_0400), None, "a guest's frame");
        assert_eq!(image.offset(0x4020_0000, 0x7820_0000), None, "a guest's frame, first instruction");
        assert_eq!(image.offset(0x4028_0000, 0x7028_0000), None, "behind the image");
        assert_eq!(image.offset(0x401f_fffc, 0x701f_fffc), None, "before it");
    }

    #[test]
    fn what_can_not_be_placed_is_counted() {
        let image = Image::new(0x4020_0000, 0x8_0000);
        assert_eq!(image.offset(0x4020_0000, 0), None);
        assert_eq!(image.offset(0x5000_0000, 0), None);
        assert_eq!(image.unplaced(), 1);
    }
}
