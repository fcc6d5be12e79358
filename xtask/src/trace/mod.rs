//! `cargo xtask trace`: a run with a trace (`docs/trace.md`), fetched through QEMU's monitor and written in the Trace Event Format.

mod fetch;
mod json;
mod qmp;
mod schedule;
pub mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::qemu::capture::Limits;
use crate::report::records::Report;
use crate::report::table::grouped;
use crate::{fit, image, interrupt, paths, run};
use json::Names;
use odometer::trace::Decoded;

pub use fetch::{Run, Until, run as fetch};

/// What `cargo xtask trace` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask trace docs/examples/two-guests.toml -o trace.json\n  \
    cargo xtask trace --kernel Image --append 'console=ttyAMA0' --vcpus 2 --until 'Run /init' --set trace.kib=8192\n\n\
    Open the file in https://ui.perfetto.dev or Chrome's about:tracing. docs/trace.md says what it shows.")]
pub struct TraceArgs {
    /// What runs
    #[command(flatten)]
    pub what: run::What,
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
    #[arg(long, value_name = "TEXT")]
    pub until: Option<String>,
}

/// Does `cargo xtask trace`.
///
/// # Errors
/// A scenario that can't run, a run that fails or has no end, a file that can't be written.
pub fn run(mut args: TraceArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    args.what.options.push(("trace".into(), "on".into()));
    let scenario = run::scenario(&args.what).or_else(|error| interrupt::check().and(Err(error)))?;
    let programs = image::build()?;
    let scratch = paths::scratch()?;
    let bundle = scratch.path().join("bundle.itb");
    fit::write(&scenario)?.write(&bundle)?;
    let launch = run::launch(&programs, &scenario, &bundle)?;
    let until = Until { elapsed: args.seconds.map(Duration::from_secs), text: args.until };
    let usual = Limits::default();
    let limits = match until.elapsed {
        Some(elapsed) => Limits { silence: usual.silence + elapsed, total: usual.total + elapsed },
        None => usual,
    };
    let run = fetch(&launch, &limits, None, &until, &mut |line| {
        if !line.starts_with('@') {
            println!("{line}");
        }
    })?;
    let names: Vec<String> = scenario.vms.iter().flat_map(|vm| vm.names()).collect();
    let about = json!({
        "odometer": env!("CARGO_PKG_VERSION"),
        "qemu": launch.version_text(),
        "flags": launch.behaviour().join(" "),
        "options": launch.boot.append,
        "events overwritten": lost(&run.trace),
    });
    if let Some(path) = &args.schedule {
        ensure!(
            lost(&run.trace) == 0,
            "--schedule: {} events were overwritten, and a schedule must be whole: set a larger trace.kib",
            lost(&run.trace)
        );
        let text =
            schedule::text(&run.trace, &format!("{} {}", launch.behaviour().join(" "), launch.boot.append));
        paths::write_whole(path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    let out = args.out.or_else(|| args.schedule.is_none().then(|| "trace.json".into()));
    if let Some(out) = &out {
        write(out, &run.trace, &names, &about)?;
    }
    let written: Vec<_> = [out, args.schedule].into_iter().flatten().collect();
    print!("{}", summary(&run, &written));
    let failed = !run.is_cut && Report::read(&run.captured.reports)?.a_vm_failed();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Events that rings no longer hold.
fn lost(trace: &Decoded) -> u64 {
    trace.cpus.iter().map(|cpu| cpu.lost).sum()
}

/// Writes the file.
fn write(out: &Path, trace: &Decoded, names: &[String], about: &Value) -> Result<()> {
    let marks = timeline::of(trace);
    let mut bytes = Vec::new();
    json::write(&mut bytes, trace, &marks, &Names { vms: names }, about)?;
    paths::write_whole(out, &bytes).with_context(|| format!("writing {}", out.display()))
}

/// What there is in it, for a person.
fn summary(run: &Run, written: &[PathBuf]) -> String {
    let trace = &run.trace;
    let events: usize = trace.cpus.iter().map(|cpu| cpu.events.len()).sum();
    let cut = if run.is_cut { ", up to where it was stopped" } else { "" };
    let names: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    let mut text = format!(
        "\n{}: {} events of {} CPUs{cut}\n",
        names.join(", "),
        grouped(events as f64),
        trace.cpus.len()
    );
    let lost = lost(trace);
    if lost > 0 {
        let full = trace.cpus.iter().filter(|cpu| cpu.lost > 0).count();
        text.push_str(&format!(
            "{} older events of {full} CPUs were overwritten: a larger trace.kib keeps more (--set trace.kib=...)\n",
            grouped(lost as f64)
        ));
    }
    text
}
