//! What is behind the registers: the queues, and how flags and interrupts follow from them.

use super::{BURST, Effect, End, FIFO, INPUT, OUTPUT, Taken};
use crate::device::primecell_id;
use crate::device::ring::Ring;

/// How much of a line without end is given out at a time when the queue is full. Also the room at which a guest
/// that found the queue full is interrupted.
pub(super) const CHUNK: usize = 1024;
/// The room for input at which more is asked for.
pub(super) const INPUT_WANTED: usize = INPUT / 2;

pub(super) const ILPR: u64 = 0x20;
pub(super) const IBRD: u64 = 0x24;
pub(super) const FBRD: u64 = 0x28;
pub(super) const LCR_H: u64 = 0x2C;
pub(super) const CR: u64 = 0x30;
pub(super) const IFLS: u64 = 0x34;
pub(super) const IMSC: u64 = 0x38;
pub(super) const RIS: u64 = 0x3C;
pub(super) const MIS: u64 = 0x40;
pub(super) const ICR: u64 = 0x44;
pub(super) const DMACR: u64 = 0x48;

pub(super) const ID: [u8; 8] = [0x11, 0x10, 0x34, 0x00, 0x0D, 0xF0, 0x05, 0xB1];

pub(super) const FR_RXFE: u32 = 1 << 4;
pub(super) const FR_TXFF: u32 = 1 << 5;
pub(super) const FR_RXFF: u32 = 1 << 6;
pub(super) const FR_TXFE: u32 = 1 << 7;

pub(super) const INT_RX: u32 = 1 << 4;
pub(super) const INT_TX: u32 = 1 << 5;
pub(super) const INT_RT: u32 = 1 << 6;
pub(super) const INT_ALL: u32 = 0x7FF;

pub(super) const LCR_H_FEN: u32 = 1 << 4;

#[derive(Debug)]
pub(super) struct State {
    pub(super) output: Ring<OUTPUT>,
    /// Position in `output` behind its last newline.
    pub(super) line_end: u32,
    /// What may still be taken of a line without end, because the queue was full.
    pub(super) chunk: usize,
    pub(super) input: Ring<INPUT>,
    /// Whether input is held back because there was no room.
    pub(super) input_held: bool,
    /// Whether the guest takes input another way than through the registers.
    pub(super) diverted: bool,
    /// Whether every byte is worth the console's attention: somebody types to this VM.
    pub(super) eager: bool,
    pub(super) tx_latch: bool,
    /// The room went below a FIFO's worth, and the latch waits for more.
    pub(super) starved: bool,
    /// Bytes that were written with the transmit interrupt masked since TXFF was seen.
    pub(super) burst: usize,
    /// TXFF was seen for a [`BURST`]: the driver may count on the transmit interrupt now.
    pub(super) awaited: bool,
    /// The level of the interrupt line as last reported.
    pub(super) level: bool,
    pub(super) lost: u64,
    pub(super) line_control: u32,
    pub(super) control: u32,
    pub(super) fifo_levels: u32,
    pub(super) mask: u32,
    pub(super) baud: [u32; 2],
    pub(super) low_power: u32,
    pub(super) dma: u32,
}

impl State {
    pub(super) const fn new() -> Self {
        State {
            output: Ring::new(),
            line_end: 0,
            chunk: 0,
            input: Ring::new(),
            input_held: false,
            diverted: false,
            eager: false,
            tx_latch: false,
            starved: false,
            burst: 0,
            awaited: false,
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

    /// Registers as after reset; output stays, input goes.
    pub(super) fn reset(&mut self) {
        let fresh = State::new();
        self.input.clear();
        self.input_held = false;
        self.diverted = false;
        self.tx_latch = false;
        self.burst = 0;
        self.awaited = false;
        self.line_control = fresh.line_control;
        self.control = fresh.control;
        self.fifo_levels = fresh.fifo_levels;
        self.mask = fresh.mask;
        self.baud = fresh.baud;
        self.low_power = fresh.low_power;
        self.dma = fresh.dma;
    }

    /// UARTFR.
    pub(super) fn flags(&self) -> u32 {
        let room = self.output.room();
        let mut flags = 0;
        if room == 0 || self.burst >= BURST {
            flags |= FR_TXFF;
        } else if room >= FIFO {
            flags |= FR_TXFE;
        }
        match self.visible_input() {
            0 => flags |= FR_RXFE,
            INPUT => flags |= FR_RXFF,
            _ => {}
        }
        flags
    }

    /// The guest has seen TXFF. Whether the queue is full indeed; else it has room again from now on.
    pub(super) fn seen_full(&mut self) -> bool {
        if self.output.room() == 0 {
            return true;
        }
        self.burst = 0;
        self.awaited = true;
        false
    }

    /// UARTRIS.
    pub(super) fn raw_interrupts(&self) -> u32 {
        let waiting = self.visible_input();
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
    pub(super) fn receive_trigger(&self) -> usize {
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

    pub(super) fn read_data(&mut self) -> (u32, Effect) {
        if self.diverted {
            return (0, Effect::empty());
        }
        let byte = self.input.pop().unwrap_or(0);
        (byte.into(), self.input_wanted())
    }

    pub(super) fn take_input(&mut self, buffer: &mut [u8]) -> (usize, Effect) {
        let mut taken = (0, Effect::empty());
        if !self.diverted {
            return taken;
        }
        for slot in buffer {
            let Some(byte) = self.input.pop() else { break };
            *slot = byte;
            taken = (taken.0 + 1, taken.1 | self.input_wanted());
        }
        taken
    }

    /// Whether input was held back that there is room for now.
    fn input_wanted(&mut self) -> Effect {
        let wanted = self.input_held && self.input.room() >= INPUT_WANTED;
        if wanted {
            self.input_held = false;
        }
        if wanted { Effect::INPUT } else { Effect::empty() }
    }

    /// Bytes of input that are there for the guest to see.
    fn visible_input(&self) -> usize {
        if self.diverted { 0 } else { self.input.len() }
    }

    pub(super) fn put_output(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.iter().take_while(|byte| self.output.push(**byte)).count();
        let newline = bytes.get(..taken).unwrap_or_default().iter().rposition(|byte| *byte == b'\n');
        if let Some(at) = newline {
            self.line_end = self.output.position().wrapping_sub((taken - at - 1) as u32);
        }
        if self.output.room() < FIFO {
            self.tx_latch = false;
            self.starved = true;
        }
        taken
    }

    pub(super) fn write_data(&mut self, byte: u8) -> Effect {
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
        self.awaited = false;
        self.burst = if self.mask & INT_TX == 0 { self.burst + 1 } else { 0 };
        if byte == b'\n' || low || self.eager { Effect::OUTPUT } else { Effect::empty() }
    }

    pub(super) fn take_output(&mut self, partial: bool, buffer: &mut [u8]) -> Taken {
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
    pub(super) fn takeable(&mut self, partial: bool) -> usize {
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

    pub(super) fn read(&self, register: u64) -> u32 {
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

    pub(super) fn write(&mut self, register: u64, value: u32) {
        match register {
            ILPR => self.low_power = value & 0xFF,
            IBRD => self.baud[0] = value & 0xFFFF,
            FBRD => self.baud[1] = value & 0x3F,
            LCR_H => self.line_control = value & 0xFF,
            CR => self.control = value & 0xFF87,
            IFLS => self.fifo_levels = value & 0x3F,
            IMSC => {
                self.mask = value & INT_ALL;
                if self.mask & INT_TX != 0 {
                    self.burst = 0;
                    // The FIFO, full a moment ago, has passed its level since, whatever the driver has cleared meanwhile.
                    self.tx_latch |= core::mem::take(&mut self.awaited) && self.output.room() >= FIFO;
                }
            }
            ICR => self.tx_latch &= value & INT_TX == 0,
            DMACR => self.dma = value & 7,
            _ => {}
        }
    }
}
