//! One load of our own guest in one VM, of which each vCPU has a CPU: how the benches of single loads run it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::arm::Arm;
use super::harness::{About, Experiment, Measured, Run};
use super::{BenchArgs, CPU, jobs, rows};
use crate::image::{self, Programs};
use crate::qemu::Launch;
use crate::qemu::capture::{Captured, Limits, capture};
use crate::results::{Results, Variant};
use crate::scenario::{Kernel, Machine, Scenario, Vm};
use crate::{fit, paths, run};

/// Memory of the VM.
const MEMORY: u64 = 16 << 20;
/// Trials where none are asked for: what instructions count repeats.
const TRIALS: u32 = 5;

/// How long a load may take.
const SILENCE: Duration = Duration::from_secs(900);

/// A run of a load: it reports a record for each of the rows, in their order.
pub struct Load {
    /// Its name.
    pub name: String,
    /// The guest's bootargs.
    pub bootargs: String,
    /// QEMU's CPU model, if not the command line's.
    pub cpu: Option<String>,
    /// Which of the guest's records are the rows', one for each.
    pub selects: fn(&Value) -> bool,
    /// The rows.
    pub rows: Vec<Variant>,
}

/// A load on one side of a comparison, ready to run.
struct Job {
    name: String,
    selects: fn(&Value) -> bool,
    rows: Vec<Row>,
    launch: Launch,
    bundle: String,
}

/// A row of a job.
struct Row {
    name: String,
    /// What the guest was told to do: what its record says of it has to be the same.
    settings: BTreeMap<String, String>,
}

/// Whether a bench of single loads counts instructions: the host's clock only where it is asked for.
pub fn deterministic(args: &BenchArgs) -> bool {
    args.threads.is_none()
}

/// Measures. `values` reads what a record says, by quantity, and checks it.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(
    args: &BenchArgs,
    mut about: About,
    loads: &[Load],
    deterministic: bool,
    values: impl Fn(&Value) -> Result<Vec<(&'static str, f64)>> + Sync,
) -> Result<Results> {
    args.refuse_shape("it has one guest with one vCPU; --calls says how often")?;
    ensure!(args.memory.is_none(), "--memory is not for this bench: its guest has what it needs");
    let programs = image::build()?;
    let guest = run::read_kernel(&programs.guest.image)?;
    let scratch = paths::scratch()?;
    let mut list = Vec::new();
    for (number, arm) in Arm::of(args)?.iter().enumerate() {
        about.notes.extend(arm.note());
        for load in loads {
            let (launch, bundle) =
                prepare(args, arm, load, &programs, &guest, deterministic, (&scratch, number))?;
            let mut rows: Vec<Variant> = load.rows.iter().cloned().map(|row| arm.row(row)).collect();
            for row in &mut rows {
                row.settings.insert("flags".into(), launch.behaviour().join(" "));
                row.settings.insert("bootargs".into(), load.bootargs.clone());
            }
            let of_job = load.rows.iter().zip(&rows);
            let of_job =
                of_job.map(|(row, named)| Row { name: named.name.clone(), settings: row.settings.clone() });
            let name = arm.name(&load.name);
            list.push(Job { name, selects: load.selects, rows: of_job.collect(), launch, bundle });
            about.variants.extend(rows);
        }
    }
    let launch = &list.first().context("there is nothing to run")?.launch;
    let mut experiment = Experiment::begin(args, about, &programs, launch)?;
    // A load says nothing while it runs.
    let limits = args.limits(Limits { silence: SILENCE, total: 4 * SILENCE });
    let trials = args.trials.unwrap_or(if deterministic { 1 } else { TRIALS });
    let at_once = jobs::at_once(deterministic);
    experiment.measure(
        &list,
        |job| job.name.clone(),
        at_once,
        trials,
        |job, run, _| Ok((measured(job, run, &limits, &values)?, ())),
    )?;
    experiment.end()
}

/// What QEMU boots for a load, and the bundle's hash.
fn prepare(
    args: &BenchArgs,
    arm: &Arm,
    load: &Load,
    programs: &Programs,
    guest: &Arc<Kernel>,
    deterministic: bool,
    (scratch, number): (&TempDir, usize),
) -> Result<(Launch, String)> {
    // Benches without threads have refused --vcpus.
    let vcpus = args.vcpus.unwrap_or(1);
    let machine = Machine {
        cpus: vcpus,
        cpu: load.cpu.clone().unwrap_or_else(|| arm.cpu(CPU)),
        deterministic,
        ..rows::one_cpu(args)
    };
    let vms = vec![Vm {
        vcpus,
        memory: MEMORY,
        bootargs: load.bootargs.clone(),
        ..Vm::new("load", Arc::clone(guest))
    }];
    let scenario = Scenario { machine, options: arm.options.clone(), vms };
    scenario.check("the command line")?;
    let bundle = fit::write(&scenario)?;
    let path = scratch.path().join(format!("{number}-{}.itb", load.name));
    bundle.write(&path)?;
    Ok((run::launch(&arm.programs(programs), &scenario, &path)?, bundle.hash))
}

/// Runs a job once.
fn measured(
    job: &Job,
    run: &Run,
    limits: &Limits,
    values: &impl Fn(&Value) -> Result<Vec<(&'static str, f64)>>,
) -> Result<Vec<Measured>> {
    let mut launch = job.launch.clone();
    launch.machine.seed = run.trial;
    let captured = capture(&launch, limits, run.log.as_deref(), &mut |_| ())?;
    let records = records(&captured, job).map_err(|error| captured.explain(error))?;
    let mut all = Vec::new();
    for (row, record) in job.rows.iter().zip(records) {
        let values = said(record, &row.settings)
            .and_then(|()| values(record))
            .with_context(|| format!("the guest's record {record}"))?;
        all.push(Measured { bundle: job.bundle.clone(), ..Measured::new(&row.name, values, &captured)? });
    }
    // Exits and times are the whole run's: they belong to no row where it has several.
    if all.len() > 1 {
        for measured in &mut all {
            (measured.exits, measured.time_ns) = (BTreeMap::new(), BTreeMap::new());
        }
    }
    Ok(all)
}

/// The guest's records for a job's rows.
///
/// # Errors
/// A record that says that something is wrong, or another number of them than there are rows.
fn records<'a>(captured: &'a Captured, job: &Job) -> Result<Vec<&'a Value>> {
    for (_, record) in &captured.guests {
        ensure!(record["ok"] != false && record["kind"] != "error", "the guest reports a failure: {record}");
    }
    let found: Vec<&Value> =
        captured.guests.iter().map(|(_, record)| record).filter(|record| (job.selects)(record)).collect();
    ensure!(
        found.len() == job.rows.len(),
        "{} records on the console for the {} rows of {}",
        found.len(),
        job.rows.len(),
        job.name
    );
    Ok(found)
}

/// That a record is about what was asked for.
fn said(record: &Value, settings: &BTreeMap<String, String>) -> Result<()> {
    for (key, asked) in settings {
        let said = match &record[key] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        ensure!(said == *asked, "has `{said}` as `{key}` where `{asked}` was due");
    }
    Ok(())
}

/// What an operation cost: a record's `time_ns` over its number of operations.
///
/// # Errors
/// A member is missing.
pub fn cost(record: &Value, count: &str) -> Result<f64> {
    Ok(number(record, "time_ns")? / number(record, count)?.max(1.0))
}

/// A member of a record that is a number.
///
/// # Errors
/// It is missing.
pub fn number(record: &Value, member: &str) -> Result<f64> {
    record[member].as_f64().with_context(|| format!("has no number `{member}`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_about_what_was_asked_for() {
        let settings = BTreeMap::from(
            [("depth", "16"), ("method", "frames"), ("silent", "yes")].map(|(k, v)| (k.into(), v.into())),
        );
        assert!(said(&json!({"depth": 16, "method": "frames"}), &settings).is_ok());
        let error = said(&json!({"depth": 8, "method": "frames"}), &settings).unwrap_err().to_string();
        assert_eq!(error, "has `8` as `depth` where `16` was due");
    }

    #[test]
    fn a_cost_is_time_over_operations() {
        assert_eq!(cost(&json!({"time_ns": 500, "n": 10}), "n").unwrap(), 50.0);
        assert!(cost(&json!({"time_ns": 500}), "n").unwrap_err().to_string().contains("no number `n`"));
    }
}
