//! Device registers through the identity map.

use crate::memory::address::Pa;
use crate::platform::gic::Registers;

/// The registers of the devices that EL2 has mapped.
#[derive(Clone, Copy)]
pub struct DeviceRegisters(());

impl DeviceRegisters {
    /// # Safety
    ///
    /// Every address that is passed to a method must belong to a device that the device tree names and that is mapped as
    /// Device memory.
    pub const unsafe fn new() -> DeviceRegisters {
        DeviceRegisters(())
    }
}

impl Registers for DeviceRegisters {
    #[inline(always)]
    fn read32(&self, at: Pa) -> u32 {
        let value: u32;
        // SAFETY: the promise of `new`. Assembly, so that the access is one plain load, whose syndrome a hypervisor below
        // us could decode.
        unsafe {
            core::arch::asm!("ldr {:w}, [{}]", out(reg) value, in(reg) at.0, options(nostack, preserves_flags));
        }
        value
    }

    #[inline(always)]
    fn write32(&self, at: Pa, value: u32) {
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("str {:w}, [{}]", in(reg) value, in(reg) at.0, options(nostack, preserves_flags));
        }
    }
}
