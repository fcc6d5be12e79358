//! What the console does after a time: shows an unfinished line, gives input up.

use super::{Console, Mux, UartLine};
use crate::platform::uart::SerialPort;

/// Silence after which an unfinished line of the VM that has the input is shown.
const QUIET_US: u64 = 500_000;
/// How long input is held back for a VM that takes none.
const STALL_US: u64 = 5_000_000;

impl<P: SerialPort, L: UartLine> Console<P, L> {
    /// The timers: unfinished lines, input that is held back.
    pub(super) fn watch(&self, mux: &mut Mux, now: u64) {
        let unfinished = match self.terminals.get(mux.focus) {
            Some(terminal) if !mux.interactive && !self.raw => terminal.uart.unfinished_line(),
            _ => None,
        };
        mux.quiet = match (unfinished, mux.quiet) {
            (Some(position), Some((before, since))) if position == before => {
                if now.saturating_sub(since) >= self.rate.from_us(QUIET_US) {
                    mux.show_unfinished = true;
                    self.ready.insert(mux.focus);
                }
                Some((before, since))
            }
            (unfinished, _) => unfinished.map(|position| (position, now)),
        };
        mux.held_since = if mux.input_held { Some(mux.held_since.unwrap_or(now)) } else { None };
        if let Some(since) = mux.held_since {
            mux.stalled |= now.saturating_sub(since) >= self.rate.from_us(STALL_US);
        }
    }
}
