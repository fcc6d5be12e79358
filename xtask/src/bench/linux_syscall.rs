//! `cargo xtask bench syscall --load linux`: null system calls in a Linux guest, by Debian's perf, with isolation of the kernel's page tables
//! off and on (E4).

use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::arm::Arm;
use super::harness::{About, Experiment, Measured, cost};
use super::own_guest::{deterministic, number};
use super::{BenchArgs, Threads, jobs};
use crate::qemu::Launch;
use crate::qemu::capture::{Captured, Limits, capture};
use crate::results::{Published, Results, Variant};
use crate::scenario::{Machine, Scenario, Vm};
use crate::{fit, image, linux, paths, run};

/// Calls where none are asked for. The published runs had 10,000,000 and 100,000.
const CALLS: u32 = 100_000;
/// Trials where none are asked for.
const TRIALS: u32 = 3;
/// Memory of the guest: perf and its libraries are in its initramfs.
const MEMORY: u64 = 256 << 20;
/// Isolation off and on, and what was published of a null call, in microseconds, by two programs.
const ROWS: [(bool, [f64; 2]); 2] = [(false, [0.0792, 0.0803]), (true, [0.2025, 0.2024])];

/// A row on one side of a comparison, ready to run.
struct Job {
    row: String,
    isolated: bool,
    launch: Launch,
    bundle: String,
}

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let calls = args.calls.unwrap_or(CALLS);
    let deterministic = deterministic(args);
    let programs = image::build()?;
    let packages = linux::packages_with_perf(args.kernel.unwrap_or_default()).context("Linux guests")?;
    let kernel = run::read_kernel(&packages.kernel)?;
    let ramdisk =
        std::fs::read(&packages.initrd).with_context(|| format!("reading {}", packages.initrd.display()))?;
    let ramdisk = Arc::new(ramdisk);
    let scratch = paths::scratch()?;
    let mut about = About {
        bench: "syscall-linux",
        question: "What does a system call of a Linux program cost when the kernel isn't in its map?",
        quantities: vec![cost(deterministic, "a call")],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            format!("{calls} calls of getppid by `perf bench syscall basic`, in one VM with one vCPU."),
            format!("Linux: {}.", packages.description),
            "Published, other hardware: getppid by two programs.".into(),
        ],
    };
    let mut list: Vec<Job> = Vec::new();
    for arm in Arm::of(args)? {
        about.notes.extend(arm.note());
        for (isolated, published) in ROWS {
            let mut vm = Vm::new("linux", kernel.clone());
            vm.memory = args.memory.unwrap_or(MEMORY);
            vm.ramdisk = Some(ramdisk.clone());
            vm.bootargs = linux::append_perf(calls, isolated);
            let machine = Machine {
                cpus: 1,
                cpu: arm.cpu.clone(),
                deterministic,
                multi_threaded: args.threads == Some(Threads::Multi),
                qemu: args.qemu.clone(),
                ..Machine::default()
            };
            let scenario = Scenario { machine, options: arm.options.clone(), vms: vec![vm] };
            scenario.check("the command line")?;
            let bundle = fit::write(&scenario)?;
            let path = scratch.path().join(format!("{}.itb", list.len()));
            bundle.write(&path)?;
            let launch = run::launch(&arm.programs(&programs), &scenario, &path)?;
            let variant = arm.row(row(isolated, published));
            list.push(Job { row: variant.name.clone(), isolated, launch, bundle: bundle.hash });
            about.variants.push(variant);
        }
    }
    let launch = &list.first().context("there is nothing to run")?.launch;
    let mut experiment = Experiment::begin(args, about, &programs, launch)?;
    let limits = args.limits(Limits::default());
    let at_once = if deterministic { jobs::DETERMINISTIC } else { 1 };
    let trials = args.trials.unwrap_or(TRIALS);
    experiment.measure(
        &list,
        |job| job.row.clone(),
        at_once,
        trials,
        |job, run, _| {
            let mut launch = job.launch.clone();
            launch.machine.seed = run.trial;
            let captured = capture(&launch, &limits, run.log.as_deref(), &mut |_| ())?;
            let values = [("cost", call_ns(&captured, job.isolated)?)];
            Ok((
                vec![Measured { bundle: job.bundle.clone(), ..Measured::new(&job.row, values, &captured)? }],
                (),
            ))
        },
    )?;
    experiment.end()
}

fn row(isolated: bool, published: [f64; 2]) -> Variant {
    let name = |isolated: bool| format!("kpti={}", u8::from(isolated));
    let labels = ["us a call", "us a call, another program"];
    let figure = |(label, value): (&str, f64)| Published { label: label.into(), value };
    Variant {
        name: name(isolated),
        group: "null call in Linux".into(),
        base: isolated.then(|| name(false)),
        published: labels.into_iter().zip(published).map(figure).collect(),
        ..Variant::default()
    }
}

/// Nanoseconds of a call, if the kernel isolates its tables as it was told to.
fn call_ns(captured: &Captured, isolated: bool) -> Result<f64> {
    let record = captured.guests.iter().map(|(_, record)| record).find(|record| record["kind"] == "perf");
    let record = record.context("the guest has said nothing of its system calls")?;
    ensure!(record["ok"] == true, "perf failed in the guest: {record}");
    let found = number(record, "isolated")? > 0.0;
    let state = |isolated| if isolated { "on" } else { "off" };
    ensure!(
        found == isolated,
        "the kernel's log says that isolation of its page tables is {}, and it was told to have it {}",
        state(found),
        state(isolated)
    );
    Ok(number(record, "us")? * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_do_as_it_was_told_is_found() {
        let log = |isolated: u32, ok: bool| {
            let record = format!(
                "{{\"kind\":\"perf\",\"calls\":10,\"us\":0.123456,\"isolated\":{isolated},\"ok\":{ok}}}"
            );
            Captured::from_log(&format!("linux| @guest {record}")).unwrap()
        };
        assert!((call_ns(&log(1, true), true).unwrap() - 123.456).abs() < 1e-9);
        assert!(call_ns(&log(0, true), true).unwrap_err().to_string().contains("is off, and it was told"));
        assert!(call_ns(&log(1, true), false).is_err() && call_ns(&log(0, false), false).is_err());
        assert!(call_ns(&Captured::default(), false).is_err());
    }
}
