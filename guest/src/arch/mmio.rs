//! Device registers by plain loads and stores, so that a trap carries a syndrome (Arm ARM D24, ISS for a data
//! abort): no pair, no write-back.

use core::arch::asm;

/// A block of registers.
#[derive(Clone, Copy)]
pub struct Registers {
    base: usize,
}

impl Registers {
    /// The block at an address that is mapped as a device.
    ///
    /// # Safety
    /// There must be a device whose registers don't affect memory that Rust owns, or no device at all.
    pub const unsafe fn new(base: usize) -> Registers {
        Registers { base }
    }

    /// The address of the register at `offset`.
    pub const fn address(self, offset: usize) -> usize {
        self.base + offset
    }

    /// Reads 8 bits.
    pub fn read8(self, offset: usize) -> u8 {
        let value: u32;
        // SAFETY: `new` says that this is a device.
        unsafe { asm!("ldrb {:w}, [{}]", out(reg) value, in(reg) self.base + offset, options(nostack)) };
        value as u8
    }

    /// Writes 8 bits.
    pub fn write8(self, offset: usize, value: u8) {
        // SAFETY: `new` says that this is a device.
        unsafe {
            asm!("strb {:w}, [{}]", in(reg) u32::from(value), in(reg) self.base + offset, options(nostack))
        };
    }

    /// Reads 32 bits.
    #[inline(always)]
    pub fn read32(self, offset: usize) -> u32 {
        let value: u32;
        // SAFETY: `new` says that this is a device.
        unsafe { asm!("ldr {:w}, [{}]", out(reg) value, in(reg) self.base + offset, options(nostack)) };
        value
    }

    /// Writes 32 bits.
    #[inline(always)]
    pub fn write32(self, offset: usize, value: u32) {
        // SAFETY: `new` says that this is a device.
        unsafe { asm!("str {:w}, [{}]", in(reg) value, in(reg) self.base + offset, options(nostack)) };
    }

    /// Reads 64 bits.
    pub fn read64(self, offset: usize) -> u64 {
        let value: u64;
        // SAFETY: `new` says that this is a device.
        unsafe { asm!("ldr {}, [{}]", out(reg) value, in(reg) self.base + offset, options(nostack)) };
        value
    }

    /// Writes 64 bits.
    pub fn write64(self, offset: usize, value: u64) {
        // SAFETY: `new` says that this is a device.
        unsafe { asm!("str {}, [{}]", in(reg) value, in(reg) self.base + offset, options(nostack)) };
    }
}
