//! A virtual PL011 UART (Arm DDI 0183), as far as drivers use one: data, flags, interrupts, identification.
//!
//! Between the guest and the console ([`crate::platform::console`]) lie two queues, far longer than the real one's
//! 32 bytes. What they do to the registers:
//!
//! - **Sending.** The flag TXFF shows when the queue is full; a byte written then is lost, as on hardware. The guest gets
//!   going again in either of two ways: it polls the flag register, where each poll also gives the console an occasion to
//!   take something; or it waits for the interrupt. TXRIS is a latch, as hardware's follows a passage of the level: set
//!   by a write after which there still is room, and by the console when it has made room in a queue that had none; cleared by
//!   UARTICR and by a write that leaves less than [`FIFO`] bytes of room. So a driver that on the interrupt writes half
//!   a FIFO without looking (Linux does) loses nothing. BUSY is never set and TXFE needs room only, since an unfinished line
//!   may stay in the queue for long, and a driver waits for both.
//!
//!   A driver that polls pays two exits for each byte, one that is interrupted hardly more than one, and a UART that is
//!   never full would keep Linux polling. So TXFF shows, once, after each [`BURST`] bytes of a driver that has the transmit
//!   interrupt masked, as it does on hardware, where it would show for longer: who polls looks again, who can be
//!   interrupted asks for it, and is at once.
//! - **Receiving.** RXRIS and RTRIS follow the level of the queue (trigger level; not empty), not its passage: UARTICR has
//!   no effect on them while there is something to read, so that input that came before the driver was ready isn't stuck.
//! - Line control, baud rate and DMA registers keep what is written and mean nothing. No loopback, no modem
//!   lines, no errors.
//!
//! The flag register is read without a lock; all else is under a lock of this UART alone, held for a few
//! instructions.

mod state;

use super::{AccessSize, part_of_word, word_of_write};
use crate::sync::Mutex;
use bitflags::bitflags;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use state::{FR_RXFE, FR_TXFE, FR_TXFF, State};

/// Size of its window in bytes.
pub const SIZE: u64 = 0x1000;
/// The FIFO that a driver expects behind the identification registers, in bytes.
pub const FIFO: usize = 32;
/// Bytes after which a driver that polls finds the FIFO full, once.
pub const BURST: usize = 16;
/// Bytes of output that are kept for the console.
pub const OUTPUT: usize = 4096;
/// Bytes of input that are kept for the guest.
pub const INPUT: usize = 256;

/// What its identification registers say, as one number.
pub const PERIPHERAL_ID: u32 = super::peripheral_id(&state::ID);

const DR: u64 = 0x00;
const FR: u64 = 0x18;

bitflags! {
    /// What the console should do after an access.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Effect: u32 {
        /// There is output to take: a line has ended, or the queue is full.
        const OUTPUT = 1;
        /// There is room again for input that was held back.
        const INPUT = 2;
    }
}

/// Where an output taken by the console ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// In the line: the rest may be taken right away.
    Inside,
    /// With a newline.
    Newline,
    /// In a line whose end isn't there: its rest comes later, and others may come between.
    Open,
}

/// What [`Pl011::take_output`] took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// How many bytes.
    pub len: usize,
    /// Where they end.
    pub end: End,
    /// Whether something more may be taken.
    pub more: bool,
}

/// The UART of one VM.
#[derive(Debug)]
pub struct Pl011 {
    /// UARTFR: follows the queues, under the lock.
    flags: AtomicU32,
    state: Mutex<State>,
}

impl Default for Pl011 {
    fn default() -> Self {
        Self::new()
    }
}

impl Pl011 {
    /// A UART after reset.
    pub const fn new() -> Self {
        Pl011 { flags: AtomicU32::new(FR_RXFE | FR_TXFE), state: Mutex::new(State::new()) }
    }

    /// The registers as after reset (a VM's SYSTEM_RESET). Output stays, input that was not read is dropped. `line`
    /// is told when the interrupt line changes.
    pub fn reset(&self, line: impl FnOnce(bool)) {
        self.with(line, State::reset);
    }

    /// Runs `action` under the lock; afterwards the flag register and the interrupt line follow. `line` is called under
    /// the lock, so that two CPUs can't report levels in the wrong order: it must be short, and leave this UART alone.
    #[inline]
    fn with<T>(&self, line: impl FnOnce(bool), action: impl FnOnce(&mut State) -> T) -> T {
        let state = &mut *self.state.lock();
        let result = action(state);
        self.flags.store(state.flags(), Relaxed);
        let level = state.raw_interrupts() & state.mask != 0;
        if level != state.level {
            state.level = level;
            line(level);
        }
        result
    }

    /// The guest reads. `line` is told when the interrupt line changes.
    #[inline]
    pub fn read(&self, offset: u64, size: AccessSize, line: impl FnOnce(bool)) -> (u64, Effect) {
        if offset == FR {
            return self.read_flags();
        }
        self.read_other(offset, size, line)
    }

    /// UARTFR.
    #[inline(always)]
    pub fn read_flags(&self) -> (u64, Effect) {
        let flags = self.flags.load(Relaxed);
        (flags.into(), if flags & FR_TXFF != 0 { self.seen_full() } else { Effect::empty() })
    }

    /// The guest has seen TXFF. If the queue is full indeed, the guest may be polling: an occasion for the console.
    #[cold]
    #[inline(never)]
    fn seen_full(&self) -> Effect {
        let state = &mut *self.state.lock();
        let full = state.seen_full();
        self.flags.store(state.flags(), Relaxed);
        if full { Effect::OUTPUT } else { Effect::empty() }
    }

    fn read_other(&self, offset: u64, size: AccessSize, line: impl FnOnce(bool)) -> (u64, Effect) {
        let register = offset & !3;
        let (value, effect) = match register {
            // A narrow access that leaves out the data byte takes nothing from the queue.
            DR if offset == DR => self.with(line, State::read_data),
            DR => (0, Effect::empty()),
            FR => (self.flags.load(Relaxed), Effect::empty()),
            _ => (self.state.lock().read(register), Effect::empty()),
        };
        (part_of_word(value, offset, size), effect)
    }

    /// The guest writes. `line` is told when the interrupt line changes.
    #[inline]
    pub fn write(&self, offset: u64, size: AccessSize, value: u64, line: impl FnOnce(bool)) -> Effect {
        let word = word_of_write(value, offset, size);
        match offset & !3 {
            DR if offset == DR => self.with(line, |state| state.write_data(word as u8)),
            DR => Effect::empty(),
            register => self.with(line, |state| {
                state.write(register, word);
                Effect::empty()
            }),
        }
    }

    /// The level of its interrupt line.
    pub fn interrupt_level(&self) -> bool {
        self.state.lock().level
    }

    /// The console takes output into `buffer`: up to the end of a line, at most as much as fits. With `partial`, an
    /// unfinished line too; without it only what belongs to a line whose end is there, or to one that fills the queue.
    pub fn take_output(&self, partial: bool, buffer: &mut [u8], line: impl FnOnce(bool)) -> Taken {
        self.with(line, |state| state.take_output(partial, buffer))
    }

    /// The console gives a byte of input. `false`: no room. It is held back then, and a later access will say
    /// [`Effect::INPUT`].
    pub fn give_input(&self, byte: u8, line: impl FnOnce(bool)) -> bool {
        self.with(line, |state| {
            let taken = state.input.push(byte);
            state.input_held = !taken;
            taken
        })
    }

    /// Whether there is room for a byte of input. If not, a later access will say [`Effect::INPUT`].
    pub fn has_input_room(&self) -> bool {
        let state = &mut *self.state.lock();
        state.input_held = state.input.room() == 0;
        !state.input_held
    }

    /// Output of the guest that comes another way than through this UART, whose lines are to stand among its own; how many
    /// bytes there was room for.
    pub fn put_output(&self, bytes: &[u8], line: impl FnOnce(bool)) -> usize {
        self.with(line, |state| state.put_output(bytes))
    }

    /// Whether the guest takes input another way: this UART then looks as if none came.
    pub fn divert_input(&self, diverted: bool, line: impl FnOnce(bool)) {
        self.with(line, |state| state.diverted = diverted);
    }

    /// Input that the guest takes another way: none unless it is [diverted](Self::divert_input). How many bytes that were.
    pub fn take_input(&self, buffer: &mut [u8], line: impl FnOnce(bool)) -> (usize, Effect) {
        self.with(line, |state| state.take_input(buffer))
    }

    /// Whether every byte that the guest sends should be an [`Effect::OUTPUT`].
    pub fn set_eager(&self, eager: bool) {
        self.state.lock().eager = eager;
    }

    /// The position of the end of output if an unfinished line is all there is: two equal answers at different times
    /// say that the guest has written nothing in between.
    pub fn unfinished_line(&self) -> Option<u32> {
        let state = &*self.state.lock();
        let waits = !state.output.is_empty() && state.output.len_before(state.line_end) == 0;
        waits.then_some(state.output.position())
    }

    /// Bytes that the guest wrote while TXFF was set.
    pub fn lost_bytes(&self) -> u64 {
        self.state.lock().lost
    }
}

#[cfg(test)]
mod tests;
