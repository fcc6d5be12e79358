//! What a measurement needs of the host.

use anyhow::{Result, ensure};

use crate::qemu::Launch;

/// What QEMU takes beside the machine's RAM: above all the code that it has translated, 1 GiB at most.
const EMULATOR_BYTES: u64 = (1 << 30) + (256 << 20);

/// Refuses a run that the host may have no memory for, before it starts and not an hour later.
///
/// # Errors
/// There is less than `at_once` machines may come to need.
pub fn check_memory(launch: &Launch, at_once: usize) -> Result<()> {
    let available = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(available);
    // Where the host doesn't say, it is tried.
    available.map_or(Ok(()), |available| enough(launch.memory, at_once as u64, available))
}

/// Whether `at_once` machines with `memory` bytes of RAM each fit into `available` bytes.
fn enough(memory: u64, at_once: u64, available: u64) -> Result<()> {
    let needed = memory.saturating_add(EMULATOR_BYTES).saturating_mul(at_once);
    ensure!(
        needed <= available,
        "the host has {} MiB of memory available, and {at_once} QEMU with {} MiB of RAM may take {} MiB: give --vms or \
         --memory less, or end other programs",
        available >> 20,
        memory >> 20,
        needed >> 20
    );
    Ok(())
}

/// MemAvailable of /proc/meminfo (proc(5)), in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_has_is_read() {
        let meminfo = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(available(meminfo), Some(2 << 20));
        assert_eq!(available("MemTotal: 5 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn too_little_is_refused_with_numbers_and_a_remedy() {
        assert!(enough(12 << 30, 1, 22 << 30).is_ok());
        assert!(enough(4 << 30, 2, 11 << 30).is_ok());
        let error = enough(12 << 30, 1, 13 << 30).unwrap_err().to_string();
        for part in ["13312 MiB", "12288 MiB", "13568 MiB", "--vms", "--memory"] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}
