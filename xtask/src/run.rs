//! `cargo xtask run`: a scenario, or one kernel, with a person at the console.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::image::{self, Programs};
use crate::qemu::{Boot, Launch, interactive};
use crate::report::records::Report;
use crate::report::summary;
use crate::scenario::{self, Kernel, Machine, Scenario, Vm, kernel, size};
use crate::{fit, interrupt, paths};

/// What runs, and on which machine.
#[derive(Debug, clap::Args)]
pub struct What {
    /// The scenario file (TOML)
    #[arg(value_name = "SCENARIO.toml", required_unless_present = "kernel", conflicts_with = "kernel")]
    pub scenario: Option<PathBuf>,
    /// Boot this kernel as the only guest, without a scenario: an arm64 Image (packed, too), an ELF file or a raw
    /// binary; `guest` for Odometer's own
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The guest's ramdisk
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub initrd: Option<PathBuf>,
    /// The guest's command line
    #[arg(long, value_name = "ARGS", requires = "kernel", allow_hyphen_values = true, default_value = "")]
    pub append: String,
    /// The guest's virtual CPUs, 1 to 8
    #[arg(long, value_name = "N", requires = "kernel", default_value_t = 1)]
    pub vcpus: u32,
    /// The guest's memory, such as 96M or 1G
    #[arg(long, value_name = "SIZE", requires = "kernel", value_parser = size::argument, default_value = "512M")]
    pub memory: u64,
    /// Physical CPUs of the machine
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// QEMU's CPU model, such as max or cortex-a57
    #[arg(long, value_name = "MODEL")]
    pub cpu: Option<String>,
    /// An option of the hypervisor, such as vmid.bits=4; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = scenario::assignment)]
    pub options: Vec<(String, String)>,
    /// Let executed instructions drive the clock, so that a run repeats exactly
    #[arg(long)]
    pub deterministic: bool,
    /// QEMU's own options, after `--`
    #[arg(last = true, value_name = "QEMU ARGS")]
    pub qemu: Vec<String>,
}

/// What `cargo xtask run` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask run two-guests.toml\n  \
    cargo xtask run --kernel Image --initrd initrd.img --append 'console=ttyAMA0' --memory 512M\n  \
    cargo xtask run two-guests.toml --set vmid.bits=4 -- -d guest_errors -D qemu.log\n\n\
    docs/scenario.md describes scenario files.")]
pub struct RunArgs {
    /// What runs
    #[command(flatten)]
    pub what: What,
    /// Show the hypervisor's records (JSON lines) among the output, and no table at the end
    #[arg(long)]
    pub records: bool,
    /// Write the bundle to this file, and don't run
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

/// Does `cargo xtask run`. It fails, too, if the hypervisor had to stop a VM.
///
/// # Errors
/// A scenario that can't run, a build that fails, a QEMU that ends with an error.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    // A build that Ctrl-C ended is no fault of the scenario.
    let scenario = scenario(&args.what).or_else(|error| interrupt::check().and(Err(error)))?;
    let bundle = fit::write(&scenario)?;
    if let Some(path) = &args.bundle {
        bundle.write(path)?;
        println!("{}: {} bytes, {}", path.display(), bundle.bytes.len(), bundle.hash);
        println!("options: {}", scenario.hypervisor_arguments());
        return Ok(ExitCode::SUCCESS);
    }
    let programs = image::build()?;
    let scratch = paths::scratch()?;
    let path = scratch.path().join("bundle.itb");
    bundle.write(&path)?;
    let launch = launch(&programs, &scenario, &path)?;
    let outcome = interactive::run(&launch, args.records)?;
    let report = Report::read(&outcome.reports)?;
    if !args.records {
        print!("{}", summary::text(&report));
    }
    Ok(if report.a_vm_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The launch of the hypervisor with a scenario's bundle.
///
/// # Errors
/// No QEMU.
pub fn launch(programs: &Programs, scenario: &Scenario, bundle: &Path) -> Result<Launch> {
    let boot = Boot {
        kernel: programs.odometer.image.clone(),
        initrd: Some(bundle.to_path_buf()),
        append: scenario.hypervisor_arguments(),
        virtualization: true,
    };
    Launch::new(scenario.machine.clone(), scenario.machine_memory(), boot)
}

/// Odometer's own guest kernel, built now.
///
/// # Errors
/// A build that fails.
pub fn own_guest() -> Result<Arc<Kernel>> {
    read_kernel(&image::build()?.guest.image)
}

/// A kernel from a file.
///
/// # Errors
/// A file that can't be read or is no kernel.
pub fn read_kernel(path: &Path) -> Result<Arc<Kernel>> {
    let bytes = std::fs::read(path).with_context(|| format!("--kernel: reading {}", path.display()))?;
    let kernel = kernel::parse(&bytes).with_context(|| format!("--kernel: {}", path.display()))?;
    Ok(Arc::new(kernel))
}

/// The scenario that the command line asks for.
///
/// # Errors
/// One that can't run.
pub fn scenario(args: &What) -> Result<Scenario> {
    let (mut scenario, source) = match (&args.scenario, &args.kernel) {
        (Some(file), _) => (Scenario::load(file, &own_guest)?, file.display().to_string()),
        (None, Some(kernel)) => (one_guest(args, kernel)?, "the command line".into()),
        (None, None) => anyhow::bail!("give a scenario file or --kernel FILE"),
    };
    if let Some(cpus) = args.cpus {
        scenario.machine.cpus = cpus;
    }
    if let Some(cpu) = &args.cpu {
        scenario.machine.cpu.clone_from(cpu);
    }
    if args.deterministic {
        scenario.machine.deterministic = true;
        scenario.machine.multi_threaded = false;
    }
    for (key, value) in &args.options {
        scenario.set_option(key, value);
    }
    scenario.machine.qemu.extend(args.qemu.iter().cloned());
    // What the command line changed may not fit what the file has.
    scenario.check(&source)?;
    Ok(scenario)
}

/// One guest, its console as it is.
fn one_guest(args: &What, kernel: &Path) -> Result<Scenario> {
    let kernel = if kernel == Path::new(scenario::OWN_GUEST) { own_guest()? } else { read_kernel(kernel)? };
    let mut vm = Vm::new("guest", kernel);
    vm.vcpus = args.vcpus;
    vm.memory = args.memory;
    vm.bootargs.clone_from(&args.append);
    if let Some(path) = &args.initrd {
        let bytes = std::fs::read(path).with_context(|| format!("--initrd: reading {}", path.display()))?;
        anyhow::ensure!(
            !bytes.is_empty(),
            "--initrd: {} is empty; give a file with something in it",
            path.display()
        );
        vm.ramdisk = Some(Arc::new(bytes));
    }
    let machine = Machine { cpus: args.vcpus.max(1), multi_threaded: true, ..Machine::default() };
    let options = vec![("console.prefix".into(), "off".into())];
    Ok(Scenario { machine, options, vms: vec![vm] })
}
