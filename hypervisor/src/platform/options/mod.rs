//! The hypervisor's options: words `key=value` of the machine's command line (`/chosen/bootargs`).
//!
//! | option | values | default |
//! |---|---|---|
//! | `vmid.policy` | `clear`, `tri-state`, `reclaim`, `v3-no-clear`, `v3-clear-zero`, `merged`, `global` | `clear` |
//! | `vmid.flush` | `broadcast`, `local`: how VMIDs become fit for another VM | `local` for `reclaim`, else `broadcast` |
//! | `vmid.victim` | `adaptive`, `newest`, `lru`, `random`, `clock`: whose VMID `reclaim` takes | `adaptive` |
//! | `vmid.batch` | 1 to 64: how many VMIDs `reclaim` takes at a time | 1 |
//! | `vmid.bits` | 4 to 16 | what the CPUs have |
//! | `vmid.ghost` | `on`, `off`: a ghost of the TLBs checks that no VM meets another's entries, and counts warm and cold entries | `off` |
//! | `sched.slice_us` | 100 to 10,000,000 microseconds | 10,000 |
//! | `sched.vmid_affinity` | 0 (off) to 64: how often a vCPU may be passed over for one whose VM has a VMID | 0 |
//! | `sched.seed` | a number: the VMs start in an order that it shuffles; 0: in the bundle's | 0 |
//! | `report.period_ms` | 0 (only at the end) to 86,400,000 milliseconds | 0 |
//! | `console.prefix` | `on`, `off` | `on` |
//! | `stats.histograms` | `on`, `off` | `on` |
//! | `trace` | `on`, `off`, `serial`: whether the CPUs record events, and write them to the console at the end (docs/trace.md) | `off` |
//! | `trace.kib` | 4 to 65,536, a power of two: KiB of each CPU's ring, 64 events each | 1024 |
//! | `vm.merge` | `on`, `off`: whether VMs that boot one kernel have pages in common that they rewrote alike and execute | `on` |
//! | `vm.watchdog_ms` | 0 (off) to 86,400,000 milliseconds without an exit and without a timer, after which a VM is ended | 0 |
//! | `vm.watchdog` | `end`, `restart`: what becomes of a VM that the watchdog has found | `end` |
//! | `vm.panic` | `end`, `restart`: what becomes of a VM whose Linux has panicked and does not restart itself; `ignore` | `end` |
//! | `vm.until` | up to 64 characters, of which `_` stands for a space, too: a VM has ended when its guest has written this to its console | nothing |
//! | `debug.fault` | `panic`, `null`, `write-code`, `run-data`, `overflow`, `differ`, `no-tlbi`: what EL2 does wrong once it has booted (`differ`: while other CPUs start; `no-tlbi`: whenever a VMID changes hands), to see the report | nothing |
//!
//! A wrong value or an unknown key in one of these namespaces is an error, not a default: a measurement
//! must not run with something else than what was asked for. Other words are left to whoever they are for.

mod values;

use core::fmt;
use core::str::FromStr;

use arrayvec::ArrayString;

use crate::platform::console::Words;
use crate::trace::Layout;
use crate::vmid::{Config, Flush, MAX_BATCH, Policy, Victim};

pub use values::{Afterwards, DebugFault, Tracing};

/// The namespaces whose keys must all be known.
const NAMESPACES: [&str; 8] = ["vm", "vmid", "sched", "report", "console", "stats", "trace", "debug"];

/// The largest ring of events, in KiB.
const MOST_TRACE_KIB: u32 = ((Layout::MOST_ENTRIES * Layout::ENTRY_BYTES) >> 10) as u32;

/// What the command line asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How VMIDs are given.
    pub vmid: Config,
    /// Use fewer VMID bits than the CPUs have.
    pub vmid_bits: Option<u8>,
    /// Length of a time slice in microseconds.
    pub slice_us: u32,
    /// How often a vCPU may be passed over for one whose VM has a VMID; 0: never.
    pub vmid_affinity: u8,
    /// Shuffles the order in which VMs start; 0: they start in the bundle's.
    pub seed: u32,
    /// Time between two reports in milliseconds; 0: only at the end.
    pub report_period_ms: u32,
    /// Whether a guest's lines carry its name.
    pub console_prefix: bool,
    /// Whether the report has histograms.
    pub histograms: bool,
    /// Whether copies of a kernel's pages that are alike and executed become common ones.
    pub merge: bool,
    /// Milliseconds after which a VM that shows no sign of life is ended; 0: never.
    pub watchdog_ms: u32,
    /// What becomes of such a VM.
    pub watchdog: Afterwards,
    /// What becomes of a VM whose kernel has panicked; `None`: nothing.
    pub panic: Option<Afterwards>,
    /// What a guest has said when its VM has come far enough and ends; empty: nothing. Written with `_` for spaces.
    pub until: Words,
    /// A ghost of the TLBs looks on.
    pub ghost: bool,
    /// Whether the CPUs record events, and where these go.
    pub trace: Tracing,
    /// KiB of each CPU's ring of events.
    pub trace_kib: u32,
    /// What EL2 does wrong, on purpose.
    pub fault: Option<DebugFault>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            vmid: Config::default(),
            vmid_bits: None,
            slice_us: 10_000,
            vmid_affinity: 0,
            seed: 0,
            report_period_ms: 0,
            console_prefix: true,
            histograms: true,
            merge: true,
            watchdog_ms: 0,
            watchdog: Afterwards::End,
            panic: Some(Afterwards::End),
            until: Words::new_const(),
            ghost: false,
            trace: Tracing::Off,
            trace_kib: 1024,
            fault: None,
        }
    }
}

/// An option that can't be followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// The key as it was given, cut off where it is very long.
    pub key: ArrayString<32>,
    /// The value as it was given, cut off where it is very long.
    pub value: ArrayString<32>,
    /// What would be right.
    pub remedy: &'static str,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {}={}: {}", self.key, self.value, self.remedy)
    }
}

impl core::error::Error for OptionError {}

impl Options {
    /// Reads the options in `bootargs`; of a key that comes twice the last one counts.
    ///
    /// # Errors
    /// A key of ours is unknown, or its value isn't one of those in the table.
    pub fn parse(bootargs: &str) -> Result<Options, OptionError> {
        let mut options = Options::default();
        for (key, value) in bootargs.split_ascii_whitespace().filter_map(own_option) {
            options.set(key, value).map_err(|remedy| OptionError {
                key: cut(key),
                value: cut(value),
                remedy,
            })?;
        }
        Ok(options)
    }

    /// The words of `bootargs` that aren't options of ours, for a note in the log.
    pub fn ignored(bootargs: &str) -> impl Iterator<Item = &str> {
        bootargs.split_ascii_whitespace().filter(|word| own_option(word).is_none())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        match key {
            "vmid.policy" => {
                let remedy =
                    "one of clear, tri-state, reclaim, v3-no-clear, v3-clear-zero, merged, global is needed";
                self.vmid.policy = Policy::parse(value).map_err(|_| remedy)?;
            }
            "vmid.flush" => {
                self.vmid.flush = Some(Flush::parse(value).ok_or("broadcast or local is needed")?);
            }
            "vmid.victim" => {
                let remedy = "adaptive, newest, lru, random or clock is needed";
                self.vmid.victim = Victim::parse(value).ok_or(remedy)?;
            }
            "vmid.batch" => {
                self.vmid.batch = number(value, 1, MAX_BATCH).ok_or("a number from 1 to 64 is needed")?;
            }
            "vmid.ghost" => self.ghost = switch(value).ok_or(SWITCH)?,
            "sched.vmid_affinity" => {
                self.vmid_affinity = number(value, 0, 64).ok_or("a number from 0 (off) to 64 is needed")?;
            }
            "vmid.bits" => {
                self.vmid_bits = Some(number(value, 4, 16).ok_or("a number from 4 to 16 is needed")?);
            }
            "sched.slice_us" => {
                let remedy = "microseconds from 100 to 10000000 are needed";
                self.slice_us = number(value, 100, 10_000_000).ok_or(remedy)?;
            }
            "sched.seed" => {
                self.seed = number(value, 0, u32::MAX).ok_or("a number from 0 to 4294967295 is needed")?;
            }
            "report.period_ms" => {
                let remedy = "milliseconds from 0 (only at the end) to 86400000 are needed";
                self.report_period_ms = number(value, 0, 86_400_000).ok_or(remedy)?;
            }
            "vm.merge" => self.merge = switch(value).ok_or(SWITCH)?,
            "vm.watchdog_ms" => {
                let remedy = "milliseconds from 0 (off) to 86400000 are needed";
                self.watchdog_ms = number(value, 0, 86_400_000).ok_or(remedy)?;
            }
            "vm.watchdog" => self.watchdog = Afterwards::parse(value).ok_or("end or restart is needed")?,
            "vm.panic" if value == "ignore" => self.panic = None,
            "vm.panic" => {
                self.panic = Some(Afterwards::parse(value).ok_or("end, restart or ignore is needed")?);
            }
            "vm.until" => {
                let remedy = "1 to 64 printable ASCII characters are needed, `_` for a space";
                let fits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
                self.until = Words::from(value).ok().filter(|_| fits).ok_or(remedy)?;
            }
            "trace" => self.trace = Tracing::parse(value).ok_or("on, off or serial is needed")?,
            "trace.kib" => {
                let remedy = "a power of two from 4 to 65536 is needed";
                self.trace_kib = number(value, 4, MOST_TRACE_KIB)
                    .filter(|kib: &u32| kib.is_power_of_two())
                    .ok_or(remedy)?;
            }
            "console.prefix" => self.console_prefix = switch(value).ok_or(SWITCH)?,
            "debug.fault" => {
                let remedy = "panic, null, write-code, run-data, overflow, differ or no-tlbi is needed";
                self.fault = Some(DebugFault::parse(value).ok_or(remedy)?);
            }
            "stats.histograms" => self.histograms = switch(value).ok_or(SWITCH)?,
            _ => {
                return Err(
                    "no such option; there are vmid.policy, vmid.bits, vmid.flush, vmid.victim, vmid.batch, vmid.ghost, \
                            sched.slice_us, sched.vmid_affinity, sched.seed, report.period_ms, console.prefix, \
                            stats.histograms, trace, trace.kib, vm.merge, vm.watchdog_ms, vm.watchdog, vm.panic, vm.until and debug.fault",
                );
            }
        }
        Ok(())
    }
}

const SWITCH: &str = "on or off is needed";

/// The key and value of a word that is `trace`, or in one of our namespaces; a word without `=` has an empty value.
fn own_option(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let is_ours = |namespace: &str| NAMESPACES.contains(&namespace);
    let ours = key.split_once('.').map_or(key == "trace", |(namespace, _)| is_ours(namespace));
    ours.then_some((key, value))
}

fn number<T: FromStr + PartialOrd>(text: &str, least: T, most: T) -> Option<T> {
    // `parse` would take a sign.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| plain && (least..=most).contains(number))
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// As much of `text` as fits.
fn cut<const N: usize>(text: &str) -> ArrayString<N> {
    let mut cut = ArrayString::new();
    // An error only says that the rest didn't fit.
    let _ = text.chars().try_for_each(|c| cut.try_push(c));
    cut
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn defaults_without_options() {
        assert_eq!(Options::parse(""), Ok(Options::default()));
        assert_eq!(Options::parse("quiet root=/dev/vda x.y=z vmid=3"), Ok(Options::default()));
    }

    #[test]
    fn every_option_is_read() {
        let text = "vmid.policy=v3-clear-zero vmid.flush=local vmid.victim=lru vmid.batch=7 vmid.ghost=on sched.vmid_affinity=4 \
                    vmid.bits=4  sched.slice_us=500\tsched.seed=7 trace=serial trace.kib=64 debug.fault=null report.period_ms=1000 \
                    console.prefix=off stats.histograms=off vm.merge=off vm.watchdog_ms=250 vm.watchdog=restart vm.panic=restart vm.until=Run_/init";
        let expected = Options {
            vmid: Config {
                policy: Policy::parse("v3-clear-zero").unwrap(),
                flush: Some(Flush::Local),
                victim: Victim::Lru,
                batch: 7,
            },
            vmid_affinity: 4,
            vmid_bits: Some(4),
            slice_us: 500,
            seed: 7,
            merge: false,
            watchdog_ms: 250,
            watchdog: Afterwards::Restart,
            panic: Some(Afterwards::Restart),
            until: Words::from("Run_/init").unwrap(),
            ghost: true,
            trace: Tracing::Serial,
            trace_kib: 64,
            fault: Some(DebugFault::Null),
            report_period_ms: 1000,
            console_prefix: false,
            histograms: false,
        };
        assert_eq!(Options::parse(text), Ok(expected));
    }

    #[test]
    fn a_panic_can_be_left_to_the_guest() {
        assert_eq!(Options::parse("").unwrap().panic, Some(Afterwards::End));
        assert_eq!(Options::parse("vm.panic=ignore").unwrap().panic, None);
    }

    #[test]
    fn the_last_of_two_counts() {
        assert_eq!(Options::parse("vmid.bits=4 vmid.bits=8").unwrap().vmid_bits, Some(8));
    }

    #[test]
    fn a_wrong_value_names_key_value_and_remedy() {
        let cases = [
            ("vmid.policy=never", "clear"),
            ("vmid.flush=never", "broadcast or local"),
            ("vmid.victim=oldest", "newest"),
            ("vmid.batch=0", "1 to 64"),
            ("sched.vmid_affinity=65", "0 (off) to 64"),
            ("vmid.bits=3", "4 to 16"),
            ("vmid.bits=17", "4 to 16"),
            ("vmid.bits=+8", "4 to 16"),
            ("vmid.bits=99999999999999999999999", "4 to 16"),
            ("sched.slice_us=0", "100"),
            ("sched.seed=x", "a number"),
            ("debug.fault=all", "write-code"),
            ("report.period_ms=-1", "milliseconds"),
            ("console.prefix=yes", "on or off"),
            ("console.prefix", "on or off"),
            ("stats.histograms=", "on or off"),
            ("vmid.bit=8", "vmid.bits"),
            ("vm.merge=1", "on or off"),
            ("vm.watchdog_ms=forever", "0 (off)"),
            ("vm.watchdog=1", "end or restart"),
            ("vm.panic=on", "ignore"),
            ("vm.until=", "1 to 64"),
            ("vm.until=\u{e9}t\u{e9}", "ASCII"),
            ("vm.watch=1", "vm.watchdog_ms"),
            ("trace=yes", "on, off or serial"),
            ("trace", "on, off or serial"),
            ("trace.kib=100", "a power of two"),
            ("trace.kib=131072", "to 65536"),
            ("trace.ring=on", "no such option"),
        ];
        for (text, remedy) in cases {
            let message = Options::parse(text).unwrap_err().to_string();
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            assert!(message.contains(key) && message.contains(&value[..value.len().min(32)]), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn other_words_are_listed() {
        let words: Vec<&str> = Options::ignored("quiet vmid.bits=8 root=/dev/vda").collect();
        assert_eq!(words, ["quiet", "root=/dev/vda"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = Options::parse(&text).map_err(|error| error.to_string());
        }

        #[test]
        fn no_key_or_value_panics(key in "(vm|vmid|sched|report|console|stats|trace)\\.[a-z_é]{0,40}", value in "\\PC{0,60}") {
            let _ = Options::parse(&format!("{key}={value}")).map_err(|error| error.to_string());
        }
    }
}
