//! What the plugin is told: `-plugin FILE,base=0x40200000,size=0x6c000,vectors=0x800,instructions=off,out=FILE`.

use std::path::PathBuf;

/// The plugin's arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum Arguments {
    /// `probe=on`: only see whether QEMU takes the plugin.
    Probe,
    /// Count.
    Count {
        /// Where the image is started.
        base: u64,
        /// Bytes of it.
        size: u64,
        /// Where the table of vectors is, from the image's start.
        vectors: u64,
        /// Whether instructions at EL2 are counted, too (`instructions=on`).
        instructions: bool,
        /// The file to write.
        out: PathBuf,
    },
}

impl Arguments {
    /// Reads `name=value` pairs.
    ///
    /// # Errors
    /// One that is missing, unknown, or no number; the message is for whoever starts QEMU by hand.
    pub fn read<'a>(pairs: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let (mut base, mut size, mut vectors, mut out) = (None, None, None, None);
        let (mut probe, mut instructions) = (false, false);
        for pair in pairs {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("{pair}: name=value is needed"))?;
            let number = || {
                let digits = value.strip_prefix("0x").ok_or("");
                let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).map_err(|_| ""));
                number.map_err(|_| format!("{name}={value}: a number such as 0x40200000 is needed"))
            };
            match name {
                "base" => base = Some(number()?),
                "size" => size = Some(number()?),
                "vectors" => vectors = Some(number()?),
                "out" => out = Some(PathBuf::from(value)),
                "instructions" => instructions = value == "on",
                "probe" => probe = value == "on",
                _ => {
                    return Err(format!(
                        "{name}: unknown; there are base, size, vectors, instructions, out and probe"
                    ));
                }
            }
        }
        if probe {
            return Ok(Arguments::Probe);
        }
        let missing = |name: &str| format!("{name}= is missing");
        Ok(Arguments::Count {
            base: base.ok_or_else(|| missing("base"))?,
            size: size.ok_or_else(|| missing("size"))?,
            vectors: vectors.ok_or_else(|| missing("vectors"))?,
            instructions,
            out: out.ok_or_else(|| missing("out"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Arguments, String> {
        Arguments::read(text.split(',').filter(|pair| !pair.is_empty()))
    }

    #[test]
    fn all_four_are_needed() {
        let expected = |instructions| Arguments::Count {
            base: 0x4020_0000,
            size: 0x1000,
            vectors: 0x800,
            instructions,
            out: "o.json".into(),
        };
        let all = "base=0x40200000,size=0x1000,vectors=0x800,out=o.json";
        assert_eq!(read(all), Ok(expected(false)));
        assert_eq!(read(&format!("{all},instructions=on")), Ok(expected(true)));
        assert_eq!(read("probe=on"), Ok(Arguments::Probe));
        for (text, message) in [
            ("", "base= is missing"),
            ("base=0x1,size=0x1,vectors=0x1", "out= is missing"),
            ("base=7", "base=7: a number"),
            ("base=0xno", "base=0xno: a number"),
            ("basis=0x7", "basis: unknown"),
            ("base", "base: name=value"),
        ] {
            assert!(read(text).unwrap_err().starts_with(message), "{text}");
        }
    }
}
