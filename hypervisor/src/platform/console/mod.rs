//! The console: one serial port, many guests.
//!
//! Each VM has a PL011 ([`crate::device::pl011`]) with a queue of its own. Output goes out in whole lines, each behind the
//! VM's name (`name| text`), a line of each VM in turn; so a VM that floods fills its own queue, sees TXFF, and waits,
//! and nobody else does. The rules:
//!
//! - Whoever has ended a line marks its VM and tries the lock. Who gets it sends what is marked, a bounded number of bytes,
//!   and looks for marks again after unlocking; who doesn't get it goes on. A guest's exit never waits for the lock.
//! - A port with no room is not waited for: its interrupt goes on with the line ([`Console::interrupt`]), as it does with
//!   what is left after the bounded number of bytes.
//! - A line longer than the queue is cut: what follows begins with `name|+ ` instead of `name| `, and continues the line
//!   that came before under that name. The same where an unfinished line was shown and something came between.
//! - An unfinished line (a prompt) is shown for the VM that has the input: at once when somebody has typed, else
//!   after half a second of silence. For others it stays until the line or the VM ends.
//! - The hypervisor's own lines wait for the lock, and for the line that is being sent. Log lines begin with `odometer: `,
//!   lines of the report with [`MARKER`](crate::stats::report::MARKER). In a panic [`Console::emergency`] asks nobody.
//! - With `console.prefix=off` and one VM, bytes go through both ways as they are; only the hypervisor's lines are still
//!   kept on lines of their own. With several VMs, `off` leaves the names out and keeps lines whole.
//!
//! Input goes to one VM. Ctrl-O is the escape key: see [`input`]. Input for which the VM has no room stays in the port, so
//! that whoever sends waits; a VM that takes none for 5 s loses what comes then, so that the escape key keeps working.
//!
//! Lock order: the console's, then a UART's. Nobody holds a UART's lock when asking for the console's.

mod input;
mod lines;
mod message;
mod output;
mod search;
mod set;
mod watch;

use super::uart::{Polled, SerialPort};
use crate::device::AccessSize;
use crate::device::pl011::{Effect, Pl011};
use crate::ids::{MAX_VMS, VmId};
use crate::stats::TickRate;
use crate::sync::Mutex;
use alloc::boxed::Box;
use alloc::string::String;
use arrayvec::{ArrayString, ArrayVec};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use input::Escape;
pub use lines::UartLine;
use output::{Staging, Turn};
use search::Search;
use set::VmSet;

/// Bytes that one caller sends for others at most, before it goes back to its own work.
const BUDGET: usize = 2048;
/// How often one caller looks for what came meanwhile.
const MAX_LOOKS: usize = 16;
/// Most bytes of a VM's name before its lines.
const MAX_LABEL: usize = 32;
/// Words to look for in guests' output, with `_` for each space (`vm.until`).
pub type Words = ArrayString<64>;
/// How often [`Console::tick`] has something to do.
const TICK_US: u64 = 10_000;

/// One VM's end of the console.
#[derive(Debug)]
struct Terminal {
    label: Box<str>,
    uart: Pl011,
    /// A kernel that gives up, and the words of `vm.until`.
    panic: Search,
    until: Search,
}

/// The multiplexer. `P` is the machine's port: a handle whose copies all mean the same device.
#[derive(Debug)]
pub struct Console<P, L> {
    terminals: Box<[Terminal]>,
    port: P,
    lines: L,
    rate: TickRate,
    /// Bytes pass as they are: one VM, no prefix.
    raw: bool,
    prefix: bool,
    /// Words after which a VM has come far enough; empty: none.
    until: Words,
    /// VMs with output to send.
    ready: VmSet,
    /// VMs whose unfinished line is to be sent, and ended, since they won't.
    flush: VmSet,
    ended: VmSet,
    input_waiting: AtomicBool,
    report_wanted: AtomicBool,
    next_tick: AtomicU64,
    mux: Mutex<Mux>,
}

/// What only the holder of the lock touches.
#[derive(Debug)]
struct Mux {
    staging: Staging,
    /// The VM whose line is being sent.
    turn: Option<Turn>,
    /// Whose turn is next.
    cursor: usize,
    /// The VM whose unfinished line is the last thing on the console.
    open: Option<usize>,
    /// VMs of whose last line a part is already out.
    continued: VmSet,
    /// Messages about the input, each ended by a newline.
    notice: ArrayVec<u8, { output::BUFFER }>,
    /// The next VM of the list of VMs that is being sent.
    listing: Option<usize>,
    focus: usize,
    escape: Escape,
    /// Somebody has typed: unfinished lines are shown at once.
    interactive: bool,
    /// An unfinished line of the VM that has the input is to be shown.
    show_unfinished: bool,
    /// Position and time of the last look at it.
    quiet: Option<(u32, u64)>,
    input_held: bool,
    held_since: Option<u64>,
    stalled: bool,
    /// Interrupts that the port has been told: receive, send.
    interrupts: (bool, bool),
}

/// Why sending stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// There is nothing more to send.
    Idle,
    /// The port has no room.
    Blocked,
    /// Enough for this caller.
    Budget,
}

impl<P: SerialPort, L: UartLine> Console<P, L> {
    /// A console for VMs with these names, numbered in their order (at most [`MAX_VMS`]; further ones have none). Input goes to
    /// the first one. `prefix` is `console.prefix`, `until` is `vm.until`. Allocates, here only: some 4.6 KiB a VM.
    pub fn new<'n>(
        port: P,
        lines: L,
        rate: TickRate,
        prefix: bool,
        until: Words,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let terminal = |name| Terminal {
            label: label(name),
            uart: Pl011::new(),
            panic: Search::new(),
            until: Search::new(),
        };
        let terminals: Box<[Terminal]> = names.into_iter().take(MAX_VMS).map(terminal).collect();
        let raw = !prefix && terminals.len() == 1;
        if raw {
            terminals.iter().for_each(|terminal| terminal.uart.set_eager(true));
        }
        Console {
            terminals,
            port,
            lines,
            rate,
            raw,
            prefix,
            until,
            ready: VmSet::new(),
            flush: VmSet::new(),
            ended: VmSet::new(),
            input_waiting: AtomicBool::new(false),
            report_wanted: AtomicBool::new(false),
            next_tick: AtomicU64::new(0),
            mux: Mutex::new(Mux::new()),
        }
    }

    /// Bytes of memory for one VM.
    pub const BYTES_PER_VM: usize = size_of::<Terminal>() + MAX_LABEL;

    /// The port's interrupts are routed to this CPU now: lets it raise them.
    pub fn enable_interrupts(&self) {
        let mux = &mut *self.mux.lock();
        self.tell_interrupts(mux, (true, false));
    }

    /// The UART of `vm`.
    pub fn uart(&self, vm: VmId) -> Option<&Pl011> {
        Some(&self.terminals.get(usize::from(vm.0))?.uart)
    }

    /// A guest reads `size` at `offset` of its UART.
    #[inline]
    pub fn guest_read(&self, vm: VmId, offset: u64, size: AccessSize) -> u64 {
        let Some(uart) = self.uart(vm) else { return 0 };
        let (value, effect) = uart.read(offset, size, |level| self.lines.set_level(vm, level));
        self.follow(vm, effect);
        value
    }

    /// A guest writes `size` at `offset` of its UART.
    #[inline]
    pub fn guest_write(&self, vm: VmId, offset: u64, size: AccessSize, value: u64) {
        let Some(uart) = self.uart(vm) else { return };
        let effect = uart.write(offset, size, value, |level| self.lines.set_level(vm, level));
        self.follow(vm, effect);
    }

    /// Output of `vm` from another device than its UART, in a block: lines of it stay whole. How many bytes there was room for. To be
    /// followed by [`attend`](Self::attend).
    pub fn put_output(&self, vm: VmId, bytes: &[u8]) -> usize {
        self.uart(vm).map_or(0, |uart| uart.put_output(bytes, |level| self.lines.set_level(vm, level)))
    }

    /// Input of `vm` goes to another device than its UART from now on, or no more.
    pub fn divert_input(&self, vm: VmId, diverted: bool) {
        if let Some(uart) = self.uart(vm) {
            uart.divert_input(diverted, |level| self.lines.set_level(vm, level));
        }
    }

    /// Input of `vm` for another device than its UART, if it goes there. How many bytes that were. To be followed by
    /// [`attend`](Self::attend).
    pub fn take_input(&self, vm: VmId, buffer: &mut [u8]) -> usize {
        let Some(uart) = self.uart(vm) else { return 0 };
        let (taken, effect) = uart.take_input(buffer, |level| self.lines.set_level(vm, level));
        if effect.contains(Effect::INPUT) {
            self.input_waiting.store(true, SeqCst);
        }
        taken
    }

    /// Output or input of `vm` was moved: goes on with it. Not with a lock held.
    pub fn attend(&self, vm: VmId) {
        self.ready.insert(vm.0.into());
        self.service();
    }

    #[inline(always)]
    fn follow(&self, vm: VmId, effect: Effect) {
        if !effect.is_empty() {
            self.follow_up(vm, effect);
        }
    }

    #[inline(never)]
    fn follow_up(&self, vm: VmId, effect: Effect) {
        if effect.contains(Effect::OUTPUT) {
            self.ready.insert(vm.0.into());
        }
        if effect.contains(Effect::INPUT) {
            self.input_waiting.store(true, SeqCst);
        }
        self.service();
    }

    /// Sends what is there and takes what has come, as far as the port has room and nobody else is doing so. Returns
    /// whether there is more to do now: an idle CPU calls it again.
    pub fn service(&self) -> bool {
        let mut budget = BUDGET;
        for _ in 0..MAX_LOOKS {
            fence(SeqCst);
            let Some(mut mux) = self.mux.try_lock() else { return false };
            if self.input_waiting.swap(false, SeqCst) {
                self.accept_input(&mut mux);
            }
            let stop = self.pump(&mut mux, &mut budget);
            drop(mux);
            // Who came meanwhile left a mark and went: after the unlock has been seen by all, look once more.
            fence(SeqCst);
            let more = !self.ready.is_empty() || self.input_waiting.load(SeqCst);
            match stop {
                Stop::Idle if more && budget > 0 => {}
                Stop::Blocked => return false,
                _ => return more,
            }
        }
        true
    }

    /// The port's interrupt.
    pub fn interrupt(&self) {
        self.input_waiting.store(true, SeqCst);
        self.service();
    }

    /// To be called by any CPUs, together every 10 ms or so (more often costs a load): asks the port for input where it has no
    /// interrupt, goes on with what is left, watches unfinished lines. `now` is in ticks.
    pub fn tick(&self, now: u64) {
        if now < self.next_tick.load(Relaxed) {
            return;
        }
        if let Some(mut mux) = self.mux.try_lock() {
            self.next_tick.store(now.saturating_add(self.rate.from_us(TICK_US)), Relaxed);
            self.watch(&mut mux, now);
        }
        self.interrupt();
    }

    /// Whether somebody has asked for a report at the console since the last call.
    pub fn take_report_request(&self) -> bool {
        self.report_wanted.load(Relaxed) && self.report_wanted.swap(false, Relaxed)
    }

    /// The VM has ended or starts anew: its unfinished line is sent, and ended.
    pub fn flush(&self, vm: VmId) {
        self.flush.insert(vm.0.into());
        self.ready.insert(vm.0.into());
        self.service();
    }

    /// The VM has ended for good: as [`flush`](Self::flush), and input goes to the next VM that is still there.
    pub fn vm_ended(&self, vm: VmId) {
        self.ended.insert(vm.0.into());
        self.flush(vm);
    }

    /// Writes lines of the hypervisor, for the report: nothing comes between them or into them. Waits for the console and
    /// for the port: not for the path of an ordinary exit. `write` must not log.
    pub fn report(&self, write: impl FnOnce(&mut Polled<'_, P>) -> fmt::Result) {
        let mut mux = self.mux.lock();
        // Nobody could do anything about the port's interrupts until this is written; they would only come again and again.
        let (receive, _) = mux.interrupts;
        self.tell_interrupts(&mut mux, (false, false));
        let mut out = Polled::new(&self.port);
        self.finish_line(&mut mux, &mut out);
        // The port takes whatever is written: there is no error that could come back.
        let _ = write(&mut out);
        out.end_line();
        self.tell_interrupts(&mut mux, (receive, false));
        drop(mux);
        self.service();
    }

    /// Writes past everybody else, without a lock: for a panic, and whatever else may have interrupted the holder.
    pub fn emergency(&self, write: impl FnOnce(&mut Polled<'_, P>) -> fmt::Result) {
        let mut out = Polled::new(&self.port);
        // Somebody's line may be half out.
        let _ = out.write_str("\n").and_then(|()| write(&mut out));
        out.end_line();
        out.drain();
    }

    /// Sends all that there is and waits until it has left: before the machine is powered off. Takes no input afterwards.
    pub fn finish(&self) {
        let mut mux = self.mux.lock();
        self.tell_interrupts(&mut mux, (false, false));
        let mut out = Polled::new(&self.port);
        for vm in 0..self.terminals.len() {
            self.flush.insert(vm);
            self.ready.insert(vm);
        }
        self.send_all(&mut mux, &mut out);
        self.finish_line(&mut mux, &mut out);
        out.drain();
    }

    fn tell_interrupts(&self, mux: &mut Mux, wanted: (bool, bool)) {
        if mux.interrupts != wanted {
            mux.interrupts = wanted;
            self.port.set_interrupts(wanted.0, wanted.1);
        }
    }
}

impl Mux {
    const fn new() -> Self {
        Mux {
            staging: Staging::new(),
            turn: None,
            cursor: 0,
            open: None,
            continued: VmSet::new(),
            notice: ArrayVec::new_const(),
            listing: None,
            focus: 0,
            escape: Escape::None,
            interactive: false,
            show_unfinished: false,
            quiet: None,
            input_held: false,
            held_since: None,
            stalled: false,
            interrupts: (false, false),
        }
    }
}

/// What stands before a VM's lines: printable, and not too long.
fn label(name: &str) -> Box<str> {
    let mut label = String::new();
    for c in name.chars() {
        if label.len() + c.len_utf8() > MAX_LABEL {
            break;
        }
        label.push(if c.is_control() { '?' } else { c });
    }
    label.into_boxed_str()
}

#[cfg(test)]
mod tests;
