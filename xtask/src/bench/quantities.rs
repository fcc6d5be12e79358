//! What is counted in a trial, by name: one list for the table and for JSON.

use super::trial::Trial;

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

/// Whether a tick of the counter is an instruction: the clock is driven by instructions, one a nanosecond, and the
/// counter ticks once a nanosecond.
pub fn ticks_are_instructions(deterministic: bool, counter_hz: u64) -> bool {
    deterministic && counter_hz == 1_000_000_000
}
