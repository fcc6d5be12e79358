//! The line `vmid` of the report: the VMID allocator.

use super::DurationsSnapshot;
use super::json::Json;
use super::report::{histogram, line};
use crate::vmid::{GhostCounters, VmidCounters};
use core::fmt::{self, Write};

/// The VMID allocator.
#[derive(Clone, Debug, Default)]
pub struct VmidLine<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// How VMIDs become fit for another VM.
    pub flush: &'a str,
    /// Width of a VMID in use.
    pub bits: u64,
    /// VMIDs that may be given to VMs.
    pub usable: u64,
    /// Its counters.
    pub counters: VmidCounters,
    /// What the ghost of the TLBs has seen, where there is one.
    pub ghost: Option<GhostCounters>,
}

/// Writes the line `vmid`.
pub fn write_vmid(out: &mut impl Write, vmid: &VmidLine<'_>) -> fmt::Result {
    line(out, "vmid", |json| {
        json.string("policy", vmid.policy)?;
        json.string("flush", vmid.flush)?;
        json.number("bits", vmid.bits)?;
        json.number("usable", vmid.usable)?;
        let n = &vmid.counters;
        json.number("schedule_ins", n.schedule_ins)?;
        json.number("fast", n.fast)?;
        json.number("slow", n.slow)?;
        json.number("unchanged", n.unchanged)?;
        json.number("reserved", n.reserved)?;
        json.number("allocations", n.allocations)?;
        json.number("reclaimed", n.reclaimed)?;
        json.number("rollovers", n.rollovers)?;
        json.number("released", n.released)?;
        json.number("tlbi_broadcast", n.tlbi_broadcast)?;
        json.number("tlbi_local", n.tlbi_local)?;
        json.number("broadcast_barriers", n.broadcast_barriers)?;
        json.number("kicks", n.kicks)?;
        json.number("slow_ticks", n.slow_ticks)?;
        json.object("lock", |json| {
            json.number("handovers", n.handovers)?;
            durations(json, "waited", &n.waited)?;
            durations(json, "held", &n.held)
        })?;
        let Some(ghost) = vmid.ghost else { return Ok(()) };
        json.number("warm", ghost.warm)?;
        json.number("cold", ghost.cold)?;
        json.number("lost_running", ghost.lost_running)
    })
}

/// How long each of many events took, in ticks. Few lines of few buckets: the histogram is always there.
fn durations<W: Write>(json: &mut Json<'_, W>, key: &str, numbers: &DurationsSnapshot) -> fmt::Result {
    json.object(key, |json| {
        json.number("count", numbers.count())?;
        json.number("ticks", numbers.total_ticks)?;
        json.number("max_ticks", numbers.max_ticks)?;
        histogram(json, numbers)
    })
}
