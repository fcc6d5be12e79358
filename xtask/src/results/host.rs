//! What of the host is recorded beside a measurement: what it is, and how busy.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Processors that a program may use.
    pub processors: usize,
    /// What they are, as the kernel says.
    pub model: String,
    /// The kernel.
    pub kernel: String,
}

impl Host {
    /// This one. What can't be had is empty.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            model: model(&read("/proc/cpuinfo")),
            kernel: read("/proc/version").split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

/// The first processor's name in /proc/cpuinfo (proc(5)); not every architecture has one.
fn model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

/// The load average over the last minute (proc(5)).
pub fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Seconds since 1970, UTC.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_name_is_found() {
        assert_eq!(model("processor\t: 0\nmodel name\t: A Processor @ 1 GHz\n"), "A Processor @ 1 GHz");
        assert_eq!(model("processor : 0\nBogoMIPS : 50\n"), "");
    }
}
