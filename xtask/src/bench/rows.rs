//! Benches whose rows are a scenario each: how they run.

use anyhow::{Context, Result, ensure};

use super::arm::Arm;
use super::harness::{About, Experiment, Measured};
use super::{BenchArgs, CPU, Threads, jobs};
use crate::image::Programs;
use crate::qemu::Launch;
use crate::qemu::capture::{Captured, Limits, capture};
use crate::results::{Results, Variant};
use crate::scenario::{Machine, Scenario};
use crate::{fit, paths, run};

/// A row, and what runs for it.
pub struct Row {
    /// The row.
    pub variant: Variant,
    /// What runs.
    pub scenario: Scenario,
}

/// A row on one side of a comparison, ready to run.
struct Job<'a> {
    row: &'a Row,
    name: String,
    launch: Launch,
    bundle: String,
}

/// The machine of a bench with one guest of one vCPU. It counts instructions unless the host's clock is asked for.
pub fn one_cpu(args: &BenchArgs) -> Machine {
    Machine {
        cpus: 1,
        cpu: args.cpu.clone().unwrap_or_else(|| CPU.into()),
        deterministic: args.threads.is_none(),
        multi_threaded: args.threads == Some(Threads::Multi),
        qemu: args.qemu.clone(),
        ..Machine::default()
    }
}

/// What ran for a row, for the results: QEMU's flags, the hypervisor's options, guests' command lines.
fn ran(scenario: &Scenario, launch: &Launch) -> impl Iterator<Item = (String, String)> {
    let guests = scenario.vms.iter().map(|vm| (format!("bootargs of {}", vm.name), vm.bootargs.clone()));
    let flags = ("flags".to_owned(), launch.behaviour().join(" "));
    [flags, ("options".to_owned(), scenario.hypervisor_arguments())].into_iter().chain(guests)
}

/// Runs the rows' scenarios, on each side of a comparison, as often as the command line asks for, or `trials` times. `values` reads what a run says.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn measure(
    args: &BenchArgs,
    mut about: About,
    programs: &Programs,
    rows: &[Row],
    trials: u32,
    values: impl Fn(&Row, &Captured) -> Result<Vec<(&'static str, f64)>> + Sync,
) -> Result<Results> {
    let scratch = paths::scratch()?;
    let mut list: Vec<Job<'_>> = Vec::new();
    for arm in Arm::of(args)? {
        about.notes.extend(arm.note());
        for row in rows {
            let mut scenario = row.scenario.clone();
            scenario.machine.cpu = arm.cpu(&scenario.machine.cpu);
            for (key, value) in &arm.options {
                scenario.set_option(key, value);
            }
            scenario.check("the command line")?;
            let bundle = fit::write(&scenario)?;
            let path = scratch.path().join(format!("{}.itb", list.len()));
            bundle.write(&path)?;
            let launch = run::launch(&arm.programs(programs), &scenario, &path)?;
            let mut variant = arm.row(row.variant.clone());
            variant.settings.extend(ran(&scenario, &launch));
            list.push(Job { row, name: variant.name.clone(), launch, bundle: bundle.hash });
            about.variants.push(variant);
        }
    }
    let launch = &list.first().context("there is nothing to run")?.launch;
    let deterministic = launch.machine.deterministic;
    ensure!(
        list.iter().all(|job| job.launch.machine.deterministic == deterministic),
        "scenarios by instructions can't be compared with others by the host's clock: give --deterministic"
    );
    let mut experiment = Experiment::begin(args, about, programs, launch)?;
    let limits = args.limits(Limits::default());
    let at_once = jobs::at_once(deterministic);
    let trials = args.trials.unwrap_or(trials);
    experiment.measure(
        &list,
        |job| job.name.clone(),
        at_once,
        trials,
        |job, run, step| {
            let mut launch = job.launch.clone();
            launch.machine.seed = run.trial;
            let mut lines = 0;
            let captured = capture(&launch, &limits, run.log.as_deref(), &mut |_| {
                lines += 1;
                step.note(format!("{lines} lines on the console"));
            })?;
            let values = values(job.row, &captured).map_err(|error| captured.explain(error))?;
            let measured = Measured::new(&job.name, values, &captured)?;
            Ok((vec![Measured { bundle: job.bundle.clone(), ..measured }], ()))
        },
    )?;
    experiment.end()
}
