//! The load and its parameters, from bootargs: words `key=value`, one of them `load=`.
//!
//! Nothing is guessed: an unknown load or key, a key given twice and a value out of range are errors that say
//! what is right.

use core::fmt;

use crate::carrier::{Kind, LEAST_CAPACITY};
use crate::messaging::{Messaging, Mode};
use crate::pipes::Pipes;
use crate::shadow::Readv;
use crate::stacktrace::StackTrace;
use crate::syscall::Syscall;

/// What the bootargs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// hackbench.
    Messaging(Messaging),
    /// Costs of single operations.
    Micro {
        /// Which.
        ops: Ops,
        /// How often each.
        n: u32,
    },
    /// All vCPUs wait.
    Idle {
        /// How long.
        milliseconds: u64,
    },
    /// All vCPUs compute.
    Spin {
        /// How long.
        milliseconds: u64,
        /// Whether with interrupts masked.
        masked: bool,
    },
    /// Gives the CPU away over and over: the partner of `vm_switch`.
    Yield {
        /// How often.
        n: u32,
    },
    /// vCPUs that wait for each other across CPUs: see `loads/tick.rs`.
    Tick {
        /// How often.
        rounds: u32,
    },
    /// Resets itself over and over.
    Reset {
        /// How often.
        n: u32,
    },
    /// System calls from EL0.
    Syscall(Syscall),
    /// Vectored reads under shadow memory.
    Readv(Readv),
    /// Pipes opened and closed under shadow memory.
    Pipes(Pipes),
    /// Stack traces in a call tree.
    StackTrace(StackTrace),
    /// Checks of the machine beneath.
    SelfTest {
        /// How the check ends.
        end: End,
    },
}

/// How the self-check ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SYSTEM_OFF from vCPU 0.
    Off,
    /// vCPU 0 goes off, then SYSTEM_OFF from vCPU 1.
    Vcpu1,
    /// One SYSTEM_RESET, then SYSTEM_OFF.
    Reset,
    /// Waits for ever without a timer; SYSTEM_OFF if it is started again nonetheless.
    Hang,
    /// Says what Linux says when it has panicked, and goes on with nothing but its timer; as above.
    Panic,
}

/// The operations of the `micro` load; the order is the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// HVC PSCI_VERSION.
    Hypercall,
    /// Read of GICD_TYPER.
    GicTrap,
    /// Read of the PL011's flag register.
    Mmio,
    /// Read of an ID register.
    SysregTrap,
    /// SGI to oneself, to its handler.
    SgiSelf,
    /// SGI to a spinning vCPU, to its handler.
    Ipi,
    /// SGI to a vCPU in WFI, to its handler.
    IpiWfi,
    /// Timer expiry to its handler, spinning.
    Timer,
    /// Timer expiry to its handler, in WFI.
    TimerWfi,
    /// Acknowledge and complete one interrupt.
    IrqCompletion,
    /// CPU_ON to the vCPU's first instruction.
    CpuOn,
    /// Yield between two VMs on one CPU.
    VmSwitch,
    /// The VMID allocator's fast path.
    VmidFast,
}

impl Op {
    /// All of them, in order.
    pub const ALL: [Op; 13] = [
        Op::Hypercall,
        Op::GicTrap,
        Op::Mmio,
        Op::SysregTrap,
        Op::SgiSelf,
        Op::Ipi,
        Op::IpiWfi,
        Op::Timer,
        Op::TimerWfi,
        Op::IrqCompletion,
        Op::CpuOn,
        Op::VmSwitch,
        Op::VmidFast,
    ];

    /// The name in bootargs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Hypercall => "hypercall",
            Op::GicTrap => "gic_trap",
            Op::Mmio => "mmio",
            Op::SysregTrap => "sysreg_trap",
            Op::SgiSelf => "sgi_self",
            Op::Ipi => "ipi",
            Op::IpiWfi => "ipi_wfi",
            Op::Timer => "timer",
            Op::TimerWfi => "timer_wfi",
            Op::IrqCompletion => "irq_completion",
            Op::CpuOn => "cpu_on",
            Op::VmSwitch => "vm_switch",
            Op::VmidFast => "vmid_fast",
        }
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops(u16);

impl Ops {
    /// Every operation.
    pub const ALL: Ops = Ops((1 << Op::ALL.len()) - 1);

    /// Whether `op` is in the set.
    pub const fn contains(self, op: Op) -> bool {
        self.0 & (1 << op as u8) != 0
    }

    fn parse(value: &str) -> Option<Ops> {
        if value == "all" {
            return Some(Ops::ALL);
        }
        let mut ops = Ops(0);
        for name in value.split(',') {
            let op = Op::ALL.into_iter().find(|op| op.name() == name)?;
            ops.0 |= 1 << op as u8;
        }
        Some(ops)
    }
}

/// What is wrong with the bootargs, and what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentError<'a> {
    /// No `load=`.
    NoLoad,
    /// `load=` names none.
    UnknownLoad(&'a str),
    /// A word that is not `key=value`.
    NotKeyValue(&'a str),
    /// A key that the load doesn't have.
    UnknownKey {
        /// The load.
        load: &'a str,
        /// The key.
        key: &'a str,
        /// The keys that it has.
        known: &'static str,
    },
    /// A key that is there twice.
    Twice(&'a str),
    /// A value that can't be.
    BadValue {
        /// The key.
        key: &'a str,
        /// The value.
        value: &'a str,
        /// What may stand there.
        expected: &'static str,
    },
    /// More tasks than the kernel can name.
    TooManyTasks,
}

const LOADS: &str =
    "messaging, micro, idle, spin, yield, tick, reset, syscall, readv, pipes, stacktrace, selftest";

impl fmt::Display for ArgumentError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentError::NoLoad => write!(f, "bootargs name no load: say load=NAME, one of {LOADS}"),
            ArgumentError::UnknownLoad(name) => write!(f, "unknown load '{name}': there are {LOADS}"),
            ArgumentError::NotKeyValue(word) => write!(f, "bootargs word '{word}' is not key=value"),
            ArgumentError::UnknownKey { load, key, known } => {
                write!(f, "load {load} has no parameter '{key}': it has {known}")
            }
            ArgumentError::Twice(key) => write!(f, "parameter '{key}' is given twice"),
            ArgumentError::BadValue { key, value, expected } => {
                write!(f, "parameter {key}={value}: it must be {expected}")
            }
            ArgumentError::TooManyTasks => {
                write!(f, "2 x groups x fds may be at most {}", crate::messaging::MAX_WORKERS)
            }
        }
    }
}

impl Load {
    /// Reads bootargs.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(arguments: &str) -> Result<Load, ArgumentError<'_>> {
        let words = || arguments.split_whitespace();
        for (i, word) in words().enumerate() {
            let (key, _) = word.split_once('=').ok_or(ArgumentError::NotKeyValue(word))?;
            if words().take(i).any(|other| other.split_once('=').is_some_and(|(k, _)| k == key)) {
                return Err(ArgumentError::Twice(key));
            }
        }
        let pairs = || words().filter_map(|word| word.split_once('='));
        let name = pairs().find(|(key, _)| *key == "load").ok_or(ArgumentError::NoLoad)?.1;
        let (mut load, known) = match name {
            "messaging" => (
                Load::Messaging(Messaging::default()),
                "groups, fds, loops, size, mode, carrier, runs, pause_us, buffer, tick_us, preempt_us, details",
            ),
            "micro" => (Load::Micro { ops: Ops::ALL, n: 1000 }, "ops, n"),
            "idle" => (Load::Idle { milliseconds: 1000 }, "seconds"),
            "spin" => (Load::Spin { milliseconds: 1000, masked: false }, "seconds, masked"),
            "yield" => (Load::Yield { n: 100_000 }, "n"),
            "tick" => (Load::Tick { rounds: 100 }, "rounds"),
            "reset" => (Load::Reset { n: 100 }, "n"),
            "syscall" => (Load::Syscall(Syscall::default()), "isolation, call, n, pad"),
            "readv" => (Load::Readv(Readv::default()), "checking, size, n, threads"),
            "pipes" => (Load::Pipes(Pipes::default()), "pipes, n, threads, checking, poisoned, allocator"),
            "stacktrace" => (Load::StackTrace(StackTrace::default()), "n, depth, work, pauth"),
            "selftest" => (Load::SelfTest { end: End::Off }, "end"),
            _ => return Err(ArgumentError::UnknownLoad(name)),
        };
        for (key, value) in pairs().filter(|(key, _)| !["load", "console"].contains(key)) {
            if let Some(expected) = set(&mut load, key, value) {
                return Err(if expected.is_empty() {
                    ArgumentError::UnknownKey { load: name, key, known }
                } else {
                    ArgumentError::BadValue { key, value, expected }
                });
            }
        }
        match &load {
            Load::Messaging(m) if m.workers().is_none() => Err(ArgumentError::TooManyTasks),
            _ => Ok(load),
        }
    }
}

/// Sets one parameter. `Some("")`: there is no such key; `Some(text)`: the value must be what the text says.
fn set(load: &mut Load, key: &str, value: &str) -> Option<&'static str> {
    match (load, key) {
        (Load::Messaging(m), _) => return set_messaging(m, key, value),
        (Load::Syscall(s), _) => return s.set(key, value),
        (Load::Readv(r), _) => return r.set(key, value),
        (Load::Pipes(p), _) => return p.set(key, value),
        (Load::StackTrace(s), _) => return s.set(key, value),
        (Load::Micro { ops, .. }, "ops") => match Ops::parse(value) {
            Some(parsed) => *ops = parsed,
            None => return Some("'all' or names of operations with commas between"),
        },
        (Load::Micro { n, .. }, "n") => return number(value, 1, 10_000_000, "1 to 10000000", n),
        (Load::Yield { n }, "n") => return number(value, 1, u32::MAX, "1 to 4294967295", n),
        (Load::Tick { rounds }, "rounds") => return number(value, 1, 1_000_000, "1 to 1000000", rounds),
        (Load::Reset { n }, "n") => return number(value, 1, 1_000_000, "1 to 1000000", n),
        (Load::Idle { milliseconds }, "seconds") => return seconds(value, milliseconds),
        (Load::Spin { milliseconds, .. }, "seconds") => return seconds(value, milliseconds),
        (Load::Spin { masked, .. }, "masked") => match value {
            "on" => *masked = true,
            "off" => *masked = false,
            _ => return Some("on or off"),
        },
        (Load::SelfTest { end }, "end") => match value {
            "off" => *end = End::Off,
            "vcpu1" => *end = End::Vcpu1,
            "reset" => *end = End::Reset,
            "hang" => *end = End::Hang,
            "panic" => *end = End::Panic,
            _ => return Some("off, vcpu1, reset, hang or panic"),
        },
        _ => return Some(""),
    }
    None
}

fn set_messaging(m: &mut Messaging, key: &str, value: &str) -> Option<&'static str> {
    match key {
        "groups" => return number(value, 1, 1000, "1 to 1000", &mut m.groups),
        "fds" => return number(value, 1, 1000, "1 to 1000", &mut m.fds),
        "loops" => return number(value, 1, 1_000_000, "1 to 1000000", &mut m.loops),
        "size" => return number(value, 1, 1 << 20, "1 to 1048576 bytes", &mut m.size),
        "runs" => return number(value, 1, 10_000, "1 to 10000", &mut m.runs),
        "pause_us" => return number(value, 0, 10_000_000, "0 to 10000000 microseconds", &mut m.pause_us),
        "tick_us" => return number(value, 100, 1_000_000, "100 to 1000000 microseconds", &mut m.tick_us),
        "preempt_us" if value == "off" => m.preempt_us = None,
        "preempt_us" => {
            let mut granularity = 0;
            let bad = number(value, 0, 1_000_000, "off, or 0 to 1000000 microseconds", &mut granularity);
            m.preempt_us = Some(granularity);
            return bad;
        }
        "buffer" => {
            let mut buffer = 0;
            let bad = number(value, LEAST_CAPACITY as u32, 1 << 24, "4096 to 16777216 bytes", &mut buffer);
            m.buffer = bad.is_none().then_some(buffer);
            return bad;
        }
        "details" => match value {
            "on" => m.details = true,
            "off" => m.details = false,
            _ => return Some("on or off"),
        },
        "mode" => match value {
            "process" => m.mode = Mode::Process,
            "thread" => m.mode = Mode::Thread,
            _ => return Some("process or thread"),
        },
        "carrier" => match value {
            "socket" => m.carrier = Kind::Socket,
            "pipe" => m.carrier = Kind::Pipe,
            _ => return Some("socket or pipe"),
        },
        _ => return Some(""),
    }
    None
}

/// A number within a range, or what the range is.
pub(crate) fn number(
    value: &str,
    min: u32,
    max: u32,
    range: &'static str,
    out: &mut u32,
) -> Option<&'static str> {
    match value.parse() {
        Ok(n) if (min..=max).contains(&n) => {
            *out = n;
            None
        }
        _ => Some(range),
    }
}

/// Seconds with up to three decimals.
fn seconds(value: &str, milliseconds: &mut u64) -> Option<&'static str> {
    const RANGE: &str = "0 to 86400 seconds";
    let (whole, part) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return Some(RANGE);
    }
    let thousandths = part.parse::<u64>().unwrap_or(0) * 10u64.pow(3 - part.len() as u32);
    let total = whole.parse::<u64>().ok().and_then(|s| s.checked_mul(1000)).map(|ms| ms + thousandths);
    match total {
        Some(ms) if (0..=86_400_000).contains(&ms) => {
            *milliseconds = ms;
            None
        }
        _ => Some(RANGE),
    }
}

#[cfg(test)]
mod tests;
