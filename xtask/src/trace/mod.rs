//! `cargo xtask trace`: a run with a trace (`docs/trace.md`), fetched through QEMU's monitor or read from a serial port's log, and
//! written in the Trace Event Format.

mod fetch;
mod json;
mod output;
mod qmp;
mod schedule;
pub mod serial;
pub mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bench::writable;
use crate::qemu::capture::{Captured, Limits};
use crate::report::records::Report;
use crate::{fit, image, interrupt, paths, run};
use output::Taken;

pub use fetch::{Until, run as fetch};

/// What `cargo xtask trace` is asked to do.
#[derive(Debug, clap::Args)]
// A log takes the scenario's place. The two are positional, and keep their order only if it is said again.
#[command(mut_arg("scenario", |scenario| scenario.index(1).required_unless_present("from")))]
#[command(mut_arg("qemu", |qemu| qemu.index(2)))]
#[command(after_help = "Examples:\n  cargo xtask trace docs/examples/two-guests.toml -o trace.json\n  \
    cargo xtask trace --kernel Image --append 'console=ttyAMA0' --vcpus 2 --until 'Run /init' --set trace.kib=8192\n  \
    cargo xtask trace --from serial.log\n\n\
    Open the file in https://ui.perfetto.dev or Chrome's about:tracing. docs/trace.md says what it shows.")]
pub struct TraceArgs {
    /// What runs
    #[command(flatten)]
    pub what: run::What,
    /// Run nothing: read the trace from this log of a serial port, of a machine with the option trace=serial
    #[arg(long, value_name = "LOG", conflicts_with_all = ["scenario", "kernel", "seconds", "until"])]
    pub from: Option<PathBuf>,
    /// The file that gets the trace [default: trace.json, or none with --schedule]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// A file that gets which vCPU was on which CPU, for the simulation of VMID policies (docs/vmid.md)
    #[arg(long, value_name = "FILE")]
    pub schedule: Option<PathBuf>,
    /// Stop the machine after so many seconds and take the trace then, not at its end
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Stop the machine when a line with this text comes on the console
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub until: Option<String>,
}

/// Does `cargo xtask trace`.
///
/// # Errors
/// A scenario that can't run, a run that fails or has no end, a log without a trace, a file that can't be written.
pub fn run(args: TraceArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let out = args.out.or_else(|| args.schedule.is_none().then(|| "trace.json".into()));
    ensure!(out.is_none() || out != args.schedule, "--out and --schedule name the same file");
    // Before anything long begins.
    for path in [&out, &args.schedule].into_iter().flatten() {
        writable(path)?;
        ensure!(!path.is_dir(), "{}: is a directory; give a file's name", path.display());
    }
    let taken = match args.from {
        Some(log) => from_log(&log)?,
        None => {
            let until = Until { elapsed: args.seconds.map(Duration::from_secs), text: args.until };
            of_run(args.what, &until)?
        }
    };
    if let Some(out) = &out {
        taken.write(out)?;
    }
    if let Some(path) = &args.schedule {
        taken.write_schedule(path)?;
    }
    let written: Vec<_> = [out, args.schedule].into_iter().flatten().collect();
    print!("{}", taken.summary(&written));
    if let Some(error) = taken.error {
        return Err(error.context("the trace is there, and the run went wrong"));
    }
    Ok(if taken.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs a scenario and takes its trace.
fn of_run(mut what: run::What, until: &Until) -> Result<Taken> {
    what.options.push(("trace".into(), "on".into()));
    let scenario = run::scenario(&what).or_else(|error| interrupt::check().and(Err(error)))?;
    let programs = image::build()?;
    let scratch = paths::scratch()?;
    let bundle = scratch.path().join("bundle.itb");
    fit::write(&scenario)?.write(&bundle)?;
    let launch = run::launch(&programs, &scenario, &bundle)?;
    let usual = Limits::default();
    let limits = match until.elapsed {
        Some(elapsed) => Limits { silence: usual.silence + elapsed, total: usual.total + elapsed },
        None => usual,
    };
    let run = fetch(&launch, &limits, None, until, &mut |line| {
        if !line.starts_with('@') {
            println!("{line}");
        }
    })?;
    let waited = until.text.as_ref().filter(|_| !(run.came || run.is_cut));
    let never =
        waited.map(|text| anyhow::anyhow!("--until {text}: never came; the trace is of the whole run"));
    Ok(Taken {
        trace: run.trace,
        names: scenario.vms.iter().flat_map(|vm| vm.names()).collect(),
        about: json!({
            "odometer": env!("CARGO_PKG_VERSION"),
            "qemu": launch.version_text(),
            "flags": launch.behaviour().join(" "),
            "options": launch.boot.append,
        }),
        is_cut: run.is_cut,
        failed: run.faulted || (!run.is_cut && Report::read(&run.captured.reports)?.a_vm_failed()),
        error: run.error.or(never),
    })
}

/// Takes the trace from a log.
fn from_log(path: &Path) -> Result<Taken> {
    let log = std::fs::read(path).with_context(|| format!("--from: reading {}", path.display()))?;
    let wrong = || format!("--from: {}", path.display());
    let captured = Captured::from_log(&String::from_utf8_lossy(&log)).with_context(wrong)?;
    let trace = serial::read(&captured.reports).with_context(wrong)?;
    let report = Report::read(&captured.reports).with_context(wrong)?;
    Ok(Taken {
        trace,
        names: serial::names(&captured.reports),
        about: json!({ "odometer": report.boot.version, "log": path }),
        is_cut: false,
        failed: report.a_vm_failed(),
        error: None,
    })
}
