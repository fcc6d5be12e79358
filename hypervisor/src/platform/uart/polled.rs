//! Text to a port, byte by byte, waiting for each.

use super::SerialPort;
use core::fmt;

/// How often a port is asked for room before a byte is given up: several times what a byte takes at 9600 baud.
const POLLS: u32 = 200_000;

/// Writes text to a port and waits for room. Needs no memory beside itself and no atomic operation, so it works with
/// the MMU off. A newline becomes carriage return and newline. A port that doesn't move costs one wait and then one poll for
/// each byte, instead of hanging whoever writes.
#[derive(Debug)]
pub struct Polled<'p, P> {
    port: &'p P,
    stuck: bool,
    last: u8,
}

impl<'p, P: SerialPort> Polled<'p, P> {
    /// A writer to `port`, at the beginning of a line.
    pub const fn new(port: &'p P) -> Self {
        Polled { port, stuck: false, last: b'\n' }
    }

    /// Sends one byte as it is.
    pub fn send(&mut self, byte: u8) {
        let polls = if self.stuck { 1 } else { POLLS };
        self.last = byte;
        for _ in 0..polls {
            if self.port.can_send() {
                self.stuck = false;
                self.port.send(byte);
                return;
            }
            crate::sync::relax();
        }
        self.stuck = true;
    }

    /// Ends the line, unless at the beginning of one.
    pub fn end_line(&mut self) {
        if self.last != b'\n' {
            self.send(b'\r');
            self.send(b'\n');
        }
    }

    /// Waits until the port has sent everything, for as long as a full FIFO may take.
    pub fn drain(&mut self) {
        for _ in 0..POLLS {
            if self.port.is_drained() {
                return;
            }
            crate::sync::relax();
        }
    }
}

impl<P: SerialPort> fmt::Write for Polled<'_, P> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.send(b'\r');
            }
            self.send(byte);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::fmt::Write;
    use std::vec::Vec;

    #[derive(Default)]
    struct Slow {
        sent: RefCell<Vec<u8>>,
        polls: Cell<u32>,
        /// Polls until there is room for one byte.
        every: u32,
    }

    impl SerialPort for Slow {
        fn can_send(&self) -> bool {
            self.polls.set(self.polls.get() + 1);
            self.every != 0 && self.polls.get().is_multiple_of(self.every)
        }
        fn send(&self, byte: u8) {
            self.sent.borrow_mut().push(byte);
        }
        fn receive(&self) -> Option<u8> {
            None
        }
        fn is_drained(&self) -> bool {
            false
        }
        fn set_interrupts(&self, _: bool, _: bool) {}
    }

    #[test]
    fn waits_for_room_and_ends_lines() {
        let port = Slow { every: 100, ..Default::default() };
        let mut out = Polled::new(&port);
        out.end_line();
        write!(out, "a\nb").unwrap();
        out.end_line();
        out.end_line();
        assert_eq!(*port.sent.borrow(), b"a\r\nb\r\n");
        out.drain();
    }

    #[test]
    fn a_port_that_does_not_move_costs_one_wait() {
        let port = Slow::default();
        let mut out = Polled::new(&port);
        out.write_str(&"x".repeat(1000)).unwrap();
        assert!(port.polls.get() < POLLS + 1000);
    }
}
