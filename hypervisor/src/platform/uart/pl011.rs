//! Driver of a physical PL011 (Arm DDI 0183).

use super::{Mmio32, SerialPort};

const DR: usize = 0x00;
const FR: usize = 0x18;
const IBRD: usize = 0x24;
const FBRD: usize = 0x28;
const LCR_H: usize = 0x2C;
const CR: usize = 0x30;
const IFLS: usize = 0x34;
const IMSC: usize = 0x38;
const ICR: usize = 0x44;
const DMACR: usize = 0x48;

const FR_BUSY: u32 = 1 << 3;
const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;

const LCR_H_FEN: u32 = 1 << 4;
const LCR_H_8_BITS: u32 = 3 << 5;
const CR_UARTEN: u32 = 1 << 0;
const CR_TXE: u32 = 1 << 8;
const CR_RXE: u32 = 1 << 9;

const INT_RX: u32 = 1 << 4;
const INT_TX: u32 = 1 << 5;
const INT_RT: u32 = 1 << 6;
/// All but what a reader clears by reading.
const INT_CLEAR: u32 = 0x7FF & !(INT_RX | INT_RT);

/// Polls of the flag register to wait for the last byte of whoever used the UART before: some 10 ms at least,
/// more than 32 bytes take at 38,400 baud.
const BUSY_POLLS: u32 = 100_000;

/// A PL011 at `M`. It holds no state, so that a copy can be used to write past everybody else, in a panic.
#[derive(Clone, Copy, Debug)]
pub struct Pl011Port<M> {
    registers: M,
}

impl<M: Mmio32> Pl011Port<M> {
    /// The UART with these registers, as firmware left it: sending works if it has been set up.
    pub const fn new(registers: M) -> Self {
        Pl011Port { registers }
    }

    /// Sets it up: 8 data bits, no parity, FIFOs, no interrupts. The baud rate is set if both the clock in Hz and
    /// the rate are known and go together, else it stays what firmware made it.
    pub fn init(&self, clock_hz: Option<u32>, baud: Option<u32>) {
        let r = &self.registers;
        r.write(IMSC, 0);
        for _ in 0..BUSY_POLLS {
            if r.read(FR) & FR_BUSY == 0 {
                break;
            }
        }
        // UARTLCR_H and the divisors must not change while it is enabled (3.3.8); a write of UARTLCR_H latches the divisors.
        r.write(CR, 0);
        if let (Some(clock), Some(baud)) = (clock_hz, baud)
            && let Some((integer, fraction)) = divisor(clock, baud)
        {
            r.write(IBRD, integer);
            r.write(FBRD, fraction);
        }
        r.write(LCR_H, LCR_H_8_BITS | LCR_H_FEN);
        // Half full both ways.
        r.write(IFLS, 0x12);
        r.write(DMACR, 0);
        r.write(ICR, INT_CLEAR);
        r.write(CR, CR_UARTEN | CR_TXE | CR_RXE);
    }
}

/// UARTIBRD and UARTFBRD: the clock divided by 16 times the baud rate, in 64ths, rounded. `None`: out of range.
fn divisor(clock_hz: u32, baud: u32) -> Option<(u32, u32)> {
    let baud = u64::from(baud);
    // clock / (16 * baud) * 64 = clock * 4 / baud
    let in_64ths = (u64::from(clock_hz) * 4 + baud / 2).checked_div(baud)?;
    // At least 1, at most 65535 with no fraction.
    (64..=65_535 * 64).contains(&in_64ths).then_some(((in_64ths / 64) as u32, (in_64ths % 64) as u32))
}

impl<M: Mmio32> SerialPort for Pl011Port<M> {
    #[inline]
    fn can_send(&self) -> bool {
        self.registers.read(FR) & FR_TXFF == 0
    }

    #[inline]
    fn send(&self, byte: u8) {
        self.registers.write(DR, byte.into());
    }

    #[inline]
    fn receive(&self) -> Option<u8> {
        if self.registers.read(FR) & FR_RXFE != 0 {
            return None;
        }
        // Bits 8 to 11 say what is wrong with the byte; a damaged byte is passed on like any other.
        Some(self.registers.read(DR) as u8)
    }

    fn is_drained(&self) -> bool {
        self.registers.read(FR) & FR_BUSY == 0
    }

    fn set_interrupts(&self, receive: bool, send: bool) {
        // Neither RX nor RT is ever cleared by UARTICR: with bytes left in the FIFO it would stay clear, since it follows the
        // passage of the trigger level (2.8.2), and the next byte would raise nothing.
        let mut mask = 0;
        if receive {
            mask |= INT_RX | INT_RT;
        }
        if send {
            mask |= INT_TX;
        }
        self.registers.write(IMSC, mask);
        if !send {
            self.registers.write(ICR, INT_TX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// Registers of a UART whose FIFO sends nothing by itself.
    #[derive(Default)]
    struct Registers {
        written: RefCell<Vec<(usize, u32)>>,
        input: RefCell<VecDeque<u8>>,
        flags: RefCell<u32>,
    }

    impl Mmio32 for &Registers {
        fn read(&self, offset: usize) -> u32 {
            match offset {
                FR => {
                    let empty = if self.input.borrow().is_empty() { FR_RXFE } else { 0 };
                    *self.flags.borrow() | empty
                }
                DR => self.input.borrow_mut().pop_front().map_or(0, |byte| 0x400 | u32::from(byte)),
                _ => 0,
            }
        }

        fn write(&self, offset: usize, value: u32) {
            self.written.borrow_mut().push((offset, value));
        }
    }

    #[test]
    fn divisors_are_those_of_the_manual() {
        assert_eq!(divisor(4_000_000, 230_400), Some((1, 5)));
        assert_eq!(divisor(24_000_000, 115_200), Some((13, 1)));
        assert_eq!(divisor(24_000_000, 0), None);
        assert_eq!(divisor(0, 115_200), None);
        assert_eq!(divisor(u32::MAX, 1), None);
    }

    #[test]
    fn set_up_while_disabled_and_line_control_after_divisors() {
        let registers = Registers::default();
        Pl011Port::new(&registers).init(Some(24_000_000), Some(115_200));
        let written = registers.written.borrow();
        let at = |offset| written.iter().position(|w| w.0 == offset).unwrap();
        assert_eq!(written[at(CR)].1, 0);
        assert!(at(CR) < at(IBRD) && at(IBRD) < at(LCR_H) && at(FBRD) < at(LCR_H));
        assert_eq!(written.last(), Some(&(CR, 0x301)));
        assert_eq!(written[at(LCR_H)].1, 0x70);
    }

    #[test]
    fn baud_rate_stays_without_a_clock() {
        let registers = Registers::default();
        Pl011Port::new(&registers).init(None, Some(115_200));
        assert!(!registers.written.borrow().iter().any(|w| w.0 == IBRD || w.0 == FBRD));
    }

    #[test]
    fn a_stuck_uart_does_not_hang_the_set_up() {
        let registers = Registers::default();
        *registers.flags.borrow_mut() = FR_BUSY;
        Pl011Port::new(&registers).init(None, None);
        assert_eq!(registers.written.borrow().last(), Some(&(CR, 0x301)));
    }

    #[test]
    fn bytes_go_both_ways() {
        let registers = Registers::default();
        let port = Pl011Port::new(&registers);
        registers.input.borrow_mut().extend(b"ab");
        assert_eq!([port.receive(), port.receive(), port.receive()], [Some(b'a'), Some(b'b'), None]);
        assert!(port.can_send() && port.is_drained());
        port.send(b'x');
        assert_eq!(registers.written.borrow().last(), Some(&(DR, u32::from(b'x'))));
        *registers.flags.borrow_mut() = FR_TXFF | FR_BUSY;
        assert!(!port.can_send() && !port.is_drained());
    }

    #[test]
    fn receive_interrupts_are_never_cleared_by_hand() {
        let registers = Registers::default();
        let port = Pl011Port::new(&registers);
        port.init(None, None);
        for (receive, send) in [(true, false), (true, true), (false, true), (false, false)] {
            port.set_interrupts(receive, send);
        }
        for (offset, value) in registers.written.borrow().iter() {
            assert!(*offset != ICR || value & (INT_RX | INT_RT) == 0, "{value:#x}");
        }
    }

    #[test]
    fn no_port_swallows_everything() {
        let port: Option<Pl011Port<&Registers>> = None;
        assert!(port.can_send() && port.is_drained());
        port.send(b'x');
        port.set_interrupts(true, true);
        assert_eq!(port.receive(), None);
    }
}
