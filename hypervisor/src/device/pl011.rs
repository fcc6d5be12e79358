//! A virtual PL011 UART (Arm DDI 0183), as far as drivers use one: data, flags, interrupts, identification.
//!
//! Between the guest and the console ([`crate::platform::console`]) lie two queues, far longer than the real one's
//! 16 bytes. What they do to the registers:
//!
//! - **Sending.** The flag TXFF shows when the queue is full; a byte written then is lost, as on hardware. The guest gets
//!   going again in either of two ways: it polls the flag register, where each poll also gives the console an occasion to
//!   take something; or it waits for the interrupt. TXRIS is a latch, as hardware's follows a passage of the level: set
//!   by a write after which there still is room, and by the console when it has made room in a queue that had none; cleared by
//!   UARTICR and by a write that leaves less than [`FIFO`] bytes of room. So a driver that on the interrupt writes half
//!   a FIFO without looking (Linux does) loses nothing. BUSY is never set and TXFE needs room only, since an unfinished line
//!   may stay in the queue for long, and a driver waits for both.
//! - **Receiving.** RXRIS and RTRIS follow the level of the queue (trigger level; not empty), not its passage: UARTICR has
//!   no effect on them while there is something to read, so that input that came before the driver was ready isn't stuck.
//! - Line control, baud rate and DMA registers keep what is written and mean nothing. No loopback, no modem
//!   lines, no errors.
//!
//! The flag register is read without a lock; all else is under a lock of this UART alone, held for a few
//! instructions.

use super::ring::Ring;
use super::{AccessSize, part_of_word, primecell_id, word_of_write};
use bitflags::bitflags;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use spin::Mutex;

/// Size of its window in bytes.
pub const SIZE: u64 = 0x1000;
/// The FIFO that a driver expects behind the identification registers, in bytes.
pub const FIFO: usize = 16;
/// Bytes of output that are kept for the console.
pub const OUTPUT: usize = 4096;
/// Bytes of input that are kept for the guest.
pub const INPUT: usize = 256;
/// How much of a line without end is given out at a time when the queue is full. Also the room at which a guest
/// that found the queue full is interrupted.
const CHUNK: usize = 1024;
/// The room for input at which more is asked for.
const INPUT_WANTED: usize = INPUT / 2;

const DR: u64 = 0x00;
const FR: u64 = 0x18;
const ILPR: u64 = 0x20;
const IBRD: u64 = 0x24;
const FBRD: u64 = 0x28;
const LCR_H: u64 = 0x2C;
const CR: u64 = 0x30;
const IFLS: u64 = 0x34;
const IMSC: u64 = 0x38;
const RIS: u64 = 0x3C;
const MIS: u64 = 0x40;
const ICR: u64 = 0x44;
const DMACR: u64 = 0x48;

const ID: [u8; 8] = [0x11, 0x10, 0x14, 0x00, 0x0D, 0xF0, 0x05, 0xB1];

const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;
const FR_RXFF: u32 = 1 << 6;
const FR_TXFE: u32 = 1 << 7;

const INT_RX: u32 = 1 << 4;
const INT_TX: u32 = 1 << 5;
const INT_RT: u32 = 1 << 6;
const INT_ALL: u32 = 0x7FF;

const LCR_H_FEN: u32 = 1 << 4;

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

#[derive(Debug)]
struct State {
    output: Ring<OUTPUT>,
    /// Position in `output` behind its last newline.
    line_end: u32,
    /// What may still be taken of a line without end, because the queue was full.
    chunk: usize,
    input: Ring<INPUT>,
    /// Whether input is held back because there was no room.
    input_held: bool,
    /// Whether every byte is worth the console's attention: somebody types to this VM.
    eager: bool,
    tx_latch: bool,
    /// The room went below a FIFO's worth, and the latch waits for more.
    starved: bool,
    /// The level of the interrupt line as last reported.
    level: bool,
    lost: u64,
    line_control: u32,
    control: u32,
    fifo_levels: u32,
    mask: u32,
    baud: [u32; 2],
    low_power: u32,
    dma: u32,
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
        self.with(line, |state| {
            let fresh = State::new();
            state.input.clear();
            state.input_held = false;
            state.tx_latch = false;
            state.line_control = fresh.line_control;
            state.control = fresh.control;
            state.fifo_levels = fresh.fifo_levels;
            state.mask = fresh.mask;
            state.baud = fresh.baud;
            state.low_power = fresh.low_power;
            state.dma = fresh.dma;
        });
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

    /// UARTFR. A guest that finds the queue full may be polling: an occasion for the console.
    #[inline(always)]
    pub fn read_flags(&self) -> (u64, Effect) {
        let flags = self.flags.load(Relaxed);
        (flags.into(), if flags & FR_TXFF != 0 { Effect::OUTPUT } else { Effect::empty() })
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

impl State {
    const fn new() -> Self {
        State {
            output: Ring::new(),
            line_end: 0,
            chunk: 0,
            input: Ring::new(),
            input_held: false,
            eager: false,
            tx_latch: false,
            starved: false,
            level: false,
            lost: 0,
            line_control: 0,
            control: 0x300,
            fifo_levels: 0x12,
            mask: 0,
            baud: [0; 2],
            low_power: 0,
            dma: 0,
        }
    }

    fn flags(&self) -> u32 {
        let room = self.output.room();
        let mut flags = 0;
        if room == 0 {
            flags |= FR_TXFF;
        }
        if room >= FIFO {
            flags |= FR_TXFE;
        }
        if self.input.is_empty() {
            flags |= FR_RXFE;
        }
        if self.input.room() == 0 {
            flags |= FR_RXFF;
        }
        flags
    }

    /// UARTRIS.
    fn raw_interrupts(&self) -> u32 {
        let waiting = self.input.len();
        let mut interrupts = 0;
        if waiting > 0 {
            interrupts |= INT_RT;
        }
        if waiting >= self.receive_trigger() {
            interrupts |= INT_RX;
        }
        if self.tx_latch {
            interrupts |= INT_TX;
        }
        interrupts
    }

    /// How many bytes of input raise RXRIS: UARTIFLS.RXIFLSEL, in eighths of the FIFO.
    fn receive_trigger(&self) -> usize {
        if self.line_control & LCR_H_FEN == 0 {
            return 1;
        }
        match self.fifo_levels >> 3 & 7 {
            0 => FIFO / 8,
            1 => FIFO / 4,
            2 => FIFO / 2,
            3 => FIFO * 3 / 4,
            _ => FIFO * 7 / 8,
        }
    }

    fn read_data(&mut self) -> (u32, Effect) {
        let byte = self.input.pop().unwrap_or(0);
        let wanted = self.input_held && self.input.room() >= INPUT_WANTED;
        if wanted {
            self.input_held = false;
        }
        (byte.into(), if wanted { Effect::INPUT } else { Effect::empty() })
    }

    fn write_data(&mut self, byte: u8) -> Effect {
        if !self.output.push(byte) {
            self.lost = self.lost.saturating_add(1);
            return Effect::OUTPUT;
        }
        if byte == b'\n' {
            self.line_end = self.output.position();
        }
        let low = self.output.room() < FIFO;
        self.tx_latch = !low;
        self.starved |= low;
        if byte == b'\n' || low || self.eager { Effect::OUTPUT } else { Effect::empty() }
    }

    fn take_output(&mut self, partial: bool, buffer: &mut [u8]) -> Taken {
        let allowed = self.takeable(partial);
        let mut taken = Taken { len: 0, end: End::Inside, more: false };
        for slot in buffer.iter_mut().take(allowed) {
            let Some(byte) = self.output.pop() else { break };
            *slot = byte;
            taken.len += 1;
            if byte == b'\n' {
                taken.end = End::Newline;
                break;
            }
        }
        let chunk = core::mem::take(&mut self.chunk);
        let mut chunk_ends = false;
        if taken.end != End::Newline {
            self.chunk = chunk.saturating_sub(taken.len);
            chunk_ends = chunk > 0 && self.chunk == 0;
        }
        // A guest may fill the queue as fast as it is emptied: a chunk ends all the same, so that others get their turn.
        taken.more = self.takeable(partial) > 0;
        if taken.end == End::Inside && (chunk_ends || !taken.more) {
            taken.end = End::Open;
        }
        if self.starved && self.output.room() >= CHUNK {
            self.starved = false;
            self.tx_latch = true;
        }
        taken
    }

    /// How many bytes the console may take now.
    fn takeable(&mut self, partial: bool) -> usize {
        let lines = self.output.len_before(self.line_end);
        if lines > 0 || self.output.is_empty() {
            return lines;
        }
        if partial {
            return self.output.len();
        }
        if self.chunk == 0 && self.output.room() < FIFO {
            self.chunk = CHUNK;
        }
        self.chunk.min(self.output.len())
    }

    fn read(&self, register: u64) -> u32 {
        match register {
            ILPR => self.low_power,
            IBRD => self.baud[0],
            FBRD => self.baud[1],
            LCR_H => self.line_control,
            CR => self.control,
            IFLS => self.fifo_levels,
            IMSC => self.mask,
            RIS => self.raw_interrupts(),
            MIS => self.raw_interrupts() & self.mask,
            DMACR => self.dma,
            other => primecell_id(&ID, other),
        }
    }

    fn write(&mut self, register: u64, value: u32) {
        match register {
            ILPR => self.low_power = value & 0xFF,
            IBRD => self.baud[0] = value & 0xFFFF,
            FBRD => self.baud[1] = value & 0x3F,
            LCR_H => self.line_control = value & 0xFF,
            CR => self.control = value & 0xFF87,
            IFLS => self.fifo_levels = value & 0x3F,
            IMSC => self.mask = value & INT_ALL,
            ICR => self.tx_latch &= value & INT_TX == 0,
            DMACR => self.dma = value & 7,
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "pl011_tests.rs"]
mod tests;
