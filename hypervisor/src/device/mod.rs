//! Virtual devices behind the guest's MMIO windows.
//!
//! A device is a set of registers: `read` and `write` take an offset into its window and an [`AccessSize`], both
//! chosen by the guest, and never fail. What isn't there reads as zero and ignores writes. A device doesn't know the
//! address of its window, the vGIC, or who the console is; whoever calls it connects these.

pub mod pl011;
pub mod pl031;
mod ring;
pub mod virtio;

/// Width of an MMIO access, as ESR_ELx.ISS.SAS says it (Arm ARM D24.2.40, data abort).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum AccessSize {
    /// 8 bits.
    Byte = 0,
    /// 16 bits.
    Half = 1,
    /// 32 bits.
    Word = 2,
    /// 64 bits.
    Double = 3,
}

impl AccessSize {
    /// From the two bits of ISS.SAS; higher bits are ignored.
    #[inline(always)]
    pub const fn from_sas(sas: u64) -> Self {
        match sas & 3 {
            0 => AccessSize::Byte,
            1 => AccessSize::Half,
            2 => AccessSize::Word,
            _ => AccessSize::Double,
        }
    }

    /// How many bytes: 1, 2, 4 or 8.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        1 << self as u8
    }

    /// All bits that an access of this width moves.
    #[inline(always)]
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    /// Whether an access of this width at `offset` is naturally aligned.
    #[inline(always)]
    pub const fn is_aligned(self, offset: u64) -> bool {
        offset & (self.bytes() - 1) == 0
    }
}

/// What a read of `size` at `offset` sees of a register of 32 bits at `offset & !3`: the bytes from `offset & 3` on.
/// Bytes beyond the register read as zero.
#[inline(always)]
const fn part_of_word(register: u32, offset: u64, size: AccessSize) -> u64 {
    (register as u64 >> (8 * (offset & 3))) & size.mask()
}

/// What a write of `size` at `offset` gives to a register of 32 bits at `offset & !3`: PrimeCell registers are written
/// whole, with zeroes where the access doesn't reach.
#[inline(always)]
const fn word_of_write(value: u64, offset: u64, size: AccessSize) -> u32 {
    ((value & size.mask()) << (8 * (offset & 3))) as u32
}

/// PrimeCell identification: the byte-wide registers from 0xFE0 to 0xFFC, by which a driver is found.
const fn primecell_id(part: &[u8; 8], offset: u64) -> u32 {
    match offset {
        0xFE0..=0xFFF => part[((offset - 0xFE0) / 4) as usize] as u32,
        _ => 0,
    }
}

/// The peripheral identification of a PrimeCell as one number: what `arm,primecell-periphid` says in a device tree.
const fn peripheral_id(part: &[u8; 8]) -> u32 {
    u32::from_le_bytes([part[0], part[1], part[2], part[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_syndrome() {
        let sizes = [0, 1, 2, 3].map(AccessSize::from_sas);
        assert_eq!(sizes.map(AccessSize::bytes), [1, 2, 4, 8]);
        assert_eq!(sizes.map(AccessSize::mask), [0xff, 0xffff, 0xffff_ffff, u64::MAX]);
        assert!(AccessSize::Half.is_aligned(2) && !AccessSize::Word.is_aligned(2));
    }

    #[test]
    fn narrow_and_unaligned_accesses_see_their_bytes() {
        assert_eq!(part_of_word(0x4433_2211, 0x18, AccessSize::Double), 0x4433_2211);
        assert_eq!(part_of_word(0x4433_2211, 0x19, AccessSize::Byte), 0x22);
        assert_eq!(part_of_word(0x4433_2211, 0x1b, AccessSize::Half), 0x44);
        assert_eq!(word_of_write(0xaabb, 2, AccessSize::Byte), 0xbb_0000);
        assert_eq!(word_of_write(u64::MAX, 3, AccessSize::Double), 0xff00_0000);
    }
}
