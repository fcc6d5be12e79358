//! Running one system test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};

use super::case::{Boots, Case, Emulator, Ends, Level, Outcome};
use super::linux::PERF;
use super::{bug, device_tree, el3};
use crate::audit::Record;
use crate::audit::compare::Comparison;
use crate::audit::plugin::Plugin;
use crate::image::{self, Programs};
use crate::linux::{self, Release};
use crate::qemu::capture::{Captured, capture};
use crate::qemu::{Boot, Launch};
use crate::report::records;
use crate::scenario::{Kernel, Machine, Scenario, kernel};
use crate::setup::Qemu;
use crate::test::outcome::Report;
use crate::trace;
use crate::{fit, paths, setup};

/// Lines of the log that are shown when a case fails.
const SHOWN: usize = 15;
/// And characters of each: a record of the report has thousands.
const WIDTH: usize = 240;

/// What all cases share.
pub struct Bench {
    programs: Programs,
    qemu: Qemu,
    /// The oldest QEMU, or why there is none; looked for when a case first asks.
    oldest: Mutex<Option<Result<Qemu, String>>>,
    guest: Arc<Kernel>,
    logs: PathBuf,
}

/// What a case boots, made ready.
struct Prepared {
    boot: Boot,
    machine: Machine,
    memory: u64,
    scenario: Option<Scenario>,
}

impl Bench {
    /// Builds the images and finds QEMU.
    ///
    /// # Errors
    /// One of them can't be had.
    pub fn new() -> Result<Self> {
        let programs = image::build()?;
        let guest = fs::read(&programs.guest.elf).context("reading the guest's ELF file")?;
        let logs = paths::target()?.join("test-logs");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        Ok(Self {
            qemu: setup::qemu()?,
            oldest: Mutex::new(None),
            guest: Arc::new(kernel::parse(&guest)?),
            programs,
            logs,
        })
    }

    /// Runs a case and judges it.
    pub fn run(&self, case: &Case) -> Report {
        // In CI everything must run; a person may be without a network.
        let can_skip = std::env::var_os("CI").is_none();
        let qemu = match case.emulator {
            Emulator::Usual => self.qemu.clone(),
            Emulator::Oldest => match self.oldest() {
                Ok(qemu) => qemu,
                Err(reason) => return Report::skip(&case.name, reason),
            },
        };
        let missing = |reason| {
            if can_skip { Report::skip(&case.name, reason) } else { Report::fail(&case.name, reason) }
        };
        if qemu.version < case.since {
            let (major, minor, _) = case.since;
            let (is_major, is_minor, _) = qemu.version;
            return missing(format!("needs QEMU {major}.{minor}, this is {is_major}.{is_minor}"));
        }
        let releases = case.linux.then(Release::default).into_iter().chain(case.kernels.iter().copied());
        if let Some(error) = releases.map(linux::packages).find_map(Result::err) {
            return missing(format!("no packages for Linux guests: {error:#}"));
        }
        let plugin = match case
            .audited
            .then(|| Plugin::build(&self.programs.odometer, case.traced.is_some()))
            .transpose()
        {
            Ok(plugin) => plugin,
            Err(error) => return Report::fail(&case.name, format!("{error:#}")),
        };
        if let Some(Err(error)) = plugin.as_ref().map(|plugin| plugin.probe(&qemu.path)) {
            return missing(format!("{error:#}"));
        }
        let log = self.logs.join(format!("{}.log", case.name.replace('/', "-")));
        Report::of(&case.name, &self.attempt(case, qemu, plugin.as_ref(), &log))
    }

    fn attempt(&self, case: &Case, qemu: Qemu, plugin: Option<&Plugin>, log: &Path) -> Result<()> {
        let scratch = paths::scratch()?;
        let mut prepared = self.prepare(case, scratch.path())?;
        let exceptions = scratch.path().join("exceptions.log");
        if case.logs_exceptions {
            let options = ["-d".into(), "int".into(), "-D".into(), exceptions.display().to_string()];
            prepared.machine.qemu.extend(options);
        }
        let counts = scratch.path().join("auditor.json");
        if let Some(plugin) = plugin {
            prepared.machine.qemu.extend(plugin.arguments(&counts, false));
        }
        let mut launch = Launch {
            program: qemu.path,
            version: qemu.version,
            machine: prepared.machine,
            memory: prepared.memory,
            boot: prepared.boot,
            typed: case.typed.clone(),
        };
        if let Some((address, size)) = case.reserve {
            let file = scratch.path().join("machine.dtb");
            let tree = device_tree::reserve(&launch.device_tree(&file)?, address, size)?;
            fs::write(&file, tree)?;
            launch.machine.qemu.extend(["-dtb".into(), file.display().to_string()]);
        }
        let mut lines = Vec::new();
        let mut watch = |line: &str| lines.push(line.to_owned());
        let ran = if let Some(until) = &case.traced {
            trace::fetch(&launch, &case.limits, Some(log), until, &mut watch)
                .and_then(|run| run.error.map_or(Ok((run.captured, Some(run.trace))), Err))
        } else {
            capture(&launch, &case.limits, Some(log), &mut watch).map(|captured| (captured, None))
        };
        let (captured, trace) = match ran {
            Ok(ran) => ran,
            // Judged by what it said before.
            Err(_) if case.ends == Ends::OrStops => (Captured::from_log(&lines.join("\n"))?, None),
            Err(error) => return Err(error.context(launch.behaviour().join(" "))),
        };
        let taken_to_el2 = case.logs_exceptions.then(|| taken_to_el2(&exceptions)).transpose()?;
        let audit = plugin
            .map(|_| Comparison::of(&records::Report::read(&captured.reports)?, &Record::read(&counts)?));
        let scenario = prepared.scenario.as_ref();
        let judged = audit.transpose().and_then(|audit| {
            let outcome = Outcome { captured: &captured, scenario, taken_to_el2, audit, trace };
            case.checks.iter().try_for_each(|check| check(&outcome))
        });
        judged.map_err(|error| {
            anyhow!(
                "{error:#}\n{}\nthe end of {}:\n{}",
                launch.behaviour().join(" "),
                log.display(),
                tail(&lines)
            )
        })
    }

    fn prepare(&self, case: &Case, scratch: &Path) -> Result<Prepared> {
        let odometer = self.programs.odometer.image.clone();
        Ok(match &case.boots {
            Boots::Scenario(text) => {
                let file = scratch.join("scenario.toml");
                fs::write(&file, text)?;
                for (name, bytes) in super::cases::FILES {
                    fs::write(scratch.join(name), bytes)?;
                }
                for release in &case.kernels {
                    let packages = linux::packages(*release)?;
                    symlink(&packages.kernel, scratch.join(format!("vmlinuz-{release}")))?;
                    symlink(&packages.initrd, scratch.join(format!("initramfs-{release}")))?;
                }
                if case.linux {
                    let packages = linux::packages(Release::default())?;
                    symlink(&packages.kernel, scratch.join("vmlinuz"))?;
                    symlink(&packages.initrd, scratch.join("initramfs"))?;
                    if text.contains(PERF) {
                        let packages = linux::packages_with_perf(Release::default())?;
                        symlink(&packages.initrd, scratch.join(PERF))?;
                    }
                    if text.contains(bug::FILE) {
                        fs::write(scratch.join(bug::FILE), bug::module(&packages)?)?;
                    }
                }
                let mut scenario = Scenario::load(&file, &|| Ok(Arc::clone(&self.guest)))?;
                if let Some(spoil) = case.spoil {
                    spoil(&mut scenario);
                }
                let bundle = scratch.join("bundle.itb");
                fit::write(&scenario)?.write(&bundle)?;
                let boot = Boot {
                    kernel: odometer,
                    initrd: Some(bundle),
                    append: scenario.hypervisor_arguments(),
                    virtualization: true,
                };
                let memory = scenario.machine_memory();
                Prepared { boot, machine: scenario.machine.clone(), memory, scenario: Some(scenario) }
            }
            Boots::Hypervisor { initrd, append, machine, level } => {
                let mut machine = machine.clone();
                let kernel = if *level == Level::El3 {
                    machine.qemu.extend(["-machine".into(), "secure=on".into()]);
                    let wrapped = scratch.join("odometer-at-el3");
                    fs::write(
                        &wrapped,
                        el3::wrap(&fs::read(&odometer)?, self.programs.odometer.memory_bytes)?,
                    )?;
                    wrapped
                } else {
                    odometer
                };
                let initrd = match initrd {
                    Some(bytes) => {
                        let file = scratch.join("initrd");
                        fs::write(&file, bytes)?;
                        Some(file)
                    }
                    None => None,
                };
                let append = (*append).to_owned();
                bare(Boot { kernel, initrd, append, virtualization: *level != Level::El1 }, &machine)
            }
            Boots::Native { append, machine } => {
                let kernel = self.programs.guest.image.clone();
                let append = (*append).to_owned();
                bare(Boot { kernel, initrd: None, append, virtualization: false }, machine)
            }
        })
    }

    fn oldest(&self) -> Result<Qemu, String> {
        let mut known = self.oldest.lock().unwrap_or_else(|broken| broken.into_inner());
        known.get_or_insert_with(|| setup::oldest_qemu().map_err(|error| format!("{error:#}"))).clone()
    }
}

/// Counts the exceptions that QEMU logged (`-d int`) as taken from a guest to EL2.
fn taken_to_el2(log: &Path) -> Result<u64> {
    let file = fs::File::open(log).context("opening QEMU's log of exceptions")?;
    let mut count = 0;
    for line in BufReader::new(file).lines() {
        let line = line.context("reading QEMU's log of exceptions")?;
        count += u64::from(line == "...from EL1 to EL2" || line == "...from EL0 to EL2");
    }
    Ok(count)
}

/// The last lines of a log, none of them too long to be read.
fn tail(lines: &[String]) -> String {
    let shown = lines[lines.len().saturating_sub(SHOWN)..].iter();
    shown.map(|line| format!("    {}\n", line.chars().take(WIDTH).collect::<String>())).collect()
}

fn bare(boot: Boot, machine: &Machine) -> Prepared {
    let memory = machine.memory.unwrap_or(512 << 20);
    Prepared { boot, machine: machine.clone(), memory, scenario: None }
}
