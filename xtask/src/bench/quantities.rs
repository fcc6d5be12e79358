//! What is counted in a trial, by name: one list for the table and for the results.

use super::harness::count;
use super::trial::Trial;
use crate::results;

/// A counted quantity.
pub struct Quantity {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its name in a table.
    pub label: &'static str,
    /// Its value in a trial.
    pub of: fn(&Trial) -> u64,
}

/// The allocator's counters, in the table's order.
pub const ALLOCATOR: &[Quantity] = &[
    Quantity { key: "schedule_ins", label: "schedule-ins", of: |t| t.vmid.schedule_ins },
    Quantity { key: "fast", label: "fast path", of: |t| t.vmid.fast },
    Quantity { key: "slow", label: "slow path", of: |t| t.vmid.slow },
    Quantity { key: "reserved", label: "reserved hits", of: |t| t.vmid.reserved },
    Quantity { key: "allocations", label: "allocations", of: |t| t.vmid.allocations },
    Quantity { key: "reclaimed", label: "VMIDs taken from idle VMs", of: |t| t.vmid.reclaimed },
    Quantity { key: "rollovers", label: "rollovers", of: |t| t.vmid.rollovers },
    Quantity { key: "tlbi_broadcast", label: "broadcast TLB invalidations", of: |t| t.vmid.tlbi_broadcast },
    Quantity { key: "tlbi_local", label: "local TLB invalidations", of: |t| t.vmid.tlbi_local },
    Quantity { key: "broadcast_barriers", label: "broadcast barriers", of: |t| t.vmid.broadcast_barriers },
    Quantity { key: "kicks", label: "forced exits (kicks)", of: |t| t.vmid.kicks },
    Quantity { key: "slow_ticks", label: "counter ticks in the allocator", of: |t| t.vmid.slow_ticks },
    Quantity { key: "held_ticks", label: "ticks with the lock", of: |t| t.vmid.lock.held.ticks },
    Quantity {
        key: "held_median",
        label: "ticks with the lock, median",
        of: |t| t.vmid.lock.held.median() as u64,
    },
    Quantity {
        key: "held_longest",
        label: "ticks with the lock, longest",
        of: |t| t.vmid.lock.held.max_ticks,
    },
    Quantity { key: "handovers", label: "lock from another CPU", of: |t| t.vmid.lock.handovers },
    Quantity { key: "waits", label: "waits for the lock", of: |t| t.vmid.lock.waited.count },
    Quantity { key: "waited_ticks", label: "ticks of waiting", of: |t| t.vmid.lock.waited.ticks },
    Quantity {
        key: "waited_longest",
        label: "ticks of waiting, longest",
        of: |t| t.vmid.lock.waited.max_ticks,
    },
];

/// What the ghost of the TLBs counts, where there is one (`vmid.ghost`).
pub const GHOST: &[Quantity] = &[
    Quantity { key: "warm", label: "entries that found translations", of: |t| t.vmid.warm },
    Quantity { key: "cold", label: "entries that found none", of: |t| t.vmid.cold },
    Quantity { key: "lost_running", label: "translations lost while running", of: |t| t.vmid.lost_running },
];

/// What VMs' memory came to.
const MEMORY: &[Quantity] = &[
    Quantity { key: "ram_bytes", label: "VMs' RAM, bytes", of: |t| t.memory.memory_bytes },
    Quantity { key: "resident_bytes", label: "private, bytes", of: |t| t.memory.resident_bytes },
    Quantity { key: "shared_bytes", label: "shared, bytes", of: |t| t.memory.shared_bytes },
    Quantity { key: "copied_pages", label: "pages copied from images", of: |t| t.memory.copied_pages },
    Quantity {
        key: "overhead_bytes",
        label: "the hypervisor's for VMs, bytes",
        of: |t| t.memory.overhead_bytes,
    },
    Quantity { key: "common_frames", label: "frames for common pages", of: |t| t.common.frames },
    Quantity { key: "common_most_used", label: "common frames, most", of: |t| t.common.most_used },
    Quantity { key: "common_most_users", label: "mappings of them, most", of: |t| t.common.most_users },
];

/// Counts beside exits by reason.
fn counts() -> impl Iterator<Item = &'static Quantity> {
    ALLOCATOR.iter().chain(GHOST).chain(MEMORY)
}

/// All that is measured, as the results have it.
pub fn all(deterministic: bool) -> Vec<results::Quantity> {
    let time = |key: &str, label: &str, emulated| results::Quantity {
        key: key.into(),
        label: label.into(),
        digits: 4,
        emulated,
    };
    let mut all = vec![
        time("time_s", "hackbench, s (emulated)", !deterministic),
        count("exits", "exits"),
        time("exits_per_message", "exits/message", false),
        time("elapsed_s", "the run, s (emulated)", !deterministic),
        time("host_cpu_s", "host CPU, s", false),
        count("messages", "messages"),
    ];
    all.extend(counts().map(|quantity| count(quantity.key, quantity.label)));
    all
}

/// What a trial measured of these.
pub fn values(trial: &Trial) -> Vec<(&'static str, f64)> {
    let mut values = vec![
        ("time_s", trial.time_s),
        ("exits", trial.exits.total as f64),
        ("exits_per_message", trial.exits.total as f64 / trial.messages.max(1) as f64),
        ("elapsed_s", trial.elapsed_s),
        ("host_cpu_s", trial.host_cpu_s),
        ("messages", trial.messages as f64),
    ];
    values.extend(counts().map(|quantity| (quantity.key, (quantity.of)(trial) as f64)));
    values
}

/// Whether a tick of the counter is an instruction: the clock is driven by instructions, one a nanosecond, and the
/// counter ticks once a nanosecond.
pub fn ticks_are_instructions(deterministic: bool, counter_hz: u64) -> bool {
    deterministic && counter_hz == 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quantity_has_a_value_and_a_name_of_its_own() {
        let keys: Vec<String> = all(true).into_iter().map(|quantity| quantity.key).collect();
        let measured: Vec<&str> = values(&Trial::default()).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, measured);
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key}");
        }
    }
}
