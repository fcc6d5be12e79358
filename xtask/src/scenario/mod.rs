//! Scenarios: the machine, the hypervisor's options, and the VMs of one run.
//!
//! A person writes one as a TOML file (docs/scenario.md); `bench` makes them itself. Either way
//! everything is checked before anything starts.

mod check;
mod convert;
pub mod kernel;
mod options;
mod problem;
mod read;
pub mod size;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

pub use kernel::Kernel;
pub use options::POLICIES;
pub use problem::Problems;

/// The name that stands for this project's own guest kernel where a kernel's file is asked for.
pub const OWN_GUEST: &str = "guest";

/// Most vCPUs of a VM.
pub const MAX_VCPUS: u32 = 8;
/// Most VMs at once.
pub const MAX_VMS: u64 = 256;
/// Most physical CPUs.
pub const MAX_CPUS: u32 = 128;

/// One run: what boots on what.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The machine that QEMU makes.
    pub machine: Machine,
    /// The hypervisor's options, in order.
    pub options: Vec<(String, String)>,
    /// The VMs.
    pub vms: Vec<Vm>,
}

/// The machine that QEMU makes.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Physical CPUs.
    pub cpus: u32,
    /// Bytes of RAM; `None` for what the VMs need.
    pub memory: Option<u64>,
    /// QEMU's CPU model.
    pub cpu: String,
    /// Whether the emulator runs a thread for each CPU. One thread for all is steadier, and for many CPUs on few
    /// cores faster.
    pub multi_threaded: bool,
    /// Whether executed instructions drive the clock (one is one nanosecond), so that a run repeats exactly.
    pub deterministic: bool,
    /// What a deterministic machine's random numbers (RNDR, from which Linux takes the place of its text) begin with.
    pub seed: u32,
    /// Arguments for QEMU, after ours.
    pub qemu: Vec<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory: None,
            cpu: "max".into(),
            multi_threaded: false,
            deterministic: false,
            seed: 1,
            qemu: Vec::new(),
        }
    }
}

/// One VM, or `count` VMs alike.
#[derive(Debug, Clone)]
pub struct Vm {
    /// Its name; with a count, `-0`, `-1`, ... are put behind it.
    pub name: String,
    /// How many alike.
    pub count: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Bytes of RAM.
    pub memory: u64,
    /// The physical CPUs of the first vCPUs; those beyond run on any.
    pub pin: Vec<u32>,
    /// Whether its VMID never changes.
    pub pinned_vmid: bool,
    /// The kernel's command line.
    pub bootargs: String,
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Where a raw kernel is loaded and entered, if not at RAM + 0x8_0000.
    pub load: Option<u64>,
    /// Where a raw kernel is entered, if not at its first byte.
    pub entry: Option<u64>,
    /// The ramdisk.
    pub ramdisk: Option<Arc<Vec<u8>>>,
    /// A device tree in place of the generated one.
    pub device_tree: Option<Arc<Vec<u8>>>,
    /// A virtio-blk.
    pub disk: Option<Disk>,
    /// Whether it has a virtio-console.
    pub console: bool,
    /// Whether it has a virtio-net, on the switch of all VMs that have one.
    pub net: bool,
}

/// A VM's disk.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Its content.
    pub image: Arc<Vec<u8>>,
    /// Whether it can't be written. Else each VM has its own copy of what it writes, as long as it lives.
    pub read_only: bool,
}

impl Vm {
    /// A VM with one vCPU and 64 MiB that boots this kernel.
    pub fn new(name: &str, kernel: Arc<Kernel>) -> Self {
        Self {
            name: name.into(),
            count: 1,
            vcpus: 1,
            memory: 64 << 20,
            pin: Vec::new(),
            pinned_vmid: false,
            bootargs: String::new(),
            kernel,
            load: None,
            entry: None,
            ramdisk: None,
            device_tree: None,
            disk: None,
            console: false,
            net: false,
        }
    }

    /// The names of the VMs that this entry makes.
    pub fn names(&self) -> Vec<String> {
        match self.count {
            1 => vec![self.name.clone()],
            count => (0..count).map(|index| format!("{}-{index}", self.name)).collect(),
        }
    }
}

impl Scenario {
    /// Reads and checks a scenario file. Files that it names are looked for beside it. `own_guest` gives the kernel
    /// that `kernel = "guest"` means, and is only called if some VM wants it.
    ///
    /// # Errors
    /// A file that can't be read, or `Problems`: everything that is wrong with it.
    pub fn load(path: &Path, own_guest: &dyn Fn() -> Result<Arc<Kernel>>) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("reading the scenario {} (give the path of a TOML file)", path.display())
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::from_text(&text, &path.display().to_string(), directory, own_guest)
    }

    /// Reads and checks the text of a scenario file.
    fn from_text(
        text: &str,
        source: &str,
        directory: &Path,
        own_guest: &dyn Fn() -> Result<Arc<Kernel>>,
    ) -> Result<Self> {
        let read = read::read(text);
        let mut problems = read.problems;
        let mut scenario = None;
        if let Some(raw) = read.raw {
            let converted = convert::convert(&raw, directory, own_guest, &mut problems);
            // A VM that had to be left out would only cause further faults, about sums.
            if problems.is_empty() {
                check::check(&converted, &mut problems);
            }
            scenario = Some(converted);
        }
        match scenario {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(Problems { source: source.into(), lines: read.lines, list: problems }.into()),
        }
    }

    /// Checks a scenario that didn't come from a file. `source` says where it came from.
    ///
    /// # Errors
    /// `Problems`.
    pub fn check(&self, source: &str) -> Result<()> {
        let mut problems = Vec::new();
        check::check(self, &mut problems);
        if problems.is_empty() {
            return Ok(());
        }
        Err(Problems { source: source.into(), lines: Default::default(), list: problems }.into())
    }

    /// Bytes of RAM that the machine gets.
    pub fn machine_memory(&self) -> u64 {
        self.machine.memory.unwrap_or_else(|| check::memory_needed(self).next_multiple_of(64 << 20))
    }

    /// How many VMs there are.
    pub fn vm_count(&self) -> u64 {
        self.vms.iter().map(|vm| u64::from(vm.count)).sum()
    }

    /// Sets one of the hypervisor's options, in place of an earlier value.
    pub fn set_option(&mut self, key: &str, value: &str) {
        match self.options.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value.into(),
            None => self.options.push((key.into(), value.into())),
        }
    }

    /// What is set for one of the hypervisor's options.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Whether the hypervisor records events.
    pub fn is_traced(&self) -> bool {
        matches!(self.option("trace"), Some("on" | "serial"))
    }

    /// The hypervisor's command line.
    pub fn hypervisor_arguments(&self) -> String {
        let words: Vec<String> = self.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.join(" ")
    }
}

/// Splits a `KEY=VALUE` of `--set`.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.into(), value.into())),
        _ => Err("an option is written KEY=VALUE, as in vmid.bits=4".into()),
    }
}

#[cfg(test)]
mod tests;
