//! The memory of a trace, as the CPUs write it.
//!
//! All of it is 64-bit words, little-endian:
//!
//! | words | |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | [`VERSION`] |
//! | 2 | number of CPUs |
//! | 3 | events in each ring |
//! | 4 | frequency of the counter, in Hz |
//! | 5 to 7 | 0 |
//! | 8 · (1 + n) | how many events CPU n has ever written: a cache line for each |
//! | behind these | the rings, CPU by CPU, two words for each event |

use super::event::{Event, WORDS};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The first word: `ODOTRACE` in memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ODOTRACE");

/// The format's version: another one is another format.
pub const VERSION: u64 = 1;

/// Words in a cache line.
pub(super) const LINE: usize = 8;

/// How large a trace is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    cpus: usize,
    entries: usize,
}

/// There is no such trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// So many CPUs.
    Cpus(u64),
    /// So many events in a ring.
    Entries(u64),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Cpus(cpus) => {
                write!(f, "{cpus} CPUs in a trace, which has 1 to {}", crate::ids::MAX_CPUS)
            }
            LayoutError::Entries(entries) => {
                write!(
                    f,
                    "{entries} events in a ring, which has a power of two from 2 to {}",
                    Layout::MOST_ENTRIES
                )
            }
        }
    }
}

impl Layout {
    /// Most events in a ring: 64 MiB for a CPU.
    pub const MOST_ENTRIES: u64 = 1 << 22;

    /// Bytes of an event.
    pub const ENTRY_BYTES: u64 = (WORDS * size_of::<u64>()) as u64;

    /// A trace of so many CPUs with rings of so many events, a power of two.
    pub fn new(cpus: u64, entries: u64) -> Result<Layout, LayoutError> {
        if cpus == 0 || cpus > crate::ids::MAX_CPUS as u64 {
            return Err(LayoutError::Cpus(cpus));
        }
        if !(2..=Self::MOST_ENTRIES).contains(&entries) || !entries.is_power_of_two() {
            return Err(LayoutError::Entries(entries));
        }
        Ok(Layout { cpus: cpus as usize, entries: entries as usize })
    }

    /// CPUs.
    pub const fn cpus(self) -> usize {
        self.cpus
    }

    /// Events in a ring.
    pub const fn entries(self) -> usize {
        self.entries
    }

    /// Where CPU `cpu`'s write position is, in words.
    pub(super) const fn position(self, cpu: usize) -> usize {
        LINE * (1 + cpu)
    }

    /// Where its ring begins, in words.
    pub(super) const fn ring(self, cpu: usize) -> usize {
        LINE * (1 + self.cpus) + WORDS * self.entries * cpu
    }

    /// Words of the whole.
    pub const fn words(self) -> usize {
        self.ring(self.cpus)
    }
}

/// The trace of the machine.
pub struct Area<'a> {
    layout: Layout,
    words: &'a [AtomicU64],
}

impl<'a> Area<'a> {
    /// Makes a trace of memory that is all zeros; `None`: there aren't [`Layout::words`] of it.
    pub fn new(layout: Layout, counter_hz: u64, words: &'a [AtomicU64]) -> Option<Area<'a>> {
        let words = words.get(..layout.words())?;
        let header = [MAGIC, VERSION, layout.cpus as u64, layout.entries as u64, counter_hz];
        for (word, value) in words.iter().zip(header) {
            word.store(value, Ordering::Relaxed);
        }
        Some(Area { layout, words })
    }

    /// Its memory.
    pub fn words(&self) -> &[AtomicU64] {
        self.words
    }

    /// Where it is, which is the physical address too, and its bytes.
    pub fn place(&self) -> (u64, u64) {
        (self.words.as_ptr().addr() as u64, size_of_val(self.words) as u64)
    }

    /// The ring of a CPU.
    pub fn ring(&self, cpu: usize) -> Option<Ring<'a>> {
        let layout = self.layout;
        if cpu >= layout.cpus {
            return None;
        }
        Some(Ring {
            written: self.words.get(layout.position(cpu))?,
            events: self.words.get(layout.ring(cpu)..layout.ring(cpu + 1))?,
        })
    }
}

/// A CPU's ring: only that CPU writes.
pub struct Ring<'a> {
    written: &'a AtomicU64,
    events: &'a [AtomicU64],
}

impl Ring<'_> {
    /// Writes an event, over the oldest if the ring is full.
    #[inline(always)]
    pub fn record(&self, event: Event) {
        let written = self.written.load(Ordering::Relaxed);
        let at = (written as usize * WORDS) & (self.events.len() - 1);
        let [time, about] = event.words();
        // Always there: the length is a power of two, and even.
        if let Some([first, second]) = self.events.get(at..at + WORDS) {
            first.store(time, Ordering::Relaxed);
            second.store(about, Ordering::Relaxed);
        }
        // Release: who reads the position sees the event.
        self.written.store(written.wrapping_add(1), Ordering::Release);
    }
}
