//! Sizes as people write them: `96M`, `1G`, `512K`, or bytes.

use anyhow::{Context, Result, bail};

/// Reads a size: a whole number with an optional unit K, M, G or T (powers of 1024; `MiB`, `MB` and `m` are taken
/// for M).
///
/// # Errors
/// Anything else, and sizes of 2^63 bytes or more.
pub fn parse(text: &str) -> Result<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        bail!("a size begins with a whole number and may end with K, M or G, as in \"96M\"");
    }
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => bail!("the unit \"{}\" is not one of K, M, G, T", unit.trim()),
    };
    let number: u64 = number.parse().context("the number is too large")?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes < 1 << 63 => Ok(bytes),
        _ => bail!("the size is too large"),
    }
}

/// Writes a size with the largest unit that divides it, as `parse` reads it.
pub fn format(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.iter().find(|(shift, _)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A size as clap takes it from the command line.
pub fn argument(text: &str) -> Result<u64, String> {
    parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in
            [("96M", 96 << 20), ("1G", 1 << 30), ("512 KiB", 512 << 10), ("4096", 4096), ("2t", 2 << 40)]
        {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "-1M", "1.5G", "12X", "99999999999999999999", "9999999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for bytes in [0, 1, 1023, 1 << 10, 3 << 20, 5 << 30, (1 << 30) + 4096] {
            assert_eq!(parse(&format(bytes)).unwrap(), bytes);
        }
        assert_eq!(format(96 << 20), "96M");
    }
}
