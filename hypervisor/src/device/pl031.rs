//! A virtual PL031 real-time clock (Arm DDI 0224), readable and settable; its alarm raises no interrupt.
//!
//! The clock holds only the difference between what it shows and the seconds that the caller passes in: the date that the machine's own
//! PL031 had at boot, and what the system counter has counted since; without one, the latter.

use super::{AccessSize, part_of_word, primecell_id, word_of_write};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Size of its window in bytes.
pub const SIZE: u64 = 0x1000;

/// Offset of the data register: seconds.
pub const DR: u64 = 0x00;
const MR: u64 = 0x04;
const LR: u64 = 0x08;
const CR: u64 = 0x0C;
const IMSC: u64 = 0x10;

const ID: [u8; 8] = [0x31, 0x10, 0x14, 0x00, 0x0D, 0xF0, 0x05, 0xB1];
/// What its identification registers say, as one number.
pub const PERIPHERAL_ID: u32 = super::peripheral_id(&ID);

/// The clock of one VM. Its registers don't depend on each other, so they need no lock.
#[derive(Debug, Default)]
pub struct Pl031 {
    /// What is added to the seconds that are passed in, modulo 2^32.
    offset: AtomicU32,
    load: AtomicU32,
    alarm: AtomicU32,
    mask: AtomicU32,
}

impl Pl031 {
    /// A clock that shows `offset` plus the seconds that are passed in.
    pub const fn new(offset: u32) -> Self {
        Pl031 {
            offset: AtomicU32::new(offset),
            load: AtomicU32::new(0),
            alarm: AtomicU32::new(0),
            mask: AtomicU32::new(0),
        }
    }

    /// Reads a register at a time in seconds.
    pub fn read(&self, offset: u64, size: AccessSize, seconds: u32) -> u64 {
        let value = match offset & !3 {
            DR => self.offset.load(Relaxed).wrapping_add(seconds),
            MR => self.alarm.load(Relaxed),
            LR => self.load.load(Relaxed),
            // Started, always.
            CR => 1,
            IMSC => self.mask.load(Relaxed),
            other => primecell_id(&ID, other),
        };
        part_of_word(value, offset, size)
    }

    /// Writes a register at a time in seconds.
    pub fn write(&self, offset: u64, size: AccessSize, value: u64, seconds: u32) {
        let value = word_of_write(value, offset, size);
        match offset & !3 {
            MR => self.alarm.store(value, Relaxed),
            LR => {
                self.load.store(value, Relaxed);
                self.offset.store(value.wrapping_sub(seconds), Relaxed);
            }
            IMSC => self.mask.store(value & 1, Relaxed),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessSize::Word;

    #[test]
    fn shows_and_sets_the_time() {
        let clock = Pl031::new(1000);
        assert_eq!(clock.read(DR, Word, 5), 1005);
        clock.write(LR, Word, 1_700_000_000, 10);
        assert_eq!(clock.read(DR, Word, 12), 1_700_000_002);
        assert_eq!(clock.read(LR, Word, 12), 1_700_000_000);
        clock.write(LR, Word, 3, 10);
        assert_eq!(clock.read(DR, Word, 10), 3, "a time before the machine's start");
    }

    #[test]
    fn is_found_by_the_amba_bus() {
        let clock = Pl031::new(0);
        let id = (0..4).fold(0, |id, i| id | clock.read(0xFE0 + 4 * i, Word, 0) << (8 * i));
        assert_eq!(id & 0xF_FFFF, 0x4_1031);
        let cell = (0..4).fold(0, |id, i| id | clock.read(0xFF0 + 4 * i, Word, 0) << (8 * i));
        assert_eq!(cell, 0xB105_F00D);
        assert_eq!(clock.read(CR, Word, 0), 1);
    }

    #[test]
    fn unknown_registers_read_as_zero() {
        let clock = Pl031::new(7);
        for offset in [0x14, 0x18, 0x1C, 0x20, 0xFDC, 0x1000, u64::MAX] {
            clock.write(offset, Word, u64::MAX, 0);
            assert_eq!(clock.read(offset, Word, 0), 0, "{offset:#x}");
        }
    }
}
