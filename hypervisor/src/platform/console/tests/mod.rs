//! The console on a wire that only remembers.

mod blocks;
mod input;
mod mixing;
mod output;

use super::*;
use crate::stats::report::{EndLine, MARKER, write_end};
use std::collections::{BTreeMap, VecDeque};
use std::format;
use std::string::{String, ToString};
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

const DR: u64 = 0x00;
const FR: u64 = 0x18;
const IMSC: u64 = 0x38;
const TXFF: u64 = 1 << 5;
const RXFE: u64 = 1 << 4;
const INT_RX_RT: u64 = 1 << 4 | 1 << 6;
const INT_TX: u64 = 1 << 5;
const BYTE: AccessSize = AccessSize::Byte;
/// One tick is one microsecond.
const RATE: TickRate = TickRate::new(1_000_000);

/// The wire behind the port.
#[derive(Debug)]
struct Wire {
    out: StdMutex<Vec<u8>>,
    input: StdMutex<VecDeque<u8>>,
    /// Bytes that the port takes until somebody adds to it.
    room: AtomicUsize,
    interrupts: StdMutex<(bool, bool)>,
}

impl Wire {
    fn new() -> Self {
        Wire {
            out: StdMutex::default(),
            input: StdMutex::default(),
            room: AtomicUsize::new(usize::MAX),
            interrupts: StdMutex::default(),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().unwrap()).into_owned()
    }

    fn lines(&self) -> Vec<String> {
        self.text().lines().map(ToString::to_string).collect()
    }

    fn take_text(&self) -> String {
        String::from_utf8(core::mem::take(&mut self.out.lock().unwrap())).unwrap()
    }

    fn interrupts(&self) -> (bool, bool) {
        *self.interrupts.lock().unwrap()
    }
}

impl SerialPort for &Wire {
    fn can_send(&self) -> bool {
        self.room.load(Ordering::SeqCst) > 0
    }
    fn send(&self, byte: u8) {
        assert!(self.can_send(), "nothing is sent into a full port");
        self.room.fetch_sub(1, Ordering::SeqCst);
        self.out.lock().unwrap().push(byte);
    }
    fn receive(&self) -> Option<u8> {
        self.input.lock().unwrap().pop_front()
    }
    fn is_drained(&self) -> bool {
        true
    }
    fn set_interrupts(&self, receive: bool, send: bool) {
        *self.interrupts.lock().unwrap() = (receive, send);
    }
}

/// What the owner of the VMs was told: above all the levels of their UART interrupts.
#[derive(Debug, Default)]
struct Levels {
    lines: StdMutex<BTreeMap<u16, bool>>,
    /// How often another device than the UART was asked for output, and offered input.
    room: AtomicUsize,
    input: AtomicUsize,
    panicked: StdMutex<Vec<u16>>,
    said: StdMutex<Vec<u16>>,
}

impl Levels {
    /// How often another device than the UART was asked for output, and offered input, since the last call.
    fn take_asked(&self) -> (usize, usize) {
        (self.room.swap(0, Ordering::SeqCst), self.input.swap(0, Ordering::SeqCst))
    }

    fn get(&self, vm: u16) -> bool {
        self.lines.lock().unwrap().get(&vm).copied().unwrap_or(false)
    }
}

impl UartLine for &Levels {
    fn set_level(&self, vm: VmId, level: bool) {
        self.lines.lock().unwrap().insert(vm.0, level);
    }

    fn has_room(&self, _: VmId) -> bool {
        self.room.fetch_add(1, Ordering::SeqCst);
        false
    }

    fn has_input(&self, _: VmId) {
        self.input.fetch_add(1, Ordering::SeqCst);
    }

    fn has_said(&self, vm: VmId) {
        self.said.lock().unwrap().push(vm.0);
    }

    fn has_panicked(&self, vm: VmId) {
        self.panicked.lock().unwrap().push(vm.0);
    }
}

type Bench<'b> = Console<&'b Wire, &'b Levels>;

fn console<'b>(wire: &'b Wire, levels: &'b Levels, names: &[&str]) -> Bench<'b> {
    let console = Console::new(wire, levels, RATE, true, Words::new_const(), names.iter().copied());
    console.enable_interrupts();
    console
}

impl Bench<'_> {
    /// A guest that writes without looking.
    fn send(&self, vm: u16, text: &str) {
        text.bytes().for_each(|byte| self.guest_write(VmId(vm), DR, BYTE, byte.into()));
    }

    fn is_full(&self, vm: u16) -> bool {
        // Twice: it also shows once after each burst of a driver that polls.
        (0..2).all(|_| self.guest_read(VmId(vm), FR, BYTE) & TXFF != 0)
    }

    /// A guest that reads what there is.
    fn receive(&self, vm: u16) -> String {
        let mut text = String::new();
        while self.guest_read(VmId(vm), FR, BYTE) & RXFE == 0 {
            text.push(self.guest_read(VmId(vm), DR, BYTE) as u8 as char);
        }
        text
    }

    /// Somebody types.
    fn type_in(&self, text: &str) {
        self.port.input.lock().unwrap().extend(text.bytes());
        self.interrupt();
    }
}

/// What each VM has written, as a reader of the console finds it: continued lines are joined.
fn by_name(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.split_terminator("\r\n") {
        assert!(!line.contains('\n'), "{line:?}");
        if let Some((name, rest)) = line.split_once("|+ ") {
            found.get_mut(name).and_then(|lines| lines.last_mut()).expect("continues a line").push_str(rest);
        } else if let Some((name, rest)) = line.split_once("| ") {
            found.entry(name.into()).or_default().push(rest.into());
        } else {
            assert!(line.starts_with("odometer: ") || line.starts_with(MARKER), "{line:?}");
        }
    }
    found
}
