//! Pieces of the JSON lines that the guest prints.

use core::fmt::{self, Display, Write};

/// A value as the inside of a JSON string: quotes, backslashes and control characters escaped (RFC 8259, 7).
pub struct Escaped<T>(pub T);

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' => self.0.write_str("\\\"")?,
                '\\' => self.0.write_str("\\\\")?,
                c if (c as u32) < 0x20 => write!(self.0, "\\u{:04x}", c as u32)?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

/// A number of tenths, printed with one decimal: mean times without floating point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenths(pub u64);

impl Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_from_bootargs_stay_inside_their_quotes() {
        assert_eq!(Escaped("a\"b\\c\n").to_string(), "a\\\"b\\\\c\\u000a");
    }

    #[test]
    fn tenths_keep_their_leading_zero() {
        assert_eq!(Tenths(1234).to_string(), "123.4");
        assert_eq!(Tenths(7).to_string(), "0.7");
    }
}
