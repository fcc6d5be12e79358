//! The way out: from the VMs' queues to the port, a line at a time.

use super::search::LAST_WORDS;
use super::{BUDGET, Console, MAX_LABEL, Mux, Stop, UartLine};
use crate::device::pl011::{End, Taken};
use crate::ids::VmId;
use crate::platform::uart::{Polled, SerialPort};
use arrayvec::ArrayVec;
use core::fmt::Write;

/// Bytes taken out of a VM's queue at a time.
const PIECE: usize = 64;
/// Most bytes that a VM sends in one turn of a line whose end has not come.
const MAX_TURN: usize = 1024;
/// A line's end before, a label and its mark, a piece in which each byte became two, a line's end behind.
const STAGING: usize = 2 + MAX_LABEL + 3 + 2 * PIECE + 3;

/// Bytes on their way to the port.
#[derive(Debug)]
pub(super) struct Staging {
    bytes: ArrayVec<u8, STAGING>,
    sent: usize,
    /// The last byte that went out or is about to.
    last: u8,
    /// A carriage return that may turn out to belong to a newline.
    carriage_return: bool,
}

impl Staging {
    pub(super) const fn new() -> Self {
        Staging { bytes: ArrayVec::new_const(), sent: 0, last: b'\n', carriage_return: false }
    }

    fn push(&mut self, byte: u8) {
        // Room is there by the sum in `STAGING`; what is wrong with it can't be worth a panic.
        let _ = self.bytes.try_push(byte);
        self.last = byte;
    }

    fn extend(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    /// Text of a guest: newlines become carriage return and newline, whether the guest wrote them so or not.
    fn push_text(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if core::mem::take(&mut self.carriage_return) && byte != b'\n' {
                self.push(b'\r');
            }
            match byte {
                b'\r' => self.carriage_return = true,
                // The carriage return may have gone out already, at the end of a piece.
                b'\n' if self.last == b'\r' => self.push(b'\n'),
                b'\n' => self.extend(b"\r\n"),
                _ => self.push(byte),
            }
        }
    }

    fn end_of_text(&mut self) {
        if core::mem::take(&mut self.carriage_return) {
            self.push(b'\r');
        }
    }

    fn end_line(&mut self) {
        if self.last != b'\n' {
            self.extend(b"\r\n");
        }
    }

    fn next(&mut self) -> Option<u8> {
        let next = self.bytes.get(self.sent).copied();
        if next.is_none() {
            self.bytes.clear();
            self.sent = 0;
        }
        next
    }
}

/// A VM's turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    vm: usize,
    /// An unfinished line may be sent.
    partial: bool,
    /// An unfinished line is to be ended, since the VM won't.
    flush: bool,
    sent: usize,
}

impl<P: SerialPort, L: UartLine> Console<P, L> {
    /// Sends until there is nothing more, the port has no room, or, at the end of a line, `budget` bytes are used up.
    pub(super) fn pump(&self, mux: &mut Mux, budget: &mut usize) -> Stop {
        let stop = loop {
            while let Some(byte) = mux.staging.next() {
                if !self.port.can_send() {
                    break;
                }
                self.port.send(byte);
                mux.staging.sent += 1;
                *budget = budget.saturating_sub(1);
            }
            if mux.staging.next().is_some() {
                break Stop::Blocked;
            }
            if *budget == 0 && mux.turn.is_none() {
                break Stop::Budget;
            }
            if !self.refill(mux) {
                break Stop::Idle;
            }
        };
        // The port's interrupt goes on with what is left: there may be nobody else who comes by.
        let (receive, _) = mux.interrupts;
        self.tell_interrupts(mux, (receive, stop != Stop::Idle));
        stop
    }

    /// Sends all that there is, waiting for the port.
    pub(super) fn send_all(&self, mux: &mut Mux, out: &mut Polled<'_, P>) {
        loop {
            send_staged(mux, out);
            if !self.refill(mux) {
                return;
            }
        }
    }

    /// Sends what is begun, waiting for the port, so that a line of somebody else's can follow.
    pub(super) fn finish_line(&self, mux: &mut Mux, out: &mut Polled<'_, P>) {
        send_staged(mux, out);
        while mux.turn.is_some() {
            self.refill(mux);
            send_staged(mux, out);
        }
        begin_line(mux);
        send_staged(mux, out);
    }

    /// Puts the next bytes into the empty staging; `false`: there are none. It may also come back with nothing staged, having
    /// found that a mark meant nothing.
    fn refill(&self, mux: &mut Mux) -> bool {
        if let Some(turn) = mux.turn {
            self.continue_turn(mux, turn);
            return true;
        }
        if self.refill_notice(mux) {
            return true;
        }
        let Some(vm) = self.ready.next_from(mux.cursor) else { return false };
        // The mark goes before the look: what is written after the look marks again.
        self.ready.remove(vm);
        mux.cursor = vm + 1;
        let flush = self.flush.remove(vm);
        let focused = vm == mux.focus && (mux.interactive || core::mem::take(&mut mux.show_unfinished));
        mux.turn = Some(Turn { vm, partial: self.raw || flush || focused, flush, sent: 0 });
        true
    }

    fn continue_turn(&self, mux: &mut Mux, turn: Turn) {
        let Some(terminal) = self.terminals.get(turn.vm) else {
            mux.turn = None;
            return;
        };
        let mut piece = [0; PIECE];
        let vm = VmId(turn.vm as u16);
        let taken =
            terminal.uart.take_output(turn.partial, &mut piece, |level| self.lines.set_level(vm, level));
        let Taken { len, mut end, more } = taken;
        let piece = piece.get(..len).unwrap_or_default();
        if terminal.panic.complete(LAST_WORDS, piece) {
            self.lines.has_panicked(vm);
        }
        if !self.until.is_empty() && terminal.until.complete(self.until.as_bytes(), piece) {
            self.lines.has_said(vm);
        }
        let sent = turn.sent + len;
        if end == End::Inside && turn.partial && sent >= MAX_TURN {
            end = End::Open;
        }
        if self.raw {
            mux.staging.extend(piece);
        } else {
            self.stage_text(mux, turn, &terminal.label, piece);
        }
        if end == End::Inside {
            mux.turn = Some(Turn { sent, ..turn });
            return;
        }
        mux.turn = None;
        let more = self.lines.has_room(vm) || more;
        if more {
            self.ready.insert(turn.vm);
            if turn.flush {
                self.flush.insert(turn.vm);
            }
        }
        mux.staging.end_of_text();
        let unfinished = end == End::Open && (sent > 0 || mux.open == Some(turn.vm));
        if !unfinished {
            return;
        }
        if turn.flush && !more {
            mux.staging.end_line();
            mux.open = None;
        } else if self.raw || turn.partial {
            mux.open = Some(turn.vm);
        } else {
            // A piece of a line that doesn't fit the queue.
            mux.staging.end_line();
            mux.open = None;
            mux.continued.insert(turn.vm);
        }
    }

    /// Stages text of a VM, at the beginning of a turn behind its name.
    fn stage_text(&self, mux: &mut Mux, turn: Turn, label: &str, piece: &[u8]) {
        if turn.sent == 0 && !piece.is_empty() && mux.open != Some(turn.vm) {
            begin_line(mux);
            let continued = mux.continued.remove(turn.vm);
            if continued && matches!(piece, b"\n" | b"\r\n") {
                // All that was missing of the line is its end, and that has been sent.
                return;
            }
            if self.prefix {
                mux.staging.extend(label.as_bytes());
                mux.staging.extend(if continued { b"|+ " } else { b"| " });
            }
        }
        if mux.open == Some(turn.vm) && !piece.is_empty() {
            mux.open = None;
        }
        mux.staging.push_text(piece);
    }

    /// Stages the next line about the input.
    fn refill_notice(&self, mux: &mut Mux) -> bool {
        if !mux.notice.is_empty() {
            begin_line(mux);
            // A line at a time, and of a long one a piece at a time, so that it fits the staging.
            let end = mux.notice.iter().position(|b| *b == b'\n').map_or(mux.notice.len(), |at| at + 1);
            let Mux { notice, staging, .. } = mux;
            notice.drain(..end.min(2 * PIECE)).for_each(|byte| staging.push_text(&[byte]));
            return true;
        }
        let Some(vm) = mux.listing else { return false };
        let Some(terminal) = self.terminals.get(vm) else {
            mux.listing = None;
            return false;
        };
        mux.listing = Some(vm + 1);
        let state = if self.ended.contains(vm) { " (ended)" } else { "" };
        let mark = if vm == mux.focus { '*' } else { ' ' };
        mux.note(format_args!("odometer: {mark} {vm} {}{state}\n", terminal.label));
        true
    }
}

impl Mux {
    /// Puts a message about the input, with its newline, behind those that wait; what doesn't fit is left out.
    pub(super) fn note(&mut self, text: core::fmt::Arguments<'_>) {
        struct Notice<'a>(&'a mut ArrayVec<u8, BUFFER>);
        impl Write for Notice<'_> {
            fn write_str(&mut self, text: &str) -> core::fmt::Result {
                self.0.try_extend_from_slice(text.as_bytes()).map_err(|_| core::fmt::Error)
            }
        }
        let before = self.notice.len();
        if Notice(&mut self.notice).write_fmt(text).is_err() {
            self.notice.truncate(before);
        }
    }
}

/// Capacity of [`Mux::notice`].
pub(super) const BUFFER: usize = 256;

/// Stages a line's end if something unfinished is on the console.
fn begin_line(mux: &mut Mux) {
    if let Some(vm) = mux.open.take() {
        mux.continued.insert(vm);
    }
    mux.staging.end_line();
}

fn send_staged<P: SerialPort>(mux: &mut Mux, out: &mut Polled<'_, P>) {
    while let Some(byte) = mux.staging.next() {
        out.send(byte);
        mux.staging.sent += 1;
    }
}

const _: () = assert!(BUDGET >= MAX_TURN);
