//! `cargo xtask matrix`: which of Debian's kernels boot as guests, on which CPU models, with how many vCPUs.
//!
//! One run of QEMU for each kernel and CPU model; in it a VM for each number of vCPUs. A VM has booted when its init has said
//! what it runs on (`odometer.about`), all of that is as it should be, and the VM has powered itself off.

pub mod judge;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bench::writable;
use crate::image::{self, Programs};
use crate::linux::{self, Packages, Release};
use crate::progress::Progress;
use crate::qemu::capture::{Limits, capture};
use crate::scenario::{Kernel, MAX_VCPUS, Machine, Scenario, Vm, size};
use crate::{fit, interrupt, paths, run as runs};
use judge::Boot;

/// The CPU models that are tried where none are asked for.
pub const CPUS: [&str; 7] =
    ["max", "cortex-a57", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1", "a64fx"];
/// The numbers of vCPUs that are tried where none are asked for.
pub const VCPUS: [u32; 4] = [1, 2, 4, 8];

/// CPU models whose MMU knows no pages of 16 KiB (ID_AA64MMFR0_EL1.TGran16 = 0): a kernel for these stops there before it
/// can say anything, on bare hardware as well.
const WITHOUT_16K: [&str; 3] = ["cortex-a57", "cortex-a72", "a64fx"];
/// How long a run may take.
const LIMITS: Limits = Limits { silence: Duration::from_secs(240), total: Duration::from_secs(900) };
/// How long a guest may be without a sign of life, by the hypervisor's clock.
const WATCHDOG_MS: &str = "60000";

/// What `cargo xtask matrix` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask matrix\n  \
    cargo xtask matrix --kernel 6.12-16k --cpu cortex-a57 --cpu max --vcpus 4\n\n\
    The whole takes half an hour on two cores. A kernel that is not there is fetched (50 to 100 MB each).")]
pub struct MatrixArgs {
    /// A kernel; may be repeated [default: all]
    #[arg(long = "kernel", value_name = "NAME", value_enum)]
    pub kernels: Vec<Release>,
    /// QEMU's CPU model; may be repeated [default: all that Odometer is tested on]
    #[arg(long = "cpu", value_name = "MODEL")]
    pub cpus: Vec<String>,
    /// Virtual CPUs of a VM, 1 to 8; may be repeated [default: 1, 2, 4 and 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_VCPUS)))]
    pub vcpus: Vec<u32>,
    /// Physical CPUs of the machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub machine_cpus: u32,
    /// Memory of each VM, such as 192M
    #[arg(long, value_name = "SIZE", value_parser = size::argument, default_value = "192M")]
    pub memory: u64,
    /// Write the data to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep each run's console in this directory
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
}

/// What came of each number of vCPUs.
type Boots = Vec<(u32, Result<Boot>)>;

/// One run of QEMU: a kernel on a CPU model.
#[derive(Debug)]
pub struct Row {
    /// The kernel.
    pub release: Release,
    /// Its packages, with versions.
    pub packages: String,
    /// The CPU model.
    pub cpu: String,
    /// What came of each number of vCPUs. None where the CPU has no pages of the kernel's size.
    pub boots: Boots,
    /// How long the run took on the host.
    pub took: Duration,
}

/// Does `cargo xtask matrix`. The exit code is 0 only if everything has booted.
///
/// # Errors
/// What keeps a run from being tried at all: a build that fails, packages that can't be had, Ctrl-C.
pub fn run(args: &MatrixArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    for path in [&args.json, &args.logs].into_iter().flatten() {
        writable(path)?;
    }
    if let Some(logs) = &args.logs {
        std::fs::create_dir_all(logs).with_context(|| format!("--logs: making {}", logs.display()))?;
    }
    let or = |given: &[u32], all: &[u32]| if given.is_empty() { all.to_vec() } else { given.to_vec() };
    let vcpus = or(&args.vcpus, &VCPUS);
    let releases = if args.kernels.is_empty() { Release::ALL.to_vec() } else { args.kernels.clone() };
    let cpus = if args.cpus.is_empty() { CPUS.map(String::from).to_vec() } else { args.cpus.clone() };
    let programs = image::build()?;
    let mut rows = Vec::new();
    let progress = Progress::new(releases.len() * cpus.len());
    for &release in &releases {
        let guest = Guest::new(release)?;
        for cpu in &cpus {
            let name = format!("{release} on {cpu}");
            let step = progress.step(&name);
            let row = row(args, &programs, &guest, cpu, &vcpus)?;
            for (vcpus, error) in row.boots.iter().filter_map(|(n, boot)| Some((n, boot.as_ref().err()?))) {
                eprintln!("{name}, {vcpus} vCPUs: {error:#}");
            }
            step.done();
            rows.push(row);
        }
    }
    drop(progress);
    print!("{}", table::text(&rows, &vcpus));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&data(&rows)).context("writing JSON")? + "\n";
        crate::paths::write_whole(path, text.as_bytes())
            .with_context(|| format!("--json: writing {}", path.display()))?;
    }
    let all = rows.iter().flat_map(|row| &row.boots).all(|(_, boot)| boot.is_ok());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the guests of a row boot from.
struct Guest {
    release: Release,
    packages: Packages,
    kernel: Arc<Kernel>,
    initrd: Arc<Vec<u8>>,
}

impl Guest {
    /// Fetches what isn't there.
    fn new(release: Release) -> Result<Self> {
        let packages = linux::packages(release)?;
        let kernel = runs::read_kernel(&packages.kernel)?;
        let initrd = std::fs::read(&packages.initrd)
            .with_context(|| format!("reading {}", packages.initrd.display()))?;
        Ok(Self { release, packages, kernel, initrd: Arc::new(initrd) })
    }
}

/// The name of the VM with so many vCPUs.
fn vm_name(vcpus: u32) -> String {
    format!("linux-{vcpus}")
}

/// Boots a kernel on a CPU model, unless it can't run there.
fn row(args: &MatrixArgs, programs: &Programs, guest: &Guest, cpu: &str, vcpus: &[u32]) -> Result<Row> {
    let release = guest.release;
    let (boots, took) = if release.page_kib() == 16 && WITHOUT_16K.contains(&cpu) {
        (Vec::new(), Duration::ZERO)
    } else {
        let log = args.logs.as_ref().map(|logs| logs.join(format!("{release}-{cpu}.log")));
        boot(programs, &scenario(args, guest, cpu, vcpus)?, release, vcpus, log.as_deref())?
    };
    Ok(Row { release, packages: guest.packages.description.clone(), cpu: cpu.to_owned(), boots, took })
}

/// A VM for each number of vCPUs.
fn scenario(args: &MatrixArgs, guest: &Guest, cpu: &str, vcpus: &[u32]) -> Result<Scenario> {
    let vms = vcpus.iter().map(|&vcpus| {
        let mut vm = Vm::new(&vm_name(vcpus), Arc::clone(&guest.kernel));
        vm.ramdisk = Some(Arc::clone(&guest.initrd));
        vm.bootargs = linux::append_about();
        vm.vcpus = vcpus;
        vm.memory = args.memory;
        vm
    });
    let machine =
        Machine { cpus: args.machine_cpus, cpu: cpu.to_owned(), multi_threaded: true, ..Machine::default() };
    let options = vec![("vm.watchdog_ms".to_owned(), WATCHDOG_MS.to_owned())];
    let scenario = Scenario { machine, options, vms: vms.collect() };
    scenario.check("the command line")?;
    Ok(scenario)
}

/// Runs a scenario, and judges each of its VMs. How long it took on the host.
fn boot(
    programs: &Programs,
    scenario: &Scenario,
    release: Release,
    vcpus: &[u32],
    log: Option<&Path>,
) -> Result<(Boots, Duration)> {
    let scratch = paths::scratch()?;
    let bundle = scratch.path().join("bundle.itb");
    fit::write(scenario)?.write(&bundle)?;
    let launch = runs::launch(programs, scenario, &bundle)?;
    let start = Instant::now();
    let captured = capture(&launch, &LIMITS, log, &mut |_| {});
    interrupt::check()?;
    let judged = vcpus.iter().map(|&n| match &captured {
        Ok(captured) => (n, judge::boot(captured, &vm_name(n), release, n)),
        Err(error) => (n, Err(anyhow::anyhow!("the run failed: {error:#}"))),
    });
    Ok((judged.collect(), start.elapsed()))
}

/// The table's data as JSON.
fn data(rows: &[Row]) -> Value {
    let boots = |row: &Row| -> Vec<Value> {
        let each = row.boots.iter().map(|(vcpus, boot)| match boot {
            Ok(boot) => {
                json!({"vcpus": vcpus, "booted": true, "exits": boot.exits, "features": boot.features})
            }
            Err(error) => json!({"vcpus": vcpus, "booted": false, "error": format!("{error:#}")}),
        });
        each.collect()
    };
    let rows = rows.iter().map(|row| {
        json!({
            "kernel": row.release.name(),
            "packages": row.packages,
            "cpu": row.cpu,
            "host_s": row.took.as_secs_f64(),
            "boots": boots(row),
        })
    });
    json!({"schema": 1, "matrix": "linux", "rows": rows.collect::<Vec<_>>()})
}
