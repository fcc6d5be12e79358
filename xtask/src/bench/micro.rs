//! The `micro` bench: what single operations cost, by the guest's own clock.
//!
//! Four runs with Odometer (two vCPUs pinned to two CPUs; two VMs on one CPU; the boot with one and with
//! eight VMs) and one of the same guest without a hypervisor are merged into one table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::arm::Arm;
use super::harness::{About, Experiment, Measured, cost, count};
use super::micro_table::{self, Bounded, Micro, OPERATIONS, Trials};
use super::{BenchArgs, CPU, jobs};
use crate::fit;
use crate::image::{self, Programs};
use crate::qemu::capture::{self, Captured, Limits};
use crate::qemu::{Boot, Launch};
use crate::report::records::Report;
use crate::report::statistics::Sample;
use crate::results::{Published, Results, Variant, text};
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

/// A run that is ready, on one side of a comparison.
struct Job {
    run: Run,
    /// Which side.
    arm: usize,
    launch: Launch,
    bundle: String,
}

/// Measures and prints.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    args.refuse_shape("its machines are fixed")?;
    ensure!(
        args.threads.is_none() && args.memory.is_none(),
        "--threads and --memory are not for `bench micro`: its machines are fixed"
    );
    let programs = image::build()?;
    let guest = run::read_kernel(&programs.guest.image)?;
    let scratch = paths::scratch()?;
    let arms = Arm::of(args)?;
    let mut list = Vec::new();
    let mut variants = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        for run in RUNS {
            let (launch, bundle) = prepare(args, arm, run, &programs, &guest, scratch.path())?;
            list.push(Job { run, arm: index, launch, bundle });
        }
        variants.extend(rows().into_iter().map(|row| arm.row(row)));
    }
    let first = list.first().context("there is nothing to run")?;
    let (launch, bundle) = (first.launch.clone(), first.bundle.clone());
    let about = About {
        bench: "micro",
        question: "What do single operations cost?",
        quantities: vec![cost(args.deterministic, "an operation"), count("bytes", "bytes")],
        variants,
        shares: Vec::new(),
        notes: arms.iter().filter_map(Arm::note).collect(),
    };
    let mut experiment = Experiment::begin(args, about, &programs, &launch)?;
    let at_once = jobs::at_once(args.deterministic);
    let name = |job: &Job| arms[job.arm].name(job.run.name());
    let captured = experiment.measure(&list, name, at_once, args.trials.unwrap_or(1), |job, run, step| {
        let mut count = 0;
        let captured = capture::capture(
            &job.launch,
            &args.limits(Limits::default()),
            run.log.as_deref(),
            &mut |line| {
                count += usize::from(line.contains("@guest "));
                step.note(format!("{count} results"));
            },
        )?;
        let mut all = measured(job.run, &captured)?;
        for measured in &mut all {
            measured.variant = arms[job.arm].name(&measured.variant);
            measured.bundle.clone_from(&job.bundle);
        }
        Ok((all, (job.arm, job.run, captured)))
    })?;
    let results = experiment.end()?;
    for (index, arm) in arms.iter().enumerate() {
        let of_arm: Vec<(Run, Captured)> = captured
            .iter()
            .filter(|(arm, ..)| *arm == index)
            .map(|(_, run, captured)| (*run, captured.clone()))
            .collect();
        let micro = merge(&of_arm, launch.clone(), bundle.clone())?;
        println!(
            "{}{}",
            arm.note().map_or_else(String::new, |note| note + "\n\n"),
            micro_table::text(&micro)
        );
    }
    print!("{}", if arms.len() > 1 { text::text(&results) } else { text::spreads(&results) });
    Ok(results)
}

/// The rows: each operation with Odometer and without a hypervisor, and what is measured beside.
fn rows() -> Vec<Variant> {
    let row = |name: String, group: &str, at_most: Option<f64>, published: Vec<Published>| Variant {
        name,
        group: group.into(),
        settings: at_most.map(|at_most| ("at most".to_owned(), at_most.to_string())).into_iter().collect(),
        published,
        base: None,
    };
    let mut rows = Vec::new();
    for operation in &OPERATIONS {
        // What spread in two modes has no one figure.
        let figure = |label: &str, text: &str| {
            let value = text.replace(',', "").parse().ok()?;
            Some(Published { label: label.into(), value })
        };
        let published = [figure("Xen", operation.xen), figure("KVM", operation.kvm)];
        let published = published.into_iter().flatten().collect();
        rows.push(row(operation.name.into(), "with Odometer", Some(operation.at_most), published));
    }
    for operation in &OPERATIONS {
        rows.push(row(native(operation.name), "without a hypervisor", None, Vec::new()));
    }
    for name in ["image", "vm_overhead", "boot_1", "boot_8"] {
        rows.push(row(name.into(), "beside", None, Vec::new()));
    }
    rows
}

/// An operation's row without a hypervisor.
fn native(operation: &str) -> String {
    format!("{operation}, no hypervisor")
}

/// What a run measured.
fn measured(run: Run, captured: &Captured) -> Result<Vec<Measured>> {
    let mut operations = BTreeMap::new();
    add(captured, &mut operations)?;
    let mut values: Vec<(String, &str, f64)> = operations
        .into_iter()
        .filter(|(_, trials)| !trials.means.values.is_empty())
        .map(|(name, trials)| {
            (if run == Run::Native { native(&name) } else { name }, "cost", trials.means.mean())
        })
        .collect();
    let beside = beside(run, captured)?;
    values.extend(beside.into_iter().map(|(name, key, value)| (name.to_owned(), key, value)));
    let measured = |(name, key, value)| Measured::new(name, [(key, value)], captured);
    // The run's exits and times belong to none of many rows.
    let alone =
        |measured: Measured| Measured { exits: BTreeMap::new(), time_ns: BTreeMap::new(), ..measured };
    values.into_iter().map(|value| measured(value).map(alone)).collect()
}

/// What a run says beside operations: row, quantity, value.
fn beside(run: Run, captured: &Captured) -> Result<Vec<(&'static str, &'static str, f64)>> {
    if run == Run::Native {
        return Ok(Vec::new());
    }
    let report = Report::read(&captured.reports)?;
    let end = report.end.as_ref().context("the report has no `end` record: the run was cut off")?;
    ensure!(end.failed == 0, "{} VMs were stopped by the hypervisor: {}", end.failed, end.reason);
    let boot = report.start.to_first_guest_ns.saturating_sub(report.start.zeroing_ns) as f64;
    Ok(match run {
        Run::Operations => vec![
            ("image", "bytes", report.boot.image_bytes as f64),
            ("vm_overhead", "bytes", report.start.vm_overhead_bytes as f64),
        ],
        Run::BootOne => vec![("boot_1", "cost", boot)],
        Run::BootEight => vec![("boot_8", "cost", boot)],
        Run::Switch | Run::Native => Vec::new(),
    })
}

/// What QEMU boots in a run, and its bundle's hash.
fn prepare(
    args: &BenchArgs,
    arm: &Arm,
    run: Run,
    programs: &Programs,
    guest: &Arc<Kernel>,
    directory: &Path,
) -> Result<(Launch, String)> {
    let machine = Machine {
        cpus: if run == Run::Switch { 1 } else { 2 },
        cpu: arm.cpu(CPU),
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
    let scenario = Scenario { machine, options: arm.options.clone(), vms };
    scenario.check("the command line")?;
    let bundle = fit::write(&scenario)?;
    let path = directory.join(arm.name(&format!("{run:?}.itb")));
    bundle.write(&path)?;
    Ok((run::launch(&arm.programs(programs), &scenario, &path)?, bundle.hash))
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
fn merge(captured: &[(Run, Captured)], launch: Launch, bundle: String) -> Result<Micro> {
    let mut operations = BTreeMap::new();
    let mut native = BTreeMap::new();
    let mut more: BTreeMap<&str, Sample> = BTreeMap::new();
    let mut version = String::new();
    for (run, captured) in captured {
        add(captured, if *run == Run::Native { &mut native } else { &mut operations }).context(run.name())?;
        for (name, _, value) in beside(*run, captured).context(run.name())? {
            more.entry(name).or_default().values.push(value);
        }
        if *run == Run::Operations {
            version = Report::read(&captured.reports)?.boot.version;
        }
    }
    let mut taken = |name: &str| more.remove(name).unwrap_or_default();
    let bounded =
        |label, value, at_most, xen, instructions| Bounded { label, value, at_most, xen, instructions };
    let bounded = vec![
        bounded("image in RAM, bytes", taken("image"), 524_288.0, "1.27 MB", false),
        bounded(
            "memory of a VM of 2 vCPUs beside its RAM, bytes",
            taken("vm_overhead"),
            65_536.0,
            "3.2 MB",
            false,
        ),
        bounded(
            "entry to first guest, 1 VM of 96 MiB, zeroing apart",
            taken("boot_1"),
            5e6,
            "26 million",
            true,
        ),
        bounded("the same, 8 VMs", taken("boot_8"), 10e6, "104 million", true),
    ];
    Ok(Micro { operations, native, bounded, launch, version, bundle })
}

/// Takes a run's operations in.
fn add(captured: &Captured, into: &mut BTreeMap<String, Trials>) -> Result<()> {
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
