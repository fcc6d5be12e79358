//! The machine's serial port.
//!
//! [`SerialPort`] is what the console needs of one; [`Pl011Port`] drives a PL011 through [`Mmio32`], so that it runs on
//! the host too. [`Polled`] writes text to a port with nothing but that: no lock, no exclusive access, no allocation. It
//! is for the time before the MMU is on and for panics.

mod pl011;
mod polled;

pub use pl011::Pl011Port;
pub use polled::Polled;

/// 32-bit registers of a device. On the target: volatile accesses at a base address.
pub trait Mmio32 {
    /// Reads the register at `offset` bytes.
    fn read(&self, offset: usize) -> u32;
    /// Writes the register at `offset` bytes.
    fn write(&self, offset: usize, value: u32);
}

/// A serial port. All methods return at once.
pub trait SerialPort {
    /// Whether a byte can be sent now.
    fn can_send(&self) -> bool;
    /// Sends a byte; lost if [`can_send`](Self::can_send) is false.
    fn send(&self, byte: u8);
    /// Takes a byte that was received.
    fn receive(&self) -> Option<u8>;
    /// Whether everything sent has left.
    fn is_drained(&self) -> bool;
    /// Which interrupts are wanted: when there is something to receive, when something can be sent.
    fn set_interrupts(&self, receive: bool, send: bool);
}

/// Where there is no port: what is sent is gone.
impl<P: SerialPort> SerialPort for Option<P> {
    fn can_send(&self) -> bool {
        self.as_ref().is_none_or(P::can_send)
    }

    fn send(&self, byte: u8) {
        if let Some(port) = self {
            port.send(byte);
        }
    }

    fn receive(&self) -> Option<u8> {
        self.as_ref()?.receive()
    }

    fn is_drained(&self) -> bool {
        self.as_ref().is_none_or(P::is_drained)
    }

    fn set_interrupts(&self, receive: bool, send: bool) {
        if let Some(port) = self {
            port.set_interrupts(receive, send);
        }
    }
}
