//! The `micro` bench: what single operations cost, by the guest's own clock.
//!
//! Four runs with Odometer (two vCPUs pinned to two CPUs; two VMs on one CPU; the boot with one and with
//! eight VMs) and one of the same guest without a hypervisor are merged into one table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::micro_table::{self, Bounded, Measured, OPERATIONS, Results};
use super::{BenchArgs, LoadName, jobs};
use crate::fit;
use crate::image::{self, Programs};
use crate::progress::Progress;
use crate::qemu::capture::{self, Captured, Limits};
use crate::qemu::{Boot, Launch};
use crate::report::records::Report;
use crate::report::statistics::Sample;
use crate::scenario::{Kernel, Machine, Scenario, Vm};
use crate::{paths, run};

/// How often each operation is measured in a trial.
const ROUNDS: u32 = 1000;
/// How often the partner of the VM switch gives its CPU away: often enough to outlast the other's measurement.
const PARTNER_ROUNDS: u32 = 20 * ROUNDS;
/// Memory of each VM.
const MEMORY: u64 = 96 << 20;
/// The machine's memory where there is no hypervisor.
const NATIVE_MEMORY: u64 = 128 << 20;

/// The runs of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Operations,
    Switch,
    BootOne,
    BootEight,
    Native,
}

const RUNS: [Run; 5] = [Run::Operations, Run::Switch, Run::BootOne, Run::BootEight, Run::Native];

impl Run {
    fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Switch => "VM switch",
            Self::BootOne => "boot, 1 VM",
            Self::BootEight => "boot, 8 VMs",
            Self::Native => "no hypervisor",
        }
    }

    /// The VMs of this run.
    fn vms(self, guest: &Arc<Kernel>) -> Vec<Vm> {
        let vm = |name: &str, vcpus: u32, pin: &[u32], bootargs: String| Vm {
            vcpus,
            pin: pin.to_vec(),
            memory: MEMORY,
            bootargs,
            ..Vm::new(name, Arc::clone(guest))
        };
        let idle = || "load=idle seconds=0.001".to_string();
        match self {
            Self::Operations | Self::Native => vec![vm("micro", 2, &[0, 1], operations())],
            Self::Switch => vec![
                vm("switch", 1, &[0], format!("load=micro ops=vm_switch n={ROUNDS}")),
                vm("partner", 1, &[0], format!("load=yield n={PARTNER_ROUNDS}")),
            ],
            Self::BootOne => vec![vm("boot", 2, &[], idle())],
            Self::BootEight => vec![Vm { count: 8, ..vm("boot", 2, &[], idle()) }],
        }
    }
}

/// Bootargs for all operations of one VM.
fn operations() -> String {
    let names: Vec<&str> =
        OPERATIONS.iter().map(|operation| operation.name).filter(|name| *name != "vm_switch").collect();
    format!("load=micro ops={} n={ROUNDS}", names.join(","))
}

/// A run that is ready.
struct Job {
    run: Run,
    trial: u32,
    launch: Launch,
}

/// Measures and prints; returns the data.
///
/// # Errors
/// Anything that keeps the table from being complete.
pub fn run(args: &BenchArgs) -> Result<Value> {
    let shaped = args.cpus.is_some() || args.vms.is_some() || args.vcpus.is_some() || args.memory.is_some();
    let loaded = [args.groups, args.fds, args.loops, args.runs].iter().any(Option::is_some);
    ensure!(
        !shaped
            && !loaded
            && args.setup.is_none()
            && args.threads.is_none()
            && args.load == LoadName::Messaging,
        "--setup, --load, --threads, --cpus, --vms, --vcpus, --memory and hackbench's parameters are not for `bench micro`: its \
         machines are fixed"
    );
    let programs = image::build()?;
    let guest = run::read_kernel(&programs.guest.image)?;
    let scratch = paths::scratch()?;
    let mut list = Vec::new();
    let mut bundle = String::new();
    for run in RUNS {
        let (launch, hash) = prepare(args, run, &programs, &guest, scratch.path())?;
        if run == Run::Operations {
            bundle = hash;
        }
        list.extend((0..args.trials.unwrap_or(1)).map(|trial| Job { run, trial, launch: launch.clone() }));
    }
    let launch = list.first().context("there is nothing to run")?.launch.clone();

    let progress = Progress::new(list.len());
    let runs: Vec<Run> = list.iter().map(|job| job.run).collect();
    let at_once = if args.deterministic { jobs::DETERMINISTIC } else { 1 };
    let captured = jobs::all(list, at_once, |job| {
        let name = format!("{}, trial {}", job.run.name(), job.trial + 1);
        let mut step = progress.step(&name);
        let mut count = 0;
        let log = format!("micro-{:?}-{}.log", job.run, job.trial + 1).to_lowercase();
        let log = args.logs.as_ref().map(|logs| logs.join(log));
        let captured = capture::capture(&job.launch, &Limits::default(), log.as_deref(), &mut |line| {
            count += usize::from(line.contains("@guest "));
            step.note(format!("{count} results"));
        })
        .context(name)?;
        step.done();
        Ok(captured)
    })?;
    drop(progress);
    let captured: Vec<(Run, Captured)> = runs.into_iter().zip(captured).collect();
    let results = merge(&captured, launch, bundle)?;
    println!("{}", micro_table::text(&results));
    Ok(micro_table::data(&results))
}

/// What QEMU boots in a run, and its bundle's hash.
fn prepare(
    args: &BenchArgs,
    run: Run,
    programs: &Programs,
    guest: &Arc<Kernel>,
    directory: &Path,
) -> Result<(Launch, String)> {
    let machine = Machine {
        cpus: if run == Run::Switch { 1 } else { 2 },
        cpu: args.cpu.clone(),
        deterministic: args.deterministic,
        qemu: args.qemu.clone(),
        ..Machine::default()
    };
    let vms = run.vms(guest);
    if run == Run::Native {
        let boot = Boot {
            kernel: programs.guest.image.clone(),
            initrd: None,
            append: vms[0].bootargs.clone(),
            virtualization: false,
        };
        return Ok((Launch::new(machine, NATIVE_MEMORY, boot)?, String::new()));
    }
    let scenario = Scenario { machine, options: args.options.clone(), vms };
    scenario.check("the command line")?;
    let bundle = fit::write(&scenario)?;
    let path = directory.join(format!("{run:?}.itb"));
    bundle.write(&path)?;
    Ok((run::launch(programs, &scenario, &path)?, bundle.hash))
}

/// A guest's record of one operation.
#[derive(Debug, Deserialize)]
struct Record {
    op: String,
    #[serde(default)]
    n: u64,
    mean: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    #[serde(default)]
    skipped: bool,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    reason: String,
}

/// Puts the runs of all trials together.
fn merge(captured: &[(Run, Captured)], launch: Launch, bundle: String) -> Result<Results> {
    let mut operations = BTreeMap::new();
    let mut native = BTreeMap::new();
    let [mut image, mut overhead, mut one, mut eight] = [const { Sample { values: Vec::new() } }; 4];
    let mut version = String::new();
    for (run, captured) in captured {
        add(captured, if *run == Run::Native { &mut native } else { &mut operations }).context(run.name())?;
        if *run == Run::Native {
            continue;
        }
        let report = Report::read(&captured.reports)?;
        let end = report.end.as_ref().context("the report has no `end` record: the run was cut off")?;
        ensure!(
            end.failed == 0,
            "{}: {} VMs were stopped by the hypervisor: {}",
            run.name(),
            end.failed,
            end.reason
        );
        let boot = report.start.to_first_guest_ns.saturating_sub(report.start.zeroing_ns) as f64;
        match run {
            Run::Operations => {
                version.clone_from(&report.boot.version);
                image.values.push(report.boot.image_bytes as f64);
                overhead.values.push(report.start.vm_overhead_bytes as f64);
            }
            Run::BootOne => one.values.push(boot),
            Run::BootEight => eight.values.push(boot),
            Run::Switch | Run::Native => {}
        }
    }
    let bounded = |key, label, value, at_most, xen, instructions| Bounded {
        key,
        label,
        value,
        at_most,
        xen,
        instructions,
    };
    let bounded = vec![
        bounded("image_bytes", "image in RAM, bytes", image, 524_288.0, "1.27 MB", false),
        bounded(
            "vm_overhead_bytes",
            "memory of a VM of 2 vCPUs beside its RAM, bytes",
            overhead,
            65_536.0,
            "3.2 MB",
            false,
        ),
        bounded(
            "boot_1",
            "entry to first guest, 1 VM of 96 MiB, zeroing apart",
            one,
            5e6,
            "26 million",
            true,
        ),
        bounded("boot_8", "the same, 8 VMs", eight, 10e6, "104 million", true),
    ];
    Ok(Results { operations, native, bounded, launch, version, bundle })
}

/// Takes a run's operations in.
fn add(captured: &Captured, into: &mut BTreeMap<String, Measured>) -> Result<()> {
    for (vm, record) in &captured.guests {
        match record["kind"].as_str() {
            Some("error") => bail!("the guest {vm} reports a failure: {record}"),
            Some("end") if record["ok"] == false => bail!("the guest {vm} reports a failure: {record}"),
            Some("micro") => {}
            _ => continue,
        }
        let record = Record::deserialize(record).with_context(|| format!("the record {record}"))?;
        ensure!(!record.failed, "{} failed: {}", record.op, record.reason);
        let measured = into.entry(record.op.clone()).or_default();
        match record.mean {
            Some(mean) if !record.skipped => {
                measured.means.values.push(mean);
                measured.n = record.n;
                let merge = |old: Option<f64>, new: Option<f64>, of: fn(f64, f64) -> f64| match (old, new) {
                    (Some(old), Some(new)) => Some(of(old, new)),
                    (old, new) => old.or(new),
                };
                measured.min = merge(measured.min, record.min, f64::min);
                measured.max = merge(measured.max, record.max, f64::max);
            }
            _ => measured.skipped = Some(format!("skipped: {}", record.reason)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "micro_tests.rs"]
mod tests;
