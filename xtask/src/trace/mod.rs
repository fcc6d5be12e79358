//! `cargo xtask trace`: a run with a trace (`docs/trace.md`), fetched through QEMU's monitor and written in the Trace Event Format.

mod fetch;
mod json;
mod qmp;
pub mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
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
    /// The file that gets the trace
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    pub out: PathBuf,
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
    write(&args.out, &run.trace, &names, &about)?;
    print!("{}", summary(&run, &args.out));
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
fn summary(run: &Run, out: &Path) -> String {
    let trace = &run.trace;
    let events: usize = trace.cpus.iter().map(|cpu| cpu.events.len()).sum();
    let cut = if run.is_cut { ", up to where it was stopped" } else { "" };
    let mut text =
        format!("\n{}: {} events of {} CPUs{cut}\n", out.display(), grouped(events as f64), trace.cpus.len());
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
