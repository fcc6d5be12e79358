//! How much the guest writes to its console: `console=on`, `reduced` or `off` in the bootargs, beside a load's own parameters.

/// What of its records the guest writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// All.
    On,
    /// Its end, and what is wrong.
    Reduced,
    /// Nothing.
    Off,
}

impl Output {
    /// What the bootargs say; `None`: a value that there isn't.
    pub fn of(bootargs: &str) -> Option<Self> {
        match bootargs.split_whitespace().find_map(|word| word.strip_prefix("console=")) {
            None | Some("on") => Some(Self::On),
            Some("reduced") => Some(Self::Reduced),
            Some("off") => Some(Self::Off),
            Some(_) => None,
        }
    }

    /// Whether records of this kind are written.
    pub fn shows(self, kind: &str) -> bool {
        match self {
            Self::On => true,
            Self::Reduced => matches!(kind, "end" | "error"),
            Self::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootargs_say_how_much_is_written() {
        assert_eq!(Output::of("load=idle"), Some(Output::On));
        assert_eq!(Output::of("load=idle console=on"), Some(Output::On));
        assert_eq!(Output::of("console=reduced load=idle"), Some(Output::Reduced));
        assert_eq!(Output::of("load=idle console=off"), Some(Output::Off));
        assert_eq!(Output::of("load=idle console=ttyAMA0"), None);
    }

    #[test]
    fn reduced_leaves_what_tells_how_it_went() {
        let shown = |output: Output| ["readv", "end", "error"].map(|kind| output.shows(kind));
        assert_eq!(shown(Output::On), [true; 3]);
        assert_eq!(shown(Output::Reduced), [false, true, true]);
        assert_eq!(shown(Output::Off), [false; 3]);
    }
}
