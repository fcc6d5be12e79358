//! The way in, and the escape key.
//!
//! What is typed goes to one VM. Ctrl-O begins a command:
//!
//! | then | |
//! |---|---|
//! | Ctrl-O | sends a Ctrl-O to the VM |
//! | a number | input goes to that VM; Enter ends the number where a longer one could be meant |
//! | a name, Enter | input goes to the VM of that name, or to the only one whose name begins so |
//! | Tab | input goes to the next VM that has not ended |
//! | `?` | lists the VMs and the keys |
//! | Ctrl-R | a report is printed |
//! | Esc, Ctrl-C | nothing |
//!
//! With one VM and `console.prefix=off` there is no escape key.

use super::{Console, Mux, UartLine};
use crate::ids::VmId;
use crate::platform::uart::SerialPort;
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::Relaxed;

const CTRL_C: u8 = 0x03;
const TAB: u8 = 0x09;
const CTRL_O: u8 = 0x0F;
const CTRL_R: u8 = 0x12;
const ESC: u8 = 0x1B;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7F;

/// Bytes taken from the port in one go: it may be a pipe that never ends.
const MAX_INPUT: usize = 4096;

/// Longest name that can be typed.
const MAX_WORD: usize = super::MAX_LABEL;

/// Where in a command the input is.
#[derive(Debug)]
pub(super) enum Escape {
    /// In none.
    None,
    /// After Ctrl-O: what has been typed of a number or name.
    Word(ArrayVec<u8, MAX_WORD>),
}

impl<P: SerialPort, L: UartLine> Console<P, L> {
    /// Takes what has come, as long as there is room for it.
    pub(super) fn accept_input(&self, mux: &mut Mux) {
        self.leave_ended(mux);
        let mut held = false;
        for _ in 0..MAX_INPUT {
            if matches!(mux.escape, Escape::None) && !self.has_room(mux) {
                held = true;
                break;
            }
            let Some(byte) = self.port.receive() else { break };
            self.input(mux, byte);
        }
        self.lines.has_input(VmId(mux.focus as u16));
        mux.input_held = held || mux.stalled;
        if !mux.input_held {
            mux.held_since = None;
        }
        // While input is held back, the interrupt would come again and again.
        let (_, send) = mux.interrupts;
        self.tell_interrupts(mux, (!held, send));
    }

    /// Whether a byte may be taken: there is room for it, or nobody to wait for.
    fn has_room(&self, mux: &mut Mux) -> bool {
        let Some(terminal) = self.terminals.get(mux.focus) else { return true };
        if self.ended.contains(mux.focus) {
            return true;
        }
        let room = terminal.uart.has_input_room();
        if room {
            mux.stalled = false;
        }
        room || mux.stalled
    }

    fn input(&self, mux: &mut Mux, byte: u8) {
        if self.raw {
            return self.give(mux, byte);
        }
        if !mux.interactive {
            mux.interactive = true;
            self.focus(mux, mux.focus);
        }
        match (core::mem::replace(&mut mux.escape, Escape::None), byte) {
            (Escape::None, CTRL_O) => mux.escape = Escape::Word(ArrayVec::new()),
            (Escape::None, _) => self.give(mux, byte),
            (Escape::Word(word), _) => self.command(mux, word, byte),
        }
    }

    fn give(&self, mux: &mut Mux, byte: u8) {
        if let Some(terminal) = self.terminals.get(mux.focus) {
            let vm = VmId(mux.focus as u16);
            // No room: it has been waited for long enough.
            let _ = terminal.uart.give_input(byte, |level| self.lines.set_level(vm, level));
        }
    }

    /// A byte of a command after `word`.
    fn command(&self, mux: &mut Mux, mut word: ArrayVec<u8, MAX_WORD>, byte: u8) {
        match byte {
            CTRL_O if word.is_empty() => self.give(mux, CTRL_O),
            TAB => match self.next_alive(mux.focus + 1) {
                Some(vm) => self.select(mux, vm),
                None => mux.note(format_args!("odometer: all VMs have ended\n")),
            },
            CTRL_R => self.report_wanted.store(true, Relaxed),
            CTRL_O | CTRL_C | ESC => {}
            b'?' if word.is_empty() => {
                mux.note(format_args!(
                    "odometer: Ctrl-O then: number or name and Enter, Tab: next VM, Ctrl-R: report,\n\
                     odometer: Ctrl-O: sends it, ?: this list\n"
                ));
                mux.listing = Some(0);
            }
            b'\r' | b'\n' => self.select_word(mux, &word),
            BACKSPACE | DELETE => {
                word.pop();
                mux.escape = Escape::Word(word);
            }
            _ => {
                let _ = word.try_push(byte);
                match number(&word) {
                    // No longer number can be meant.
                    Some(n) if n == 0 || n * 10 >= self.terminals.len() => self.select_word(mux, &word),
                    _ => mux.escape = Escape::Word(word),
                }
            }
        }
    }

    fn select_word(&self, mux: &mut Mux, word: &[u8]) {
        match self.find(word) {
            Some(vm) => self.select(mux, vm),
            None => mux.note(format_args!("odometer: no VM {}; Ctrl-O ? lists them\n", word.escape_ascii())),
        }
    }

    /// The VM that `word` means: a name, a number, or the beginning of one name.
    fn find(&self, word: &[u8]) -> Option<usize> {
        let labels = || self.terminals.iter().map(|terminal| terminal.label.as_bytes()).enumerate();
        if let Some((vm, _)) = labels().find(|(_, label)| *label == word) {
            return Some(vm);
        }
        if let Some(vm) = number(word) {
            return (vm < self.terminals.len()).then_some(vm);
        }
        let mut alike = labels().filter(|(_, label)| !word.is_empty() && label.starts_with(word));
        match (alike.next(), alike.next()) {
            (Some((vm, _)), None) => Some(vm),
            _ => None,
        }
    }

    fn select(&self, mux: &mut Mux, vm: usize) {
        self.focus(mux, vm);
        if let Some(terminal) = self.terminals.get(vm) {
            let state = if self.ended.contains(vm) { ", which has ended" } else { "" };
            mux.note(format_args!("odometer: input goes to {} (VM {vm}){state}\n", terminal.label));
        }
    }

    /// Gives the input to `vm`.
    fn focus(&self, mux: &mut Mux, vm: usize) {
        if let Some(old) = self.terminals.get(mux.focus) {
            old.uart.set_eager(false);
        }
        mux.focus = vm;
        mux.stalled = false;
        mux.held_since = None;
        mux.quiet = None;
        if let Some(new) = self.terminals.get(vm) {
            new.uart.set_eager(mux.interactive);
            // Its unfinished line is to be seen.
            self.ready.insert(vm);
        }
    }

    /// The first VM from `vm` on, and from the beginning, that has not ended.
    fn next_alive(&self, vm: usize) -> Option<usize> {
        let count = self.terminals.len();
        (0..count).map(|step| (vm + step) % count).find(|vm| !self.ended.contains(*vm))
    }

    /// Input of a VM that has ended goes to the next one.
    fn leave_ended(&self, mux: &mut Mux) {
        if !self.ended.contains(mux.focus) {
            return;
        }
        if let Some(vm) = self.next_alive(mux.focus) {
            if mux.interactive {
                self.select(mux, vm);
            } else {
                self.focus(mux, vm);
            }
        }
    }
}

/// The number that `word` is.
fn number(word: &[u8]) -> Option<usize> {
    core::str::from_utf8(word).ok()?.parse().ok().filter(|_| word.iter().all(u8::is_ascii_digit))
}
