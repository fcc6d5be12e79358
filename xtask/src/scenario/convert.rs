//! From what the file says to a `Scenario`: ranges of numbers, sizes, and the files that it names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use crate::linux::{self, Release};

use super::problem::Problem;
use super::read::{Raw, RawMachine, RawSize, RawVm, options};
use super::{Disk, Kernel, MAX_CPUS, MAX_VCPUS, MAX_VMS, Machine, OWN_GUEST, Scenario, Vm, kernel, size};

/// Makes the scenario; what can't be made is left out and stands in `problems`.
pub fn convert(
    raw: &Raw,
    directory: &Path,
    own_guest: &dyn Fn() -> Result<Arc<Kernel>>,
    problems: &mut Vec<Problem>,
) -> Scenario {
    let machine = machine(&raw.machine, problems);
    let options = options(&raw.options)
        .into_iter()
        .filter_map(|(key, value)| match value {
            toml::Value::String(text) => Some((key, text)),
            toml::Value::Integer(number) => Some((key, number.to_string())),
            toml::Value::Boolean(on) => Some((key, if on { "on" } else { "off" }.into())),
            other => {
                let what = format!("{other} is neither a word, a whole number nor true/false");
                problems.push(Problem::new(format!("options.{key}"), what, "write it as \"vmid.bits\" = 4"));
                None
            }
        })
        .collect();
    let mut files = Files { directory, own_guest, kernels: HashMap::new(), blobs: HashMap::new() };
    let vms =
        raw.vm.iter().enumerate().filter_map(|(index, raw)| vm(index, raw, &mut files, problems)).collect();
    Scenario { machine, options, vms }
}

/// `[machine]`.
fn machine(raw: &RawMachine, problems: &mut Vec<Problem>) -> Machine {
    let mut machine = Machine::default();
    if let Some(cpus) = raw.cpus {
        machine.cpus = ranged("machine.cpus", cpus, 1, MAX_CPUS.into(), "CPUs", problems).unwrap_or(1) as u32;
    }
    machine.memory = raw.memory.as_ref().and_then(|memory| bytes("machine.memory", memory, problems));
    if let Some(cpu) = &raw.cpu {
        machine.cpu.clone_from(cpu);
    }
    if let Some(version) = raw.gic_version.filter(|version| *version != 3) {
        let what = format!("a GIC of version {version} can't be driven");
        problems.push(Problem::new("machine.gic-version", what, "write 3, or leave the key out"));
    }
    match raw.threads.as_deref() {
        None | Some("single") => {}
        Some("multi") => machine.multi_threaded = true,
        Some(other) => problems.push(Problem::new(
            "machine.threads",
            format!("\"{other}\" is unknown"),
            "write \"single\" (one thread emulates all CPUs) or \"multi\" (one for each)",
        )),
    }
    machine.deterministic = raw.deterministic.unwrap_or(false);
    if machine.deterministic && machine.multi_threaded {
        let what = "several threads can't be deterministic";
        problems.push(Problem::new(
            "machine.threads",
            what,
            "write \"single\", or leave `deterministic` out",
        ));
    }
    machine.qemu = raw.qemu.clone().unwrap_or_default();
    machine
}

/// A `[[vm]]`; `None` if something of it is missing.
fn vm(index: usize, raw: &RawVm, files: &mut Files<'_>, problems: &mut Vec<Problem>) -> Option<Vm> {
    let key = |name: &str| format!("vm.{index}.{name}");
    let mut initramfs = None;
    let kernel = match &raw.kernel {
        Some(file) => match Release::of_scenario(file) {
            Ok(None) => files.kernel(&key("kernel"), file, problems),
            Ok(Some(release)) => files.debian(&key("kernel"), release, problems).map(|(kernel, initrd)| {
                initramfs = Some(initrd);
                kernel
            }),
            Err(error) => {
                let remedy = "name one of these, or write \"./NAME\" for a file";
                problems.push(Problem::new(key("kernel"), error.to_string(), remedy));
                None
            }
        },
        None => {
            let remedy = "add kernel = \"FILE\", or kernel = \"guest\" for Odometer's own";
            problems.push(Problem::new(key("kernel"), "is missing", remedy));
            None
        }
    };
    let ramdisk = raw.initrd.as_ref().map(|file| files.blob(&key("initrd"), file, problems));
    let device_tree = raw.dtb.as_ref().map(|file| files.blob(&key("dtb"), file, problems));
    let disk = raw.disk.as_ref().map(|file| files.blob(&key("disk"), file, problems));
    let read_only = match raw.disk_access.as_deref() {
        None | Some("private") => false,
        Some("read-only") => true,
        Some(other) => {
            let remedy = "write \"private\" (each VM sees what it has written itself) or \"read-only\"";
            problems.push(Problem::new(key("disk-access"), format!("\"{other}\" is unknown"), remedy));
            false
        }
    };
    if raw.disk_access.is_some() && raw.disk.is_none() {
        let remedy = "add disk = \"FILE\", or leave the key out";
        problems.push(Problem::new(key("disk-access"), "there is no disk", remedy));
    }
    let count =
        raw.count.map_or(Some(1), |count| ranged(&key("count"), count, 1, MAX_VMS as i64, "VMs", problems));
    let vcpus = raw.vcpus.map_or(Some(1), |vcpus| {
        ranged(&key("vcpus"), vcpus, 1, MAX_VCPUS.into(), "vCPUs of a VM", problems)
    });
    let memory = match &raw.memory {
        Some(memory) => bytes(&key("memory"), memory, problems),
        None => Some(64 << 20),
    };
    let pin: Option<Vec<u32>> = raw
        .pin
        .iter()
        .flatten()
        .map(|cpu| ranged(&key("pin"), *cpu, 0, i64::from(MAX_CPUS) - 1, "as a CPU's number", problems))
        .map(|cpu| cpu.map(|cpu| cpu as u32))
        .collect();
    let pinned_vmid = match raw.vmid.as_deref() {
        None => false,
        Some("pinned") => true,
        Some(other) => {
            let remedy = "write \"pinned\", or leave the key out";
            problems.push(Problem::new(key("vmid"), format!("\"{other}\" is unknown"), remedy));
            false
        }
    };
    let mut address = |name: &str, value: Option<i64>| match value {
        Some(negative @ ..=-1) => {
            let what = format!("{negative} is no address");
            problems.push(Problem::new(key(name), what, "write it as 0x40080000"));
            None
        }
        Some(address) => Some(Some(address as u64)),
        None => Some(None),
    };
    let (load, entry) = (address("load", raw.load), address("entry", raw.entry));
    Some(Vm {
        name: raw.name.clone().unwrap_or_else(|| format!("vm{index}")),
        count: count? as u32,
        vcpus: vcpus? as u32,
        memory: memory?,
        pin: pin?,
        pinned_vmid,
        bootargs: raw.bootargs.clone().unwrap_or_default(),
        kernel: kernel?,
        load: load?,
        entry: entry?,
        ramdisk: transpose(ramdisk)?.or(initramfs),
        device_tree: transpose(device_tree)?,
        disk: transpose(disk)?.map(|image| Disk { image, read_only }),
        console: raw.console.unwrap_or(false),
        net: raw.net.unwrap_or(false),
    })
}

/// An optional thing that was asked for must be there.
fn transpose<T>(thing: Option<Option<T>>) -> Option<Option<T>> {
    match thing {
        None => Some(None),
        Some(None) => None,
        Some(Some(thing)) => Some(Some(thing)),
    }
}

/// A whole number within bounds.
fn ranged(
    key: &str,
    value: i64,
    low: i64,
    high: i64,
    what: &str,
    problems: &mut Vec<Problem>,
) -> Option<i64> {
    if (low..=high).contains(&value) {
        return Some(value);
    }
    let fault = format!("{value} is not supported: {low} to {high} {what} are");
    problems.push(Problem::new(key, fault, format!("write a number from {low} to {high}")));
    None
}

/// A size in bytes.
fn bytes(key: &str, raw: &RawSize, problems: &mut Vec<Problem>) -> Option<u64> {
    let bytes = match raw {
        RawSize::Bytes(bytes) => u64::try_from(*bytes).map_err(|_| "a size can't be negative".to_string()),
        RawSize::Text(text) => size::argument(text),
    };
    bytes
        .map_err(|error| {
            let what = format!("{raw} is no size: {error}");
            problems.push(Problem::new(key, what, "write bytes, or a number with K, M or G, as in \"96M\""));
        })
        .ok()
}

/// The files that a scenario names; each is read once, however many VMs use it.
struct Files<'a> {
    directory: &'a Path,
    own_guest: &'a dyn Fn() -> Result<Arc<Kernel>>,
    kernels: HashMap<PathBuf, Arc<Kernel>>,
    blobs: HashMap<PathBuf, Arc<Vec<u8>>>,
}

impl Files<'_> {
    fn kernel(&mut self, key: &str, file: &str, problems: &mut Vec<Problem>) -> Option<Arc<Kernel>> {
        let path = self.directory.join(file);
        if let Some(kernel) = self.kernels.get(&path) {
            return Some(Arc::clone(kernel));
        }
        // A file that is really called `guest` can be named `./guest`.
        let kernel = if file == OWN_GUEST {
            (self.own_guest)().map_err(|error| {
                let remedy = "`cargo xtask build` shows what is wrong";
                problems.push(Problem::new(key, format!("Odometer's own guest: {error:#}"), remedy));
            })
        } else {
            let bytes = self.read(key, &path, problems)?;
            kernel::parse(&bytes).map(Arc::new).map_err(|error| {
                let remedy =
                    "give an arm64 Image (gzip, zstd, xz or lz4 packed, too), an ELF file, or a raw binary";
                problems.push(Problem::new(key, format!("{}: {error:#}", path.display()), remedy));
            })
        };
        let kernel = kernel.ok()?;
        self.kernels.insert(path, Arc::clone(&kernel));
        Some(kernel)
    }

    /// A kernel of Debian's, with an initramfs for it.
    fn debian(
        &mut self,
        key: &str,
        release: Release,
        problems: &mut Vec<Problem>,
    ) -> Option<(Arc<Kernel>, Arc<Vec<u8>>)> {
        let packages = linux::packages(release).map_err(|error| {
            let remedy = "`cargo xtask setup --linux` shows what is wrong";
            problems.push(Problem::new(key, format!("Debian's kernel {release}: {error:#}"), remedy));
        });
        let packages = packages.ok()?;
        // Paths of our own, which are absolute: the scenario's directory doesn't matter.
        let kernel = self.kernel(key, &packages.kernel.to_string_lossy(), problems)?;
        Some((kernel, self.blob(key, &packages.initrd.to_string_lossy(), problems)?))
    }

    fn blob(&mut self, key: &str, file: &str, problems: &mut Vec<Problem>) -> Option<Arc<Vec<u8>>> {
        let path = self.directory.join(file);
        if let Some(blob) = self.blobs.get(&path) {
            return Some(Arc::clone(blob));
        }
        let bytes = self.read(key, &path, problems)?;
        if bytes.is_empty() {
            let remedy = "give a file with something in it, or leave the key out";
            problems.push(Problem::new(key, format!("the file {} is empty", path.display()), remedy));
            return None;
        }
        let blob = Arc::new(bytes);
        self.blobs.insert(path, Arc::clone(&blob));
        Some(blob)
    }

    fn read(&self, key: &str, path: &Path, problems: &mut Vec<Problem>) -> Option<Vec<u8>> {
        std::fs::read(path)
            .map_err(|error| {
                let what = format!("the file {} can't be read: {error}", path.display());
                let remedy = "paths are relative to the scenario file; correct the path or make the file";
                problems.push(Problem::new(key, what, remedy));
            })
            .ok()
    }
}
