//! `cargo xtask bench native`: what a guest loses to the hypervisor.
//!
//! The same kernel, ramdisk and hackbench run on the same emulated machine, once as Odometer's only guest with a CPU for each vCPU,
//! and once without Odometer. Runs of the two come in turn; each pair has one seed, so that random numbers are the same.

use anyhow::{Context, Result, ensure};

use super::arm::Arm;
use super::harness::{About, Experiment, Measured, count};
use super::setups::Setup;
use super::trial::{self, hackbench};
use super::{BenchArgs, Threads, jobs};
use crate::qemu::capture::capture;
use crate::qemu::{Boot, Launch};
use crate::results::{Quantity, Results, Variant};
use crate::{fit, image, paths, run};

/// Trials where none are asked for.
const TRIALS: u32 = 8;
/// The rows.
const NAMES: [&str; 2] = ["without Odometer", "with Odometer"];

/// One of the two, ready to run.
struct Job {
    row: String,
    launch: Launch,
    odometer: bool,
}

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    ensure!(args.policies.is_empty(), "--policies is for `bench vmid`; give --a and --b vmid.policy=NAME");
    ensure!(args.setup.is_none(), "--setup: `native` has one guest; --vcpus says how large the machine is");
    ensure!(args.threads != Some(Threads::Multi), "--threads: `native` is driven by executed instructions");
    let mut setup = Setup::one_linux(args)?;
    let programs = image::build()?;
    let own_guest = run::read_kernel(&programs.guest.image)?;
    setup.fetch()?;
    let scratch = paths::scratch()?;
    let path = scratch.path().join("bundle.itb");
    let linux = setup.linux.as_ref().context("there is no Linux guest")?;

    let group = setup.describe();
    let row = |name: &str, base: Option<&str>| Variant {
        name: name.into(),
        group: group.clone(),
        base: base.map(Into::into),
        ..Variant::default()
    };
    let mut about = About {
        bench: "native",
        question: "What does a Linux guest lose to the hypervisor?",
        quantities: vec![
            Quantity {
                key: "time".into(),
                label: "hackbench, ms (by instructions)".into(),
                digits: 2,
                emulated: false,
            },
            count("exits", "exits, boot included"),
        ],
        variants: vec![row(NAMES[0], None)],
        shares: Vec::new(),
        notes: vec!["Runs of both have the same seeds.".into()],
    };
    let mut list = Vec::new();
    let mut bundle_hash = String::new();
    for arm in Arm::of(args)? {
        about.notes.extend(arm.note());
        let mut scenario = setup.scenario(args, &own_guest)?;
        scenario.machine.deterministic = true;
        scenario.machine.cpu = arm.cpu(&scenario.machine.cpu);
        for (key, value) in &arm.options {
            scenario.set_option(key, value);
        }
        scenario.check("the command line")?;
        if list.is_empty() {
            // All sides have the same bundle: they differ in options, the CPU, or the hypervisor.
            let bundle = fit::write(&scenario)?;
            bundle.write(&path)?;
            bundle_hash = bundle.hash;
            let boot = Boot {
                kernel: linux.kernel.clone(),
                initrd: Some(linux.initrd.clone()),
                append: linux.append_native.clone(),
                virtualization: false,
            };
            let launch = Launch::new(scenario.machine.clone(), setup.memory, boot)?;
            list.push(Job { row: NAMES[0].into(), launch, odometer: false });
        }
        let launch = run::launch(&arm.programs(&programs), &scenario, &path)?;
        let mut row = arm.row(row(NAMES[1], Some(NAMES[0])));
        row.base = row.base.filter(|base| base.starts_with(NAMES[1])).or_else(|| Some(NAMES[0].into()));
        list.push(Job { row: row.name.clone(), launch, odometer: true });
        about.variants.push(row);
    }
    let launch = &list.last().context("there is nothing to run")?.launch;
    let mut experiment = Experiment::begin(args, about, &programs, launch)?;
    let limits = args.limits(setup.limits());
    let trials = args.trials.unwrap_or(TRIALS);
    experiment.measure(
        &list,
        |job| job.row.clone(),
        jobs::at_once(true),
        trials,
        |job, run, step| {
            let mut launch = job.launch.clone();
            launch.machine.seed = run.trial;
            let log = run.log.as_deref();
            let (captured, values) = if job.odometer {
                let (captured, trial) = trial::run(&launch, &setup, &limits, log, step)?;
                (captured, vec![("time", trial.time_s * 1e3), ("exits", trial.exits.total as f64)])
            } else {
                let captured = capture(&launch, &limits, log, &mut |_| ())?;
                let (time_s, _) = hackbench(&captured, &setup)?;
                (captured, vec![("time", time_s * 1e3)])
            };
            Ok((
                vec![Measured { bundle: bundle_hash.clone(), ..Measured::new(&job.row, values, &captured)? }],
                (),
            ))
        },
    )?;
    experiment.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_cpu_for_each_vcpu() {
        let setup = Setup::one_linux(&super::super::args("native --vcpus 2")).unwrap();
        assert_eq!((setup.vms, setup.vcpus, setup.cpus), (1, 2, 2));
        assert!(Setup::one_linux(&super::super::args("native --vms 2")).is_err());
    }
}
