//! The PL011's transmitter, polled (Arm DDI 0183).

use super::mmio::Registers;

/// Data register.
const DR: usize = 0x00;
/// Flag register.
pub const FR: usize = 0x18;
const LCR_H: usize = 0x2c;
const CR: usize = 0x30;
/// Interrupt mask register.
pub const IMSC: usize = 0x38;

/// Flag: the transmit FIFO is empty.
pub const FR_TXFE: u32 = 1 << 7;
/// Bytes that an empty transmit FIFO takes, in the oldest revision.
const FIFO: usize = 16;

/// A PL011.
#[derive(Clone, Copy)]
pub struct Uart(pub Registers);

impl Uart {
    /// Switches FIFOs and transmitter on; the rate stays as firmware left it.
    pub fn start(self) {
        self.0.write32(IMSC, 0);
        self.0.write32(LCR_H, 0x70);
        self.0.write32(CR, 0x301);
    }

    /// Sends bytes, looking at the flags once for each FIFO full: each look is a trap under a hypervisor.
    pub fn send(self, bytes: &[u8]) {
        for chunk in bytes.chunks(FIFO) {
            while self.0.read32(FR) & FR_TXFE == 0 {
                crate::sync::relax();
            }
            for byte in chunk {
                self.0.write32(DR, u32::from(*byte));
            }
        }
    }

    /// Waits until everything has left.
    pub fn drain(self) {
        while self.0.read32(FR) & (1 << 3) != 0 {
            crate::sync::relax();
        }
    }
}
