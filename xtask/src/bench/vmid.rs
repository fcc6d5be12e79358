//! The VMID experiment: each policy under each setup, some trials of each.

use anyhow::{Context, Result};
use serde_json::Value;

use super::setups::{Setup, policies};
use super::trial::{self, Trial};
use super::{BenchArgs, LoadName, host, jobs, json, table};
use crate::fit::{self, Bundle};
use crate::image::{self, Programs};
use crate::progress::Progress;
use crate::qemu::Launch;
use crate::report::statistics::Sample;
use crate::scenario::Scenario;
use crate::{paths, run};

/// Trials of each row where none are asked for.
const TRIALS: u32 = 3;
/// The same for Linux guests, which take their time.
const LINUX_TRIALS: u32 = 1;

/// One row of the table: a policy and its trials.
#[derive(Debug, Clone)]
pub struct Row {
    /// The policy.
    pub policy: String,
    /// What its trials measured.
    pub trials: Vec<Trial>,
}

impl Row {
    /// One quantity over the trials.
    pub fn sample(&self, quantity: impl Fn(&Trial) -> f64) -> Sample {
        Sample::new(self.trials.iter().map(quantity))
    }
}

/// A setup's result.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The setup.
    pub setup: Setup,
    /// How QEMU was called.
    pub launch: Launch,
    /// The bundle's hash.
    pub bundle: String,
    /// The bundle's size.
    pub bundle_bytes: u64,
    /// The rows, in the policies' order.
    pub rows: Vec<Row>,
}

/// A setup that is ready to run.
struct Prepared {
    setup: Setup,
    scenario: Scenario,
    bundle: Bundle,
}

/// Measures and prints; returns the data.
///
/// # Errors
/// Anything that keeps a table from being complete.
pub fn run(args: &BenchArgs) -> Result<Value> {
    let policies = policies(args)?;
    let setups = Setup::wanted(args)?;
    let programs = image::build()?;
    let own_guest = run::read_kernel(&programs.guest.image)?;
    let prepared: Vec<Prepared> = setups
        .into_iter()
        .map(|mut setup| {
            setup.fetch()?;
            let scenario = setup.scenario(args, &own_guest)?;
            let bundle = fit::write(&scenario)?;
            Ok(Prepared { setup, scenario, bundle })
        })
        .collect::<Result<_>>()?;

    let trials = args.trials.unwrap_or(if args.load == LoadName::Linux { LINUX_TRIALS } else { TRIALS });
    let progress = Progress::new(prepared.len() * policies.len() * trials as usize);
    let mut outcomes = Vec::new();
    for prepared in prepared {
        outcomes.push(measure(args, &programs, prepared, &policies, trials, &progress)?);
    }
    drop(progress);
    for outcome in &outcomes {
        println!("{}", table::text(outcome));
    }
    Ok(json::vmid(&outcomes))
}

/// One job: a trial of a policy.
struct Job {
    policy: usize,
    trial: u32,
    launch: Launch,
}

/// Runs all trials of a setup. A trial of each policy comes before the next of any, so that what changes on the host
/// with time falls on all alike.
fn measure(
    args: &BenchArgs,
    programs: &Programs,
    prepared: Prepared,
    policies: &[String],
    trials: u32,
    progress: &Progress,
) -> Result<Outcome> {
    let Prepared { setup, mut scenario, bundle } = prepared;
    let scratch = paths::scratch()?;
    let path = scratch.path().join("bundle.itb");
    bundle.write(&path)?;
    let mut list = Vec::new();
    let seeded = args.options.iter().any(|(key, _)| key == "sched.seed");
    for trial in 0..trials {
        if !seeded {
            // Trials differ in the order in which their VMs start, so that they are samples even where the clock is exact.
            scenario.set_option("sched.seed", &(trial + 1).to_string());
        }
        // And in the machine's random numbers: where a Linux kernel lies decides how its scheduler's first steps fall out.
        scenario.machine.seed = trial + 1;
        for (index, policy) in policies.iter().enumerate() {
            scenario.set_option("vmid.policy", policy);
            scenario.check("the command line")?;
            list.push(Job { policy: index, trial, launch: run::launch(programs, &scenario, &path)? });
        }
    }
    let launch = list.first().context("there is no trial to run")?.launch.clone();

    let at_once = if launch.machine.deterministic { jobs::DETERMINISTIC } else { 1 };
    host::check_memory(&launch, at_once.min(list.len()))?;
    let results =
        jobs::all(list, at_once, |job| run_job(args, &setup, &policies[job.policy], job, progress))?;
    let mut rows: Vec<Row> =
        policies.iter().map(|policy| Row { policy: policy.clone(), trials: Vec::new() }).collect();
    for (index, trial) in results.into_iter().enumerate() {
        rows[index % policies.len()].trials.push(trial);
    }
    let bundle_bytes = bundle.bytes.len() as u64;
    Ok(Outcome { setup, launch, bundle: bundle.hash, bundle_bytes, rows })
}

/// Runs one trial.
fn run_job(args: &BenchArgs, setup: &Setup, policy: &str, job: &Job, progress: &Progress) -> Result<Trial> {
    let number = job.trial + 1;
    let name = format!("setup {}, {policy}, trial {number}", setup.name);
    let log = args.logs.as_ref().map(|logs| logs.join(format!("setup-{}-{policy}-{number}.log", setup.name)));
    let mut step = progress.step(&name);
    let trial = trial::run(&job.launch, setup, &setup.limits(), log.as_deref(), &mut step).context(name)?;
    step.done();
    Ok(trial)
}

/// An outcome with these rows, for tests of what is made of it.
#[cfg(test)]
pub fn outcome_of(setup: Setup, rows: Vec<Row>) -> Outcome {
    let boot = crate::qemu::Boot {
        kernel: "odometer.bin".into(),
        initrd: None,
        append: String::new(),
        virtualization: true,
    };
    let launch = Launch {
        program: "qemu".into(),
        version: (10, 0, 2),
        machine: crate::scenario::Machine { cpus: setup.cpus, ..Default::default() },
        memory: 1 << 30,
        boot,
        typed: Vec::new(),
    };
    Outcome { setup, launch, bundle: "0123456789abcdef".repeat(4), bundle_bytes: 30 << 20, rows }
}
