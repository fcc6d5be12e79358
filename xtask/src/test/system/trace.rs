//! What the trace holds is what the counters have counted (docs/trace.md).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use odometer::stats::Reason;
use odometer::trace::{CpuTrace, Decoded, Event, Flush, Kind};

use super::audit::audited;
use super::case::Case;
use super::cases::{scenario, vm};
use super::expect::{runs_well, says, starts_nothing};
use crate::report::records::{Report, Tally};
use crate::trace::timeline::in_order;
use crate::trace::{Until, serial};

/// All of them.
pub fn all() -> Vec<Case> {
    // More VMs than VMIDs.
    let crowd = [vm("talk", 2, "load=messaging groups=1 fds=4 loops=5 runs=2 pause_us=2000", "count = 20")];
    let traced = |name: &str, machine: &str, policy: &str| {
        let options = format!("\"trace\" = \"on\"\n\"vmid.bits\" = 4\n\"vmid.policy\" = \"{policy}\"");
        let mut case =
            Case::scenario(name, scenario(machine, &options, &crowd)).expect(runs_well).expect(|outcome| {
                let trace = outcome.trace.as_ref().context("the run was not traced")?;
                agrees(trace, &Report::read(&outcome.captured.reports)?)
            });
        case.traced = Some(Until::default());
        case
    };
    vec![
        // The auditor finds exits at the second table of vectors.
        audited(traced("trace", "cpus = 2", "clear"), &[("exits from guests", 1000)]).quick(),
        traced("trace-threads", "cpus = 4\nthreads = \"multi\"", "reclaim"),
        traced("trace-global", "cpus = 4", "global"),
        serial(),
        cut(),
        too_large(),
    ]
}

/// The trace comes over the console.
fn serial() -> Case {
    // Each character on the console is an exit: as few as do.
    let crowd = [vm("talk", 2, "load=messaging groups=1 fds=1 loops=2 runs=1", "count = 17")];
    let options = "\"trace\" = \"serial\"\n\"trace.kib\" = 128\n\"vmid.bits\" = 4";
    Case::scenario("trace-serial", scenario("cpus = 2", options, &crowd)).expect(runs_well).expect(
        |outcome| {
            let reports = &outcome.captured.reports;
            agrees(&serial::read(reports)?, &Report::read(reports)?)
        },
    )
}

/// The machine is stopped in the middle.
fn cut() -> Case {
    let text =
        scenario("cpus = 2", "\"trace\" = \"on\"", &[vm("spin", 1, "load=spin seconds=600", "count = 3")]);
    let mut case = Case::scenario("trace-cut", text).expect(|outcome| {
        let trace = outcome.trace.as_ref().context("the run was not traced")?;
        let slices =
            trace.cpus.iter().flat_map(|cpu| &cpu.events).filter(|event| event.kind == Kind::ScheduleIn);
        // Three take turns.
        ensure!(slices.count() > 10, "few have had a turn");
        ensure!(!outcome.captured.has("end"), "the run was not cut");
        Ok(())
    });
    case.traced = Some(Until { elapsed: Some(Duration::from_secs(3)), text: None });
    case
}

/// Rings for which there is no memory.
fn too_large() -> Case {
    let text = scenario(
        "cpus = 2\nmemory = \"256M\"",
        "\"trace\" = \"on\"",
        &[vm("idle", 1, "load=idle seconds=1", "")],
    );
    let mut case = Case::scenario("trace-too-large", text).expect(starts_nothing).expect(says(&[
        "trace=on: trace.kib=65536 takes",
        "KiB are free",
        "smaller trace.kib",
    ]));
    // The host would say it first.
    case.spoil = Some(|scenario| scenario.set_option("trace.kib", "65536"));
    case
}

/// Each CPU's events are as many as its counters say, and what a CPU does goes on from one to the next.
fn agrees(trace: &Decoded, report: &Report) -> Result<()> {
    ensure!(trace.counter_hz == report.boot.counter_hz, "the counter runs at {} Hz", trace.counter_hz);
    ensure!(trace.cpus.len() as u64 == report.boot.cpus, "{} rings", trace.cpus.len());
    for (number, cpu) in trace.cpus.iter().enumerate() {
        let tally = report.cpus.get(&(number as u64)).context("a CPU without a record")?;
        one_cpu(cpu, tally).with_context(|| format!("CPU {number}"))?;
    }
    let of = |kind| {
        let all = trace.cpus.iter().flat_map(|cpu| &cpu.events);
        all.filter(move |event| event.kind == kind)
    };
    let vmid = &report.vmid;
    let broadcasts =
        of(Kind::VmidFlush).filter(|event| [Flush::All as u8, Flush::Vmids as u8].contains(&event.detail));
    let kicks: u64 = report.vcpus.values().map(|vcpu| vcpu.kicks).sum();
    for (what, events, counted) in [
        ("schedule-ins", of(Kind::ScheduleIn).count(), vmid.schedule_ins),
        ("slow paths", of(Kind::VmidSlow).count(), vmid.slow),
        ("rollovers", of(Kind::VmidRollover).count(), vmid.rollovers),
        ("VMIDs reclaimed", of(Kind::VmidReclaim).count(), vmid.reclaimed),
        ("broadcast flushes", broadcasts.count(), vmid.broadcast_barriers),
    ] {
        ensure!(events as u64 == counted, "{what}: {events} in the trace, {counted} by the counters");
    }
    ensure!(vmid.rollovers + vmid.reclaimed > 0, "VMIDs never ran out");
    // Beside those, a CPU kicks itself when its vCPU was asked for something on its way in. And the machine's end may come to a CPU
    // between counting one and recording it.
    let seen = of(Kind::Kick).count() as u64;
    let counted = kicks + vmid.kicks;
    ensure!(seen + report.boot.cpus >= counted && kicks > 0, "{seen} kicks in the trace, {counted} counted");
    ensure!(of(Kind::Inject).count() > 0, "no interrupt was injected");
    Ok(())
}

/// What a CPU can do next: each of its events, but for those that may come at any time, has these before it.
fn may_follow(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::Exit => &[Kind::Enter],
        Kind::Enter => &[Kind::Exit, Kind::ScheduleIn],
        Kind::ScheduleOut => &[Kind::Exit],
        Kind::ScheduleIn | Kind::IdleBegin => &[Kind::Exit, Kind::ScheduleOut, Kind::IdleEnd],
        Kind::IdleEnd => &[Kind::IdleBegin],
        Kind::VmidSlow
        | Kind::VmidRollover
        | Kind::VmidReclaim
        | Kind::VmidFlush
        | Kind::Kick
        | Kind::Inject => &[],
    }
}

fn one_cpu(cpu: &CpuTrace, tally: &Tally) -> Result<()> {
    ensure!(cpu.lost == 0, "{} events are lost", cpu.lost);
    let mut exits: BTreeMap<&str, u64> = BTreeMap::new();
    let mut before: Option<Event> = None;
    let mut guest = None;
    for event in in_order(cpu) {
        let allowed = may_follow(event.kind);
        if allowed.is_empty() {
            continue;
        }
        let first = [Kind::IdleBegin, Kind::ScheduleIn].contains(&event.kind);
        ensure!(
            before.map_or(first, |before| allowed.contains(&before.kind)),
            "{event:?} comes after {before:?}"
        );
        let who = (event.vm, event.vcpu);
        match event.kind {
            Kind::Exit => {
                ensure!(guest == Some(who), "{event:?}, while {guest:?} is in the guest");
                let reason =
                    Reason::ALL.get(usize::from(event.detail)).context("an exit without a reason")?;
                *exits.entry(reason.name()).or_default() += 1;
            }
            Kind::Enter => guest = Some(who),
            _ => {}
        }
        before = Some(event);
    }
    for (name, count) in &exits {
        let counted = tally.exits.by_reason.get(*name).map_or(0, |reason| reason.count);
        ensure!(*count == counted, "{name}: {count} exits in the trace, {counted} by the counters");
    }
    let all: u64 = exits.values().sum();
    ensure!(
        all == tally.exits.total && all > 0,
        "{all} exits in the trace, {} by the counters",
        tally.exits.total
    );
    Ok(())
}
