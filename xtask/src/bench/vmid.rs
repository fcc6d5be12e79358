//! The VMID experiment: each policy under each setup, some trials of each.

use anyhow::{Context, Result};

use super::arm::Arm;
use super::harness::{About, Experiment, Measured};
use super::setups::{Setup, policies};
use super::trial::{self, Trial};
use super::{BenchArgs, LoadName, host, jobs, quantities, table};
use crate::fit;
use crate::image::{self, Programs};
use crate::qemu::Launch;
use crate::report::statistics::Sample;
use crate::results::{Published, Results, Variant, text};
use crate::scenario::Scenario;
use crate::{paths, run};

/// Trials of each row where none are asked for.
const TRIALS: u32 = 3;
/// The same for Linux guests, which take their time.
const LINUX_TRIALS: u32 = 1;

/// One row of the table: a policy and its trials.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it is called: the policy, and the side of a comparison.
    pub name: String,
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

/// One row, ready to run.
struct Job {
    /// The setup, by its place.
    setup: usize,
    /// What the table calls the row.
    name: String,
    /// The row of the results.
    variant: Variant,
    policy: String,
    scenario: Scenario,
    programs: Programs,
}

/// A setup's bundle: policies and sides have the same.
struct Bundle {
    setup: Setup,
    path: std::path::PathBuf,
    hash: String,
    bytes: u64,
}

/// Measures and prints.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let programs = image::build()?;
    let own_guest = run::read_kernel(&programs.guest.image)?;
    let scratch = paths::scratch()?;
    let mut bundles: Vec<Bundle> = Vec::new();
    let mut list: Vec<Job> = Vec::new();
    let mut notes = Vec::new();
    for arm in Arm::of(args)? {
        notes.extend(arm.note());
        let args = arm.args(args);
        let policies = policies(&args)?;
        for (place, mut setup) in Setup::wanted(&args)?.into_iter().enumerate() {
            setup.fetch()?;
            let mut scenario = setup.scenario(&args, &own_guest)?;
            for policy in &policies {
                scenario.set_option("vmid.policy", policy);
                scenario.check("the command line")?;
                let variant = arm.row(row(&setup, policy, &policies[0], &scenario));
                let (name, policy) = (arm.name(policy), policy.clone());
                let (scenario, programs) = (scenario.clone(), arm.programs(&programs));
                list.push(Job { setup: place, name, variant, policy, scenario, programs });
            }
            if bundles.len() == place {
                let bundle = fit::write(&scenario)?;
                let path = scratch.path().join(format!("{place}.itb"));
                bundle.write(&path)?;
                bundles.push(Bundle { setup, path, hash: bundle.hash, bytes: bundle.bytes.len() as u64 });
            }
        }
    }
    let launch_of = |job: &Job| run::launch(&job.programs, &job.scenario, &bundles[job.setup].path);
    let launch = launch_of(list.first().context("there is nothing to run")?)?;
    let deterministic = launch.machine.deterministic;
    let about = About {
        bench: "vmid",
        question: "What do VMID policies cost when many VMs share few CPUs, and few VMIDs?",
        quantities: quantities::all(deterministic),
        variants: list.iter().map(|job| job.variant.clone()).collect(),
        shares: Vec::new(),
        notes: notes.clone(),
    };
    let mut experiment = Experiment::begin(args, about, &programs, &launch)?;
    let trials = args.trials.unwrap_or(if args.load == LoadName::Linux { LINUX_TRIALS } else { TRIALS });
    let seeded = args.options.iter().any(|(key, _)| key == "sched.seed");
    for (place, bundle) in bundles.iter().enumerate() {
        let jobs: Vec<&Job> = list.iter().filter(|job| job.setup == place).collect();
        let launch = launch_of(jobs[0])?;
        let at_once = jobs::at_once(deterministic);
        host::check_memory(&launch, at_once.min(jobs.len()))?;
        let limits = args.limits(bundle.setup.limits());
        let name = |job: &&Job| format!("setup {}, {}", bundle.setup.name, job.name);
        let measured = experiment.measure(&jobs, name, at_once, trials, |job, run, step| {
            let scenario = in_trial(&job.scenario, run.trial, seeded);
            let launch = run::launch(&job.programs, &scenario, &bundle.path)?;
            let (captured, trial) = trial::run(&launch, &bundle.setup, &limits, run.log.as_deref(), step)?;
            let measured = Measured::new(&job.variant.name, quantities::values(&trial), &captured)?;
            Ok((vec![Measured { bundle: bundle.hash.clone(), ..measured }], trial))
        })?;
        let mut rows: Vec<Row> = jobs
            .iter()
            .map(|job| Row { name: job.name.clone(), policy: job.policy.clone(), trials: Vec::new() })
            .collect();
        let count = rows.len();
        for (index, trial) in measured.into_iter().enumerate() {
            rows[index % count].trials.push(trial);
        }
        let setup = bundle.setup.clone();
        let bundle_bytes = bundle.bytes;
        let outcome = Outcome { setup, launch, bundle: bundle.hash.clone(), bundle_bytes, rows };
        println!("{}", table::text(&outcome));
        for sign in table::signs(&outcome) {
            let seen = if sign.seen { "as expected" } else { "NOT AS EXPECTED" };
            experiment.note(format!("setup {}, {seen}: {}", outcome.setup.name, sign.text));
        }
    }
    for note in notes {
        println!("{note}");
    }
    let results = experiment.end()?;
    print!("{}", text::spreads(&results));
    Ok(results)
}

/// The scenario with a trial's seeds.
fn in_trial(scenario: &Scenario, trial: u32, seeded: bool) -> Scenario {
    let mut scenario = scenario.clone();
    if !seeded {
        // Trials differ in the order in which their VMs start, so that they are samples even where the clock is exact.
        scenario.set_option("sched.seed", &trial.to_string());
    }
    // And in the machine's random numbers: where a Linux kernel lies decides how its scheduler's first steps fall out.
    scenario.machine.seed = trial;
    scenario
}

/// A row of the results: a policy under a setup, compared with the first policy.
fn row(setup: &Setup, policy: &str, first: &str, scenario: &Scenario) -> Variant {
    let name = |policy: &str| format!("{}: {policy}", setup.name);
    Variant {
        name: name(policy),
        group: format!("Setup {}: {}", setup.name, setup.describe()),
        base: (policy != first).then(|| name(first)),
        settings: scenario.options.iter().cloned().collect(),
        published: published(setup.name, policy),
    }
}

/// What E1 published, from other hardware: seconds and exits. Setup 2's row without the clear was misprinted.
fn published(setup: &str, policy: &str) -> Vec<Published> {
    let (time, exits) = match (setup, policy) {
        ("1", "global") => (44.438_138_88, 145_348_264.0),
        ("1", "v3-clear-zero") => (46.597_890_34, 133_587_307.0),
        ("1", "v3-no-clear") => (44.503_178_2, 144_443_188.0),
        ("2", "global") => (46.199_632_66, 23_699_546.0),
        ("2", "v3-clear-zero") => (45.833_077_36, 23_260_203.0),
        _ => return Vec::new(),
    };
    let figure = |label: &str, value: f64| Published { label: label.into(), value };
    vec![figure("s", time), figure("exits", exits)]
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
