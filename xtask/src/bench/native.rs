//! `cargo xtask bench native`: what a guest loses to the hypervisor.
//!
//! The same kernel, ramdisk and hackbench run on the same emulated machine, once as Odometer's only guest with a CPU for each vCPU,
//! and once without Odometer. Runs of the two come in turn; each pair has one seed, so that random numbers are the same.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::setups::Setup;
use super::trial::{self, hackbench};
use super::{BenchArgs, Threads, jobs, json};
use crate::progress::Progress;
use crate::qemu::capture::capture;
use crate::qemu::{Boot, Launch};
use crate::report::statistics::Sample;
use crate::report::table::{Table, grouped, with_error};
use crate::{fit, image, paths, run};

/// Trials where none are asked for.
const TRIALS: u32 = 8;
/// The rows.
const NAMES: [&str; 2] = ["without Odometer", "with Odometer"];

/// One run: seconds of a run of hackbench, and the exits, with Odometer.
struct Measured {
    time_s: f64,
    exits: Option<u64>,
}

/// Measures and prints; returns the data.
///
/// # Errors
/// Anything that keeps the table from being complete.
pub fn run(args: &BenchArgs) -> Result<Value> {
    ensure!(args.setup.is_none(), "--setup: `native` has one guest; --vcpus says how large the machine is");
    ensure!(args.threads != Some(Threads::Multi), "--threads: `native` is driven by executed instructions");
    let mut setup = Setup::one_linux(args)?;
    let programs = image::build()?;
    let own_guest = run::read_kernel(&programs.guest.image)?;
    setup.fetch()?;
    let mut scenario = setup.scenario(args, &own_guest)?;
    scenario.machine.deterministic = true;
    let bundle = fit::write(&scenario)?;
    let scratch = paths::scratch()?;
    let path = scratch.path().join("bundle.itb");
    bundle.write(&path)?;
    let linux = setup.linux.as_ref().context("there is no Linux guest")?;

    let trials = args.trials.unwrap_or(TRIALS);
    let mut list = Vec::new();
    for trial in 0..trials {
        scenario.machine.seed = trial + 1;
        let boot = Boot {
            kernel: linux.kernel.clone(),
            initrd: Some(linux.initrd.clone()),
            append: linux.append_native.clone(),
            virtualization: false,
        };
        list.push((0, trial, Launch::new(scenario.machine.clone(), setup.memory, boot)?));
        list.push((1, trial, run::launch(&programs, &scenario, &path)?));
    }
    let progress = Progress::new(list.len());
    let results = jobs::all(list, jobs::DETERMINISTIC, |(kind, trial, launch)| {
        let name = format!("{}, trial {}", NAMES[*kind], trial + 1);
        let file = |logs: &std::path::PathBuf| logs.join(format!("native-{kind}-{}.log", trial + 1));
        let log = args.logs.as_ref().map(file);
        let mut step = progress.step(&name);
        let measured = if *kind == 1 {
            let trial =
                trial::run(launch, &setup, &setup.limits(), log.as_deref(), &mut step).context(name)?;
            Measured { time_s: trial.time_s, exits: Some(trial.exits.total) }
        } else {
            let captured =
                capture(launch, &setup.limits(), log.as_deref(), &mut |_| ()).context(name.clone())?;
            let (time_s, _) = hackbench(&captured, &setup).context(name)?;
            Measured { time_s, exits: None }
        };
        step.done();
        Ok(measured)
    })?;
    drop(progress);

    let of = |kind: usize| results.iter().skip(kind).step_by(NAMES.len());
    let times = [0, 1].map(|kind| Sample::new(of(kind).map(|measured| measured.time_s * 1e3)));
    let exits = Sample::new(of(1).filter_map(|measured| measured.exits).map(|exits| exits as f64));
    println!("{}", text(&setup, &times, &exits, trials));
    let launch = run::launch(&programs, &scenario, &path)?;
    let row = |kind: usize| {
        json!({
            "name": NAMES[kind],
            "time_ms": of(kind).map(|measured| measured.time_s * 1e3).collect::<Vec<_>>(),
            "exits": of(kind).filter_map(|measured| measured.exits).collect::<Vec<_>>(),
        })
    };
    Ok(json!({
        "schema": json::SCHEMA,
        "bench": "native",
        "setup": setup.describe(),
        "machine": json::machine(&launch),
        "rows": [row(0), row(1)],
    }))
}

/// The table.
fn text(setup: &Setup, times: &[Sample; 2], exits: &Sample, trials: u32) -> String {
    let mut table = Table::new(["", "hackbench, ms (emulated)", "difference", "exits"]);
    table.row([NAMES[0], &with_error(&times[0], 2), "", ""]);
    let difference = times[1].difference(&times[0]).map_or_else(String::new, |percent| {
        let same = times[1].overlaps(&times[0]) == Some(true);
        let says = if same { "no difference " } else { "" };
        format!("{says}({percent:+.2} %)")
    });
    table.row([NAMES[1].into(), with_error(&times[1], 2), difference, grouped(exits.mean())]);
    format!(
        "{}\n\n{table}\n{trials} trials of each, in turn; times: mean ± standard error of the trials' means; exits: of a whole run, its boot \
         too; \"no difference\": the intervals overlap",
        setup.describe()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_within_the_errors_is_none() {
        let args = super::super::args("native --vcpus 2");
        let setup = Setup::one_linux(&args).unwrap();
        assert_eq!((setup.vms, setup.vcpus, setup.cpus), (1, 2, 2));
        let times = [Sample::new([100.0, 104.0]), Sample::new([101.0, 105.0])];
        let table = text(&setup, &times, &Sample::new([1500.0]), 2);
        assert!(table.contains("no difference (+0.98 %)"), "{table}");
        let times = [Sample::new([100.0, 100.2]), Sample::new([105.0, 105.2])];
        let table = text(&setup, &times, &Sample::new([1500.0]), 2);
        assert!(table.contains("(+5.00 %)") && !table.contains("no difference ("), "{table}");
    }
}
