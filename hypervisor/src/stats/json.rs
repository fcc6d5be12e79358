//! Writing JSON (RFC 8259) to anything that takes text: no allocation, one line, ASCII only.

use core::fmt::{self, Write};

/// One object or array that is being written: puts the commas.
pub(super) struct Json<'w, W: Write> {
    out: &'w mut W,
    first: bool,
}

impl<'w, W: Write> Json<'w, W> {
    /// Begins at the top: nothing is written yet.
    pub(super) fn new(out: &'w mut W) -> Self {
        Json { out, first: true }
    }

    fn comma(&mut self) -> fmt::Result {
        if !core::mem::replace(&mut self.first, false) {
            self.out.write_char(',')?;
        }
        Ok(())
    }

    fn key(&mut self, key: &str) -> fmt::Result {
        self.comma()?;
        write_string(self.out, key)?;
        self.out.write_char(':')
    }

    /// A member with a number.
    pub(super) fn number(&mut self, key: &str, value: u64) -> fmt::Result {
        self.key(key)?;
        write!(self.out, "{value}")
    }

    /// A member with a string.
    pub(super) fn string(&mut self, key: &str, value: &str) -> fmt::Result {
        self.key(key)?;
        write_string(self.out, value)
    }

    /// A member with a string that needs no escapes.
    pub(super) fn display(&mut self, key: &str, value: &impl fmt::Display) -> fmt::Result {
        self.key(key)?;
        write!(self.out, "\"{value}\"")
    }

    /// A member with a number that is an address or a register: a string in hexadecimal, since a JSON reader may keep
    /// only 53 bits of a number.
    pub(super) fn hex(&mut self, key: &str, value: u64) -> fmt::Result {
        self.key(key)?;
        write!(self.out, "\"{value:#x}\"")
    }

    /// An element of an array, as [`hex`](Self::hex).
    pub(super) fn hex_element(&mut self, value: u64) -> fmt::Result {
        self.comma()?;
        write!(self.out, "\"{value:#x}\"")
    }

    /// An element of an array: a pair of numbers.
    pub(super) fn pair_element(&mut self, a: u64, b: u64) -> fmt::Result {
        self.comma()?;
        write!(self.out, "[{a},{b}]")
    }

    /// A member with an object whose members `inside` writes.
    pub(super) fn object(
        &mut self,
        key: &str,
        inside: impl FnOnce(&mut Json<'_, W>) -> fmt::Result,
    ) -> fmt::Result {
        self.key(key)?;
        self.nested('{', '}', inside)
    }

    /// A member with an array whose elements `inside` writes.
    pub(super) fn array(
        &mut self,
        key: &str,
        inside: impl FnOnce(&mut Json<'_, W>) -> fmt::Result,
    ) -> fmt::Result {
        self.key(key)?;
        self.nested('[', ']', inside)
    }

    /// Writes `open`, what `inside` writes, `close`.
    pub(super) fn nested(
        &mut self,
        open: char,
        close: char,
        inside: impl FnOnce(&mut Json<'_, W>) -> fmt::Result,
    ) -> fmt::Result {
        self.out.write_char(open)?;
        inside(&mut Json::new(self.out))?;
        self.out.write_char(close)
    }
}

/// Writes `text` as a JSON string. Whatever is not printable ASCII is escaped: control characters must be, and line
/// separators beyond ASCII would break the line for some readers.
fn write_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            ' '..='~' => out.write_char(c)?,
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
    }
    out.write_char('"')
}
