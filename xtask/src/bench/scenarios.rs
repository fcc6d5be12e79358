//! `cargo xtask bench scenario`: any load or boot, as often as is asked for; several against each other.

use anyhow::{Context, Result, ensure};

use super::arm::Arm;
use super::harness::{About, Experiment, Measured, count};
use super::{BenchArgs, Threads, jobs};
use crate::image;
use crate::qemu::Launch;
use crate::qemu::capture::{Captured, Limits, capture};
use crate::report::records::Report;
use crate::results::{Quantity, Results, ShareOf, Variant};
use crate::scenario::Scenario;
use crate::{fit, paths, run};

/// Trials where none are asked for.
const TRIALS: u32 = 5;

/// A scenario on one side of a comparison.
struct Job {
    row: String,
    launch: Launch,
    bundle: String,
}

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    args.refuse_shape("the scenario says all that")?;
    ensure!(args.memory.is_none(), "--memory is not for `bench scenario`: the scenario says it");
    let programs = image::build()?;
    let guest = || run::read_kernel(&programs.guest.image);
    let scratch = paths::scratch()?;
    let mut list: Vec<Job> = Vec::new();
    let mut variants: Vec<Variant> = Vec::new();
    let mut notes = Vec::new();
    for arm in Arm::of(args)? {
        notes.extend(arm.note());
        let mut first: Option<String> = None;
        for file in &args.scenarios {
            let mut scenario = Scenario::load(file, &guest)?;
            adapt(&mut scenario, args, &arm);
            scenario.check(&file.display().to_string())?;
            let row = arm.row(Variant {
                name: file.display().to_string(),
                group: "scenario".into(),
                base: first.clone(),
                ..Variant::default()
            });
            ensure!(
                variants.iter().all(|other| other.name != row.name),
                "--scenario {}: is given twice; to compare it with itself give --a and --b",
                file.display()
            );
            first.get_or_insert_with(|| file.display().to_string());
            let bundle = fit::write(&scenario)?;
            let path = scratch.path().join(format!("{}.itb", list.len()));
            bundle.write(&path)?;
            let launch = run::launch(&arm.programs(&programs), &scenario, &path)?;
            list.push(Job { row: row.name.clone(), launch, bundle: bundle.hash });
            variants.push(row);
        }
    }
    let launch = &list.first().context("there is nothing to run")?.launch;
    let deterministic = list.iter().all(|job| job.launch.machine.deterministic);
    ensure!(
        deterministic || list.iter().all(|job| !job.launch.machine.deterministic),
        "scenarios by instructions can't be compared with others by the host's clock: give --deterministic"
    );
    let shares = match (args.share, variants.as_slice()) {
        (false, _) => Vec::new(),
        (true, [floor, with, without]) => vec![ShareOf {
            label: "what the third is without".into(),
            floor: floor.name.clone(),
            with: with.name.clone(),
            without: without.name.clone(),
            published: None,
        }],
        (true, _) => anyhow::bail!("--share: can't be given with --a and --b"),
    };
    let unit = if deterministic { "million instructions" } else { "ms (emulated)" };
    let time = |key: &str, what: &str| Quantity {
        key: key.into(),
        label: format!("{what}, {unit}"),
        digits: 3,
        emulated: !deterministic,
    };
    let about = About {
        bench: "scenario",
        question: "How long does a scenario take?",
        quantities: vec![
            time("elapsed", "from the hypervisor's start to its end"),
            count("exits", "exits"),
            time("load", "what guests say of one run of their loads"),
        ],
        variants,
        shares,
        notes,
    };
    let mut experiment = Experiment::begin(args, about, &programs, launch)?;
    let at_once = if deterministic { jobs::DETERMINISTIC } else { 1 };
    let trials = args.trials.unwrap_or(TRIALS);
    experiment.measure(
        &list,
        |job| job.row.clone(),
        at_once,
        trials,
        |job, run, step| {
            let mut launch = job.launch.clone();
            launch.machine.seed = run.trial;
            let mut lines = 0;
            let captured =
                capture(&launch, &args.limits(Limits::default()), run.log.as_deref(), &mut |_| {
                    lines += 1;
                    step.note(format!("{lines} lines on the console"));
                })?;
            let values = values(&captured)?;
            Ok((
                vec![Measured { bundle: job.bundle.clone(), ..Measured::new(&job.row, values, &captured)? }],
                (),
            ))
        },
    )?;
    experiment.end()
}

/// Lets the command line have its way with a scenario.
fn adapt(scenario: &mut Scenario, args: &BenchArgs, arm: &Arm) {
    let machine = &mut scenario.machine;
    if arm.cpu != "max" {
        machine.cpu.clone_from(&arm.cpu);
    }
    if let Some(threads) = args.threads {
        machine.multi_threaded = threads == Threads::Multi;
        machine.deterministic = false;
    }
    machine.deterministic |= args.deterministic;
    machine.qemu.extend(args.qemu.iter().cloned());
    for (key, value) in &arm.options {
        scenario.set_option(key, value);
    }
}

/// What a run measured, in milliseconds.
fn values(captured: &Captured) -> Result<Vec<(&'static str, f64)>> {
    let report = Report::read(&captured.reports)?;
    let end =
        report.end.as_ref().context("the hypervisor's report has no `end` record: the run was cut off")?;
    ensure!(end.failed == 0, "{} VMs were stopped by the hypervisor: {}", end.failed, end.reason);
    let mut times = Vec::new();
    for (vm, record) in &captured.guests {
        ensure!(
            record["ok"] != false && record["kind"] != "error",
            "the guest {vm} reports a failure: {record}"
        );
        times.extend(record["time_ns"].as_f64());
    }
    let mut values = vec![("elapsed", end.elapsed_ns as f64 / 1e6), ("exits", report.exits().total as f64)];
    if !times.is_empty() {
        values.push(("load", times.iter().sum::<f64>() / times.len() as f64 / 1e6));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured_by_its_report_and_its_guests() {
        let log = "a| @guest {\"kind\":\"idle\",\"time_ns\":2000000,\"ok\":true}\na| @guest {\"kind\":\"idle\",\"time_ns\":4000000}\n\
                   @odometer {\"schema\":1,\"kind\":\"vm\",\"vm\":\"a\",\"exits\":{\"total\":7}}\n\
                   @odometer {\"schema\":1,\"kind\":\"end\",\"elapsed_ns\":5000000,\"vms\":1,\"reason\":\"all\"}";
        let found = values(&Captured::from_log(log).unwrap()).unwrap();
        assert_eq!(found, [("elapsed", 5.0), ("exits", 7.0), ("load", 3.0)]);
        let cut = log.lines().take(3).collect::<Vec<_>>().join("\n");
        assert!(values(&Captured::from_log(&cut).unwrap()).unwrap_err().to_string().contains("cut off"));
        let failed = log.replace("true", "false");
        assert!(
            values(&Captured::from_log(&failed).unwrap()).unwrap_err().to_string().contains("the guest a")
        );
    }
}
