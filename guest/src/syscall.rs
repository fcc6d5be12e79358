//! The `syscall` load's parameters: which arrangement of maps, which call, how often.

use crate::arguments::number;

/// Whether the kernel is in the map while the user's program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// One map; the kernel's pages are closed to EL0 by their permissions alone.
    Off,
    /// The program's map lacks the kernel; the table is switched at each entry and exit.
    On,
    /// As `On`, but a call that needs nothing of the kernel's map is answered without a switch.
    Deferred,
}

impl Isolation {
    /// All of them.
    pub const ALL: [Isolation; 3] = [Isolation::Off, Isolation::On, Isolation::Deferred];

    /// The name in bootargs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::Off => "off",
            Isolation::On => "on",
            Isolation::Deferred => "deferred",
        }
    }
}

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Call {
    /// Answers with a number, as getppid does.
    Null = 0,
    /// Needs the kernel's full map and computes for a while.
    Padded = 1,
}

impl Call {
    /// Both.
    pub const ALL: [Call; 2] = [Call::Null, Call::Padded];

    /// The name in bootargs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Null => "null",
            Call::Padded => "padded",
        }
    }
}

/// The load's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syscall {
    /// One arrangement; none: one after the other.
    pub isolation: Option<Isolation>,
    /// One call; none: both.
    pub call: Option<Call>,
    /// How often.
    pub n: u32,
    /// Instructions of the padded call's computation.
    pub pad: u32,
}

impl Default for Syscall {
    fn default() -> Self {
        Syscall { isolation: None, call: None, n: 10_000_000, pad: 2000 }
    }
}

impl Syscall {
    /// Sets one parameter; the result is as that of `arguments::set`.
    pub fn set(&mut self, key: &str, value: &str) -> Option<&'static str> {
        match key {
            "n" => return number(value, 1, 1_000_000_000, "1 to 1000000000", &mut self.n),
            "pad" => return number(value, 2, 1_000_000, "2 to 1000000 instructions", &mut self.pad),
            "isolation" if value == "all" => self.isolation = None,
            "isolation" => {
                self.isolation = Isolation::ALL.into_iter().find(|isolation| isolation.name() == value);
                return self.isolation.is_none().then_some("off, on, deferred or all");
            }
            "call" if value == "all" => self.call = None,
            "call" => {
                self.call = Call::ALL.into_iter().find(|call| call.name() == value);
                return self.call.is_none().then_some("null, padded or all");
            }
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
    fn defaults_are_the_experiments() {
        let expected = Syscall { isolation: None, call: None, n: 10_000_000, pad: 2000 };
        assert_eq!(Load::parse("load=syscall"), Ok(Load::Syscall(expected)));
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        let expected =
            Syscall { isolation: Some(Isolation::Deferred), call: Some(Call::Padded), n: 5, pad: 100 };
        let text = "load=syscall isolation=deferred call=padded n=5 pad=100";
        assert_eq!(Load::parse(text), Ok(Load::Syscall(expected)));
        for (bad, right) in [
            ("isolation=kpti", "deferred or all"),
            ("call=getppid", "null, padded or all"),
            ("n=0", "1 to 1000000000"),
            ("pad=1", "2 to 1000000"),
            ("loops=1", "isolation, call, n, pad"),
        ] {
            let text = format!("load=syscall {bad}");
            let message = Load::parse(&text).unwrap_err().to_string();
            assert!(message.contains(right), "{message}");
        }
    }
}
