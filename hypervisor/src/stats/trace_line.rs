//! The lines `trace` of the report: the trace's memory in hexadecimal, for machines into which nobody can look but by their console.

use super::report::line;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

/// Words in a line.
const WORDS: usize = 16;

/// Words, in hexadecimal of 16 digits each.
struct Hex<'a>(&'a [AtomicU64]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, "{:016x}", word.load(Ordering::Relaxed)))
    }
}

/// Writes all of a trace's words, but for lines of zeros, and how many lines these were.
pub fn write_trace(out: &mut impl Write, words: &[AtomicU64]) -> fmt::Result {
    let mut lines = 0;
    for (number, words) in words.chunks(WORDS).enumerate() {
        if words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
            continue;
        }
        line(out, "trace", |json| {
            json.number("line", lines)?;
            json.number("at", (number * WORDS) as u64)?;
            json.display("words", &Hex(words))
        })?;
        lines += 1;
    }
    line(out, "trace_end", |json| json.number("lines", lines))
}
