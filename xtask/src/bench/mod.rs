//! `cargo xtask bench`: the measurements, each a table and a JSON file with the same data.

mod arm;
mod boot;
mod harness;
mod host;
mod jobs;
mod linux_syscall;
mod micro;
mod micro_table;
mod native;
mod own_guest;
mod pauth;
mod pipes;
mod quantities;
mod readv;
mod rows;
mod scenarios;
mod setups;
mod stacktrace;
mod syscall;
mod table;
mod trial;
mod vmid;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::linux::Release;
use crate::qemu::capture::Limits;
use crate::results::{Results, again, text};
use crate::scenario::{self, size};
use crate::setup::command::quoted;
use crate::{interrupt, setup};

/// What `cargo xtask bench` is asked to do.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench\n  cargo xtask bench --setup 2 --trials 5 --json vmid.json\n  \
    cargo xtask bench vmid --policies all\n  \
    cargo xtask bench --load linux\n  cargo xtask bench --load linux --vms 2 --vcpus 2\n  cargo xtask bench micro --deterministic\n  \
    cargo xtask bench native --loops 500 --runs 3 --trials 8\n  cargo xtask bench syscall --calls 10000000\n  \
    cargo xtask bench micro --deterministic --a vmid.ghost=off --b vmid.ghost=on\n  \
    cargo xtask bench scenario --scenario crowd.toml --trials 10 --warmup 1\n  cargo xtask bench --repeat vmid.json\n  \
    cargo xtask bench --cpus 4 --vms 12 --set vmid.bits=4 -- -d unimp\n\n\
    Times under emulation say nothing about hardware; counts and instructions are exact. Unless --threads asks for the \
    host's clock, executed instructions drive the clock of `vmid` with the messaging load."
)]
pub struct BenchArgs {
    /// What is measured
    #[arg(value_enum, default_value_t = Kind::Vmid)]
    pub kind: Kind,
    /// What the guests do (vmid); whose system calls are measured, our guest's or Linux's (syscall)
    #[arg(long, value_enum, default_value_t = LoadName::Messaging)]
    pub load: LoadName,
    /// The kernel of Linux guests [default: 6.1-cloud]
    #[arg(long, value_name = "NAME", value_enum)]
    pub kernel: Option<Release>,
    /// Only this setup (vmid): 1 is 128 CPUs and 128 VMs, 2 is 8 CPUs, 40 VMs and 4-bit VMIDs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub setup: Option<u32>,
    /// An option of the hypervisor, such as vmid.bits=4; may be repeated. vmid.policy leaves only that policy's row
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = scenario::assignment)]
    pub options: Vec<(String, String)>,
    /// The VMID policies to compare (vmid): all, published, or names with commas between them [default: published]
    #[arg(long, value_name = "POLICIES", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Physical CPUs of the machine, 1 to 128
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// VMs, 1 to 256
    #[arg(long, value_name = "N")]
    pub vms: Option<u32>,
    /// Virtual CPUs of each VM, 1 to 8, each with a thread (readv, pipes)
    #[arg(long, value_name = "N")]
    pub vcpus: Option<u32>,
    /// Memory of each VM, such as 96M
    #[arg(long, value_name = "SIZE", value_parser = size::argument)]
    pub memory: Option<u64>,
    /// QEMU's CPU model [default: max, or what a scenario says]
    #[arg(long, value_name = "MODEL")]
    pub cpu: Option<String>,
    /// How often each row is measured [default: 3; 1 for Linux guests and for micro]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: Option<u32>,
    /// Runs of each row before the first trial, to warm the host up
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub warmup: u32,
    /// One side of a comparison: an option of the hypervisor, cpu=MODEL, or image=FILE; may be repeated. Trials of A and B come in turn
    #[arg(long, value_name = "KEY=VALUE", value_parser = scenario::assignment)]
    pub a: Vec<(String, String)>,
    /// The other side
    #[arg(long, value_name = "KEY=VALUE", value_parser = scenario::assignment)]
    pub b: Vec<(String, String)>,
    /// What is measured (scenario); with several they are compared with the first
    #[arg(long = "scenario", value_name = "FILE.toml")]
    pub scenarios: Vec<PathBuf>,
    /// Of three scenarios (floor, with, without), the share of time that goes into what the third is without (scenario)
    #[arg(long)]
    pub share: bool,
    /// Run again what gave this file, and compare
    #[arg(long, value_name = "RESULT.json", conflicts_with_all = ["kind", "load", "setup", "options", "policies", "trials", "warmup", "a", "b", "scenarios",
        "deterministic", "threads", "calls", "qemu", "kernel", "cpus", "vms", "vcpus", "memory", "cpu", "groups", "fds", "loops", "runs", "share",
        "silence", "marker", "file_size", "pipes"])]
    pub repeat: Option<PathBuf>,
    /// The boot ends when the guest has written this to its console, `_` for a space [default: when it powers off] (boot)
    #[arg(long, value_name = "TEXT")]
    pub marker: Option<String>,
    /// Seconds without a line on the console after which a run has failed [default: 120, more for many Linux guests]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub silence: Option<u32>,
    /// Let executed instructions drive the clock: one is one nanosecond, and runs repeat [default for vmid with --load messaging]
    #[arg(long)]
    pub deterministic: bool,
    /// The emulator's threads: one for all CPUs, or one for each [default for Linux guests: single in setups 1 and 2, else multi; micro: single]
    #[arg(long, value_enum, conflicts_with = "deterministic")]
    pub threads: Option<Threads>,
    /// hackbench's groups
    #[arg(long, value_name = "N")]
    pub groups: Option<u32>,
    /// hackbench's senders (and receivers) in a group
    #[arg(long, value_name = "N")]
    pub fds: Option<u32>,
    /// hackbench's messages from each sender to each receiver
    #[arg(long, value_name = "N")]
    pub loops: Option<u32>,
    /// How often each guest runs hackbench
    #[arg(long, value_name = "N")]
    pub runs: Option<u32>,
    /// Null calls (syscall) [default: 1000000]; calls of each tree (stacktrace), vectored reads (readv) and rounds of pipes (pipes) of each thread [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub calls: Option<u32>,
    /// Bytes of the file that is read (readv) [default: 1K]
    #[arg(long, value_name = "SIZE", value_parser = size::argument)]
    pub file_size: Option<u64>,
    /// Pipes that each thread has open at once (pipes) [default: 10]
    #[arg(long, value_name = "N")]
    pub pipes: Option<u32>,
    /// Write the results to this file [default: odometer/results/NAME-TIME.json in cargo's target directory]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep each run's console in this directory
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
    /// QEMU's own options, after `--`
    #[arg(last = true, value_name = "QEMU ARGS")]
    pub qemu: Vec<String>,
    /// The words of this command line, to be recorded.
    #[arg(skip)]
    pub command: Vec<String>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// VMID policies under many VMs
    Vmid,
    /// Single operations: hypercall, interrupt, VM switch, ...
    Micro,
    /// hackbench in one Linux guest, against the same kernel on the same machine without Odometer
    Native,
    /// Boots of a Linux guest and of our own (E2, E3)
    Boot,
    /// System calls of a program with the kernel in its map or not (E4)
    Syscall,
    /// Stack traces by frame pointers and by a shadow call stack (E2)
    Stacktrace,
    /// Pointer authentication under both of QEMU's algorithms (E2)
    Pauth,
    /// Vectored reads of single bytes under shadow memory (E3)
    Readv,
    /// Pipes opened and closed under shadow memory (E3)
    Pipes,
    /// Any scenario, or several against each other
    Scenario,
}

/// How the emulator runs its CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Threads {
    /// One after the other on one thread
    Single,
    /// Each on a thread of its own
    Multi,
}

/// What guests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoadName {
    /// The bare-metal guest's load with hackbench's parameters and meaning
    Messaging,
    /// hackbench itself, in Debian's unmodified Linux
    Linux,
}

/// Does `cargo xtask bench`.
///
/// # Errors
/// Anything that keeps the results from being complete; what was measured until then is in the file.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    match &args.repeat {
        Some(file) => repeat(args, file)?,
        None => {
            measure(&BenchArgs {
                command: own_words(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
                ..args.clone()
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The CPU model where none is asked for.
const CPU: &str = "max";

impl BenchArgs {
    /// Refuses what makes up a machine of many VMs, for a bench that has a machine of its own: `why` says which.
    fn refuse_shape(&self, why: &str) -> Result<()> {
        let threads = self.vcpus.filter(|_| !matches!(self.kind, Kind::Readv | Kind::Pipes));
        let shaped = [self.setup, self.cpus, self.vms, threads].iter().any(Option::is_some);
        let loaded = [self.groups, self.fds, self.loops, self.runs].iter().any(Option::is_some);
        let linux = self.kind == Kind::Boot || self.load == LoadName::Linux;
        ensure!(
            self.kernel.is_none() || linux,
            "--kernel chooses the kernel of Linux guests, and this bench has none: {why}"
        );
        let load = self.kind == Kind::Syscall || self.load == LoadName::Messaging;
        ensure!(
            !shaped && !loaded && load && self.policies.is_empty(),
            "--setup, --load, --policies, --cpus, --vms, --vcpus and hackbench's parameters are not for this bench: {why}"
        );
        Ok(())
    }

    /// How long a run may take, where `usual` is said of it.
    fn limits(&self, usual: Limits) -> Limits {
        let Some(silence) = self.silence else { return usual };
        let silence = Duration::from_secs(silence.into());
        Limits { silence, total: usual.total.max(8 * silence) }
    }
}

/// Measures and prints.
fn measure(args: &BenchArgs) -> Result<Results> {
    let single =
        matches!(args.kind, Kind::Syscall | Kind::Stacktrace | Kind::Pauth | Kind::Readv | Kind::Pipes);
    ensure!(
        args.calls.is_none() || single,
        "--calls is for `bench syscall`, `stacktrace`, `pauth`, `readv` and `pipes`"
    );
    let scenarios = args.kind == Kind::Scenario;
    ensure!(
        scenarios != args.scenarios.is_empty(),
        "--scenario is for `bench scenario`, which needs at least one"
    );
    ensure!(args.file_size.is_none() || args.kind == Kind::Readv, "--file-size is for `bench readv`");
    ensure!(args.pipes.is_none() || args.kind == Kind::Pipes, "--pipes is for `bench pipes`");
    ensure!(args.marker.is_none() || args.kind == Kind::Boot, "--marker is for `bench boot`");
    ensure!(!args.share || args.scenarios.len() == 3, "--share takes three scenarios: floor, with, without");
    for path in [&args.json, &args.logs].into_iter().flatten() {
        writable(path)?;
    }
    if let Some(logs) = &args.logs {
        std::fs::create_dir_all(logs).with_context(|| format!("--logs: making {}", logs.display()))?;
    }
    // Before anything long begins.
    setup::qemu()?;
    let results = match args.kind {
        // These two have tables of their own.
        Kind::Vmid => return vmid::run(args),
        Kind::Micro => return micro::run(args),
        Kind::Native => native::run(args)?,
        Kind::Boot => boot::run(args)?,
        Kind::Syscall if args.load == LoadName::Linux => {
            args.refuse_shape("it has one guest with one vCPU")?;
            linux_syscall::run(args)?
        }
        Kind::Syscall => syscall::run(args)?,
        Kind::Stacktrace => stacktrace::run(args)?,
        Kind::Pauth => pauth::run(args)?,
        Kind::Readv => readv::run(args)?,
        Kind::Pipes => pipes::run(args)?,
        Kind::Scenario => scenarios::run(args)?,
    };
    println!("{}", text::text(&results));
    Ok(results)
}

/// Runs again what gave a file, and shows both.
fn repeat(args: &BenchArgs, file: &Path) -> Result<()> {
    use crate::cli::{Cli, Command};
    let then = Results::read(file).context("--repeat")?;
    let shown: Vec<String> = then.command.iter().map(|word| quoted(word)).collect();
    eprintln!("again: cargo xtask bench {}", shown.join(" "));
    let words = ["xtask", "bench"].into_iter().chain(then.command.iter().map(String::as_str));
    let parsed = <Cli as clap::Parser>::try_parse_from(words).map(|cli| cli.command);
    let parsed = parsed.with_context(|| format!("--repeat {}: its `command`", file.display()))?;
    let Command::Bench(parsed) = parsed else {
        bail!("--repeat {}: its `command` is no bench", file.display())
    };
    let again = BenchArgs {
        json: args.json.clone(),
        logs: args.logs.clone(),
        command: then.command.clone(),
        ..parsed
    };
    let now = measure(&again)?;
    print!("{}", again::text(&then, &now));
    Ok(())
}

/// The words behind `bench`, without the files that this run writes.
fn own_words(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.skip_while(|word| word != "bench").skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" => {
                kept.push(word);
                kept.extend(words);
                break;
            }
            "--json" | "--logs" => drop(words.next()),
            _ if word.starts_with("--json=") || word.starts_with("--logs=") => {}
            _ => kept.push(word),
        }
    }
    kept
}

/// That a file can be written is found out before a run of minutes, not after it.
///
/// # Errors
/// Its directory does not exist.
pub fn writable(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(
        parent.is_dir(),
        "{}: the directory {} does not exist; make it first",
        path.display(),
        parent.display()
    );
    Ok(())
}

/// The arguments of `cargo xtask bench LINE`, for tests.
#[cfg(test)]
fn args(line: &str) -> BenchArgs {
    use crate::cli::{Cli, Command};
    let words = ["xtask", "bench"].into_iter().chain(line.split_whitespace());
    match <Cli as clap::Parser>::try_parse_from(words).map(|cli| cli.command) {
        Ok(Command::Bench(args)) => args,
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::own_words;

    #[test]
    fn the_files_of_a_run_are_not_recorded() {
        let words = |line: &str| own_words(line.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(words("xtask bench vmid --json r.json --trials 2 --logs=x"), "vmid --trials 2");
        assert_eq!(words("xtask bench micro -- --json x"), "micro -- --json x");
        assert_eq!(words("xtask bench"), "");
    }
}
