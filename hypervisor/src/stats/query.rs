//! One counter by its number: what the hypercall READ_COUNTER returns (`docs/hypercalls.md`).

use super::{Reason, TickRate, VcpuStats, VcpuTotals};

/// Exits of all reasons.
pub const EXITS: u64 = 0;
/// Guest time in ns.
pub const GUEST_NS: u64 = 1;
/// Hypervisor time in ns.
pub const HYPERVISOR_NS: u64 = 2;
/// Ready time in ns.
pub const READY_NS: u64 = 3;
/// Blocked time in ns.
pub const BLOCKED_NS: u64 = 4;
/// Schedule-ins.
pub const SCHEDULE_INS: u64 = 5;
/// Migrations.
pub const MIGRATIONS: u64 = 6;
/// Kicks.
pub const KICKS: u64 = 7;
/// Plus a reason's number: exits for that reason.
pub const REASON_COUNT: u64 = 0x100;
/// Plus a reason's number: their time in ns.
pub const REASON_NS: u64 = 0x200;

/// The counter `id` (chosen by a guest), summed over `vcpus`, at `now` ticks. `None`: there is no such counter.
pub fn read<'a>(
    vcpus: impl Iterator<Item = &'a VcpuStats>,
    id: u64,
    now: u64,
    rate: TickRate,
) -> Option<u64> {
    let reason = |base: u64| Reason::ALL.get(usize::try_from(id.checked_sub(base)?).ok()?).copied();
    match id {
        EXITS => Some(sum(vcpus, |vcpu| vcpu.exits.total())),
        GUEST_NS..=KICKS => {
            let mut totals = VcpuTotals::default();
            vcpus.for_each(|vcpu| totals += vcpu.totals(now));
            Some(match id {
                GUEST_NS => rate.to_ns(totals.guest),
                HYPERVISOR_NS => rate.to_ns(totals.hypervisor),
                READY_NS => rate.to_ns(totals.ready),
                BLOCKED_NS => rate.to_ns(totals.blocked),
                SCHEDULE_INS => totals.schedule_ins,
                MIGRATIONS => totals.migrations,
                _ => totals.kicks,
            })
        }
        REASON_COUNT..REASON_NS => {
            let reason = reason(REASON_COUNT)?;
            Some(sum(vcpus, |vcpu| vcpu.exits.reason(reason).count()))
        }
        _ => {
            let reason = reason(REASON_NS)?;
            Some(rate.to_ns(sum(vcpus, |vcpu| vcpu.exits.reason(reason).total_ticks())))
        }
    }
}

fn sum<'a>(vcpus: impl Iterator<Item = &'a VcpuStats>, counter: impl Fn(&VcpuStats) -> u64) -> u64 {
    vcpus.fold(0, |sum, vcpu| sum.wrapping_add(counter(vcpu)))
}
