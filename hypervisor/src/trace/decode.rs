//! Reading a trace from a copy of its memory.

use super::area::{LINE, Layout, LayoutError, MAGIC, VERSION};
use super::event::{Event, WORDS};
use alloc::vec::Vec;
use core::fmt;

/// A whole trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Frequency of the counter that `Event::time` is of, in Hz.
    pub counter_hz: u64,
    /// CPU by CPU.
    pub cpus: Vec<CpuTrace>,
}

/// What a CPU's ring holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuTrace {
    /// From the oldest to the newest.
    pub events: Vec<Event>,
    /// How many older ones the ring no longer holds.
    pub lost: u64,
}

/// This is no trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// It ends before the header or the rings do: bytes there are, bytes there must be.
    Short(usize, usize),
    /// It begins with something else than the magic number.
    Magic(u64),
    /// Of another version.
    Version(u64),
    /// The header names impossible sizes.
    Layout(LayoutError),
    /// The counter doesn't run.
    Frequency,
    /// An event of no known kind: the CPU, which event, its second word.
    Event(usize, u64, u64),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Short(is, needed) => {
                write!(f, "the trace has {is} bytes, and by its header at least {needed}")
            }
            DecodeError::Magic(word) => {
                write!(f, "it begins with {word:#018x}, a trace with {MAGIC:#018x} (ODOTRACE)")
            }
            DecodeError::Version(version) => {
                write!(f, "a trace of version {version}; this reads version {VERSION}")
            }
            DecodeError::Layout(error) => error.fmt(f),
            DecodeError::Frequency => f.write_str("counter frequency 0 in the header: it must be positive"),
            DecodeError::Event(cpu, at, word) => {
                write!(f, "CPU {cpu}, event {at}: {word:#018x} is no event: kind {} is unknown", word as u8)
            }
        }
    }
}

/// Reads a trace. Of a ring that is full the oldest event is left out: its CPU may have been writing over it when the copy was
/// made.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let word = |at: usize| {
        let bytes = bytes.get(at * 8..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let short = |words: usize| DecodeError::Short(bytes.len(), words * 8);
    let header = |at| word(at).ok_or(short(LINE));
    let magic = header(0)?;
    if magic != MAGIC {
        return Err(DecodeError::Magic(magic));
    }
    let version = header(1)?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let layout = Layout::new(header(2)?, header(3)?).map_err(DecodeError::Layout)?;
    let counter_hz = header(4)?;
    if counter_hz == 0 {
        return Err(DecodeError::Frequency);
    }
    let entries = layout.entries() as u64;
    let mut cpus = Vec::with_capacity(layout.cpus());
    for cpu in 0..layout.cpus() {
        let written = word(layout.position(cpu)).ok_or(short(layout.words()))?;
        let lost = if written < entries { 0 } else { written - entries + 1 };
        let mut events = Vec::new();
        for number in lost..written {
            let at = layout.ring(cpu) + (number % entries) as usize * WORDS;
            let words = word(at).zip(word(at + 1)).ok_or(short(layout.words()))?;
            let event = Event::from_words(words.into());
            events.push(event.ok_or(DecodeError::Event(cpu, number, words.1))?);
        }
        cpus.push(CpuTrace { events, lost });
    }
    Ok(Decoded { counter_hz, cpus })
}
