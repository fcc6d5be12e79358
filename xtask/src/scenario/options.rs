//! The hypervisor's options: which there are, and what each takes.

use super::Scenario;
use super::problem::{Problem, did_you_mean};

/// An option that the hypervisor knows, and what it takes.
enum Takes {
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number between these.
    Number(u64, u64),
    /// So many printable ASCII characters at most, at least one; no space.
    Text(usize),
}

/// The hypervisor's VMID policies, those of the published comparison first.
pub const POLICIES: &[&str] =
    &["v3-no-clear", "v3-clear-zero", "clear", "tri-state", "merged", "global", "reclaim"];

/// KiB of a CPU's ring of events.
const TRACE_KIB: [&str; 15] = [
    "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768",
    "65536",
];
/// The hypervisor's options.
const OPTIONS: &[(&str, Takes)] = &[
    ("vmid.policy", Takes::Word(POLICIES)),
    ("vmid.bits", Takes::Number(4, 16)),
    ("vmid.flush", Takes::Word(&["broadcast", "local"])),
    ("vmid.victim", Takes::Word(&["adaptive", "newest", "lru", "random", "clock"])),
    ("vmid.batch", Takes::Number(1, 64)),
    ("vmid.ghost", Takes::Word(&["on", "off"])),
    ("sched.slice_us", Takes::Number(100, 10_000_000)),
    ("sched.vmid_affinity", Takes::Number(0, 64)),
    ("sched.seed", Takes::Number(0, 4_294_967_295)),
    ("report.period_ms", Takes::Number(0, 86_400_000)),
    ("console.prefix", Takes::Word(&["on", "off"])),
    ("stats.histograms", Takes::Word(&["on", "off"])),
    ("trace", Takes::Word(&["on", "off", "serial"])),
    ("trace.kib", Takes::Word(&TRACE_KIB)),
    ("vm.merge", Takes::Word(&["on", "off"])),
    ("vm.watchdog_ms", Takes::Number(0, 86_400_000)),
    ("vm.watchdog", Takes::Word(&["end", "restart"])),
    ("vm.panic", Takes::Word(&["end", "restart", "ignore"])),
    ("vm.until", Takes::Text(64)),
    (
        "debug.fault",
        Takes::Word(&["panic", "null", "write-code", "run-data", "overflow", "differ", "no-tlbi"]),
    ),
];

/// Checks the options of a scenario, those of the hypervisor.
pub fn check(scenario: &Scenario, problems: &mut Vec<Problem>) {
    for (key, value) in &scenario.options {
        let path = format!("options.{key}");
        let Some((_, takes)) = OPTIONS.iter().find(|(known, _)| known == key) else {
            let known: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).collect();
            let remedy = match did_you_mean(key, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the options are {}", known.join(", ")),
            };
            problems.push(Problem::new(path, "the hypervisor has no such option", remedy));
            continue;
        };
        match takes {
            Takes::Word(words) if !words.contains(&value.as_str()) => {
                let near = did_you_mean(value, words).map(|near| format!(" (did you mean {near}?)"));
                let remedy = format!("write {}{}", words.join(" or "), near.unwrap_or_default());
                problems.push(Problem::new(path, format!("\"{value}\" is not among its values"), remedy));
            }
            Takes::Number(low, high) if !number(value).is_some_and(|n| (*low..=*high).contains(&n)) => {
                let what = format!("\"{value}\" is not a whole number from {low} to {high}");
                problems.push(Problem::new(path, what, format!("write a number from {low} to {high}")));
            }
            Takes::Text(most)
                if !(1..=*most).contains(&value.len())
                    || !value.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                let what =
                    format!("\"{value}\" is not of 1 to {most} printable ASCII characters without spaces");
                problems.push(Problem::new(path, what, "write `_` for a space, and fewer characters"));
            }
            _ => {}
        }
    }
    let option =
        |name: &str| scenario.options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    if option("vmid.policy") == Some("merged") && option("vmid.flush") == Some("local") {
        problems.push(Problem::new(
            "options.vmid.flush",
            "the policy merged may lose a rollover, and with it a local flush",
            "take broadcast, or another policy",
        ));
    }
    let bits = option("vmid.bits").and_then(|value| value.parse().ok());
    // VMID 0 is never given to a VM, and each CPU may hold one while the pool is renewed.
    let usable = (1u64 << bits.unwrap_or(8u32).min(16)) - 1;
    let cpus = u64::from(scenario.machine.cpus);
    if bits.is_some_and(|bits| (4..=16).contains(&bits)) && usable <= cpus {
        let enough = (cpus + 2).next_power_of_two().trailing_zeros();
        problems.push(Problem::new(
            "options.vmid.bits",
            format!("{usable} usable VMIDs are not more than the {cpus} CPUs, each of which may hold one"),
            format!("take at least {enough} bits, or at most {} CPUs", usable - 1),
        ));
    }
}

/// A plain number, without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
