//! One trial: a run of a setup under one policy, and what was measured in it.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::setups::Setup;
use crate::progress::Step;
use crate::qemu::Launch;
use crate::qemu::capture::{self, Captured, Limits};
use crate::report::records::{Boot, Common, Exits, Memory, Report, Vmid};

/// What one trial measured.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// Seconds of a run of hackbench: the mean over all guests and runs, by the guests' own clocks.
    pub time_s: f64,
    /// Messages that all guests passed in all runs.
    pub messages: u64,
    /// Exits of all VMs.
    pub exits: Exits,
    /// The allocator.
    pub vmid: Vmid,
    /// What booted.
    pub boot: Boot,
    /// Seconds that the hypervisor ran, by its clock.
    pub elapsed_s: f64,
    /// Seconds of processor time that QEMU took on the host; 0 where they aren't known.
    pub host_cpu_s: f64,
    /// Memory of all VMs, as each had it at its end.
    pub memory: Memory,
    /// Pages that VMs had in common.
    pub common: Common,
}

/// A guest's record of a run of hackbench.
#[derive(Debug, Deserialize)]
struct Messaging {
    #[serde(default)]
    messages: u64,
    time_ns: u64,
    ok: bool,
}

/// Runs a trial; returns what it printed, too.
///
/// # Errors
/// A run that fails, a guest that is missing or reports a failure, a report that doesn't add up.
pub fn run(
    launch: &Launch,
    setup: &Setup,
    limits: &Limits,
    log: Option<&Path>,
    step: &mut Step,
) -> Result<(Captured, Trial)> {
    let mut ended = 0;
    let captured = capture::capture(launch, limits, log, &mut |line| {
        if line.contains("@guest ") && line.contains("\"end\"") {
            ended += 1;
            step.note(format!("{ended} of {} guests have ended", setup.vms));
        }
    })?;
    let trial = measured(&captured, setup).map_err(|error| captured.explain(error))?;
    Ok((captured, trial))
}

/// What a captured run measured.
///
/// # Errors
/// As `run`.
pub fn measured(captured: &Captured, setup: &Setup) -> Result<Trial> {
    let report = Report::read(&captured.reports)?;
    let end =
        report.end.as_ref().context("the hypervisor's report has no `end` record: the run was cut off")?;
    ensure!(end.failed == 0, "{} VMs were stopped by the hypervisor: {}", end.failed, end.reason);
    let faults = report.inconsistencies();
    ensure!(faults.is_empty(), "the report does not add up:\n    {}", faults.join("\n    "));

    let (time_s, messages) = hackbench(captured, setup)?;
    Ok(Trial {
        time_s,
        messages,
        exits: report.exits(),
        memory: report.memory(),
        common: report.common,
        host_cpu_s: captured.cpu_time.as_secs_f64(),
        vmid: report.vmid,
        boot: report.boot,
        elapsed_s: end.elapsed_ns as f64 / 1e9,
    })
}

/// What the guests say of their runs of hackbench: seconds of one, the mean of all, and how many messages all passed.
///
/// # Errors
/// A guest that is missing, or reports a failure.
pub fn hackbench(captured: &Captured, setup: &Setup) -> Result<(f64, u64)> {
    let mut times = Vec::new();
    let mut messages = 0;
    let mut ends = 0;
    for (vm, record) in &captured.guests {
        match record["kind"].as_str() {
            Some("messaging") => {
                let run =
                    Messaging::deserialize(record).with_context(|| format!("the record {record} of {vm}"))?;
                ensure!(run.ok, "the guest {vm} reports a failure: {record}");
                times.push(run.time_ns as f64 / 1e9);
                messages += if run.messages > 0 { run.messages } else { setup.messages_per_run() };
            }
            Some("error") => bail!("the guest {vm} reports a failure: {record}"),
            Some("end") if record["ok"] == false => bail!("the guest {vm} reports a failure: {record}"),
            Some("end") => ends += 1,
            _ => {}
        }
    }
    ensure!(ends == setup.vms, "{ends} of {} guests reported their end", setup.vms);
    let runs = setup.vms as usize * setup.hackbench.runs as usize;
    ensure!(times.len() == runs, "{} runs of hackbench were reported, not {runs}", times.len());
    let expected = setup.messages_per_run() * runs as u64;
    ensure!(messages == expected, "{messages} messages were passed, not {expected}");
    Ok((times.iter().sum::<f64>() / times.len() as f64, messages))
}
