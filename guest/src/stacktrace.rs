//! The `stacktrace` load's parameters.

use crate::arguments::number;

/// Deepest tree.
pub const MAX_DEPTH: u32 = 64;

/// What a tree does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Keeps a shadow call stack, does no other work and records nothing.
    Floor,
    /// Works and records nothing.
    None,
    /// Works and records along the frame pointers.
    Frames,
    /// Works and records from a shadow call stack.
    Shadow,
}

impl Method {
    /// All of them, in the order in which they run.
    pub const ALL: [Method; 4] = [Method::Floor, Method::None, Method::Frames, Method::Shadow];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Floor => "floor",
            Method::None => "none",
            Method::Frames => "frames",
            Method::Shadow => "shadow",
        }
    }
}

/// The load's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackTrace {
    /// Calls of each tree.
    pub n: u32,
    /// Functions in one another.
    pub depth: u32,
    /// Instructions of other work in each leaf.
    pub work: u32,
    /// Whether return addresses are signed.
    pub signed: bool,
}

impl Default for StackTrace {
    fn default() -> Self {
        StackTrace { n: 10_000, depth: 16, work: 1000, signed: false }
    }
}

impl StackTrace {
    /// Sets one parameter; the result is as that of `arguments::set`.
    pub fn set(&mut self, key: &str, value: &str) -> Option<&'static str> {
        match key {
            "n" => return number(value, 1, 1_000_000_000, "1 to 1000000000", &mut self.n),
            "depth" => return number(value, 1, MAX_DEPTH, "1 to 64 functions", &mut self.depth),
            "work" => return number(value, 0, 1_000_000, "0 to 1000000 instructions", &mut self.work),
            "pauth" => match value {
                "on" => self.signed = true,
                "off" => self.signed = false,
                _ => return Some("on or off"),
            },
            _ => return Some(""),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::arguments::Load;

    use super::*;

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        assert_eq!(Load::parse("load=stacktrace"), Ok(Load::StackTrace(StackTrace::default())));
        let expected = StackTrace { n: 5, depth: 64, work: 0, signed: true };
        let text = "load=stacktrace n=5 depth=64 work=0 pauth=on";
        assert_eq!(Load::parse(text), Ok(Load::StackTrace(expected)));
        for (bad, right) in [
            ("depth=65", "1 to 64"),
            ("depth=0", "1 to 64"),
            ("pauth=maybe", "on or off"),
            ("work=-1", "0 to 1000000"),
            ("unwind=fp", "n, depth, work, pauth"),
        ] {
            let text = format!("load=stacktrace {bad}");
            let message = Load::parse(&text).unwrap_err().to_string();
            assert!(message.contains(right), "{message}");
        }
    }
}
