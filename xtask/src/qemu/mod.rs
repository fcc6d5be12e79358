//! Running QEMU: its command line, its life, and what it says on the serial console.

pub mod capture;
mod captured;
pub mod console;
mod doing;
pub mod interactive;
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::scenario::Machine;
use crate::setup::{self, command};

/// What QEMU boots.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The kernel: the hypervisor's image, or a guest's where there is no hypervisor.
    pub kernel: PathBuf,
    /// The bundle, or a guest's ramdisk.
    pub initrd: Option<PathBuf>,
    /// The kernel's command line.
    pub append: String,
    /// Whether the machine has EL2 for the kernel.
    pub virtualization: bool,
}

/// QEMU, a machine and what it boots.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its version.
    pub version: (u32, u32, u32),
    /// The machine.
    pub machine: Machine,
    /// Bytes of the machine's RAM.
    pub memory: u64,
    /// What boots.
    pub boot: Boot,
    /// What is typed at the console of a run without a person.
    pub typed: Vec<Typed>,
}

/// What is typed when a line has come on the console: each once, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Typed {
    /// What the line ends with.
    pub after: &'static str,
    /// The keys.
    pub keys: &'static str,
}

impl Launch {
    /// A launch with the QEMU that `setup` finds.
    ///
    /// # Errors
    /// No QEMU, or one that is too old.
    pub fn new(machine: Machine, memory: u64, boot: Boot) -> Result<Self> {
        let qemu = setup::qemu()?;
        Ok(Self { program: qemu.path, version: qemu.version, machine, memory, boot, typed: Vec::new() })
    }

    /// The flags that decide how the machine behaves (without files, memory and the console): what a table names.
    pub fn behaviour(&self) -> Vec<String> {
        let machine = &self.machine;
        let mut arguments = vec!["-M".into(), "virt,gic-version=3".to_string()];
        if self.boot.virtualization {
            arguments[1].push_str(",virtualization=on");
        }
        if machine.deterministic {
            // The device tree's random seeds would make each boot a little different.
            arguments[1].push_str(",dtb-randomness=off");
        }
        arguments.extend(["-cpu".into(), machine.cpu.clone(), "-smp".into(), machine.cpus.to_string()]);
        let threads = if machine.multi_threaded { "multi" } else { "single" };
        arguments.extend(["-accel".into(), format!("tcg,thread={threads}")]);
        if machine.deterministic {
            arguments.extend(["-icount".into(), "shift=0,sleep=off".into()]);
            arguments.extend(["-seed".into(), machine.seed.to_string()]);
            // A date is as random as a seed is.
            arguments.extend(["-rtc".into(), "base=2026-01-01T00:00:00,clock=vm".into()]);
        }
        arguments
    }

    /// All of QEMU's arguments. `monitor`: whether Ctrl-A on the console reaches QEMU's monitor.
    fn arguments(&self, monitor: bool) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let mut arguments = self.behaviour();
        arguments.extend(["-m".into(), format!("{}M", self.memory >> 20)]);
        arguments.extend(["-display", "none", "-nic", "none", "-no-reboot"].map(String::from));
        if monitor {
            arguments.extend(["-serial", "mon:stdio"].map(String::from));
        } else {
            arguments.extend(["-monitor", "none", "-serial", "stdio"].map(String::from));
        }
        arguments.extend(["-kernel".into(), path(&self.boot.kernel)]);
        if let Some(initrd) = &self.boot.initrd {
            arguments.extend(["-initrd".into(), path(initrd)]);
        }
        if !self.boot.append.is_empty() {
            arguments.extend(["-append".into(), self.boot.append.clone()]);
        }
        arguments.extend(self.machine.qemu.iter().cloned());
        arguments
    }

    /// The device tree that QEMU makes for this machine, by way of `file`.
    ///
    /// # Errors
    /// QEMU refuses, or the file can't be read.
    pub fn device_tree(&self, file: &Path) -> Result<Vec<u8>> {
        let mut qemu = Command::new(&self.program);
        qemu.args(self.arguments(false)).args(["-machine", &format!("dumpdtb={}", file.display())]);
        let output = command::capture(&mut qemu, Duration::from_secs(30))?;
        anyhow::ensure!(output.status.success(), "QEMU writes no device tree: {}", output.stderr.trim());
        fs::read(file).with_context(|| format!("reading {}", file.display()))
    }

    /// `10.0.2`
    pub fn version_text(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(machine: Machine) -> Launch {
        let boot = Boot {
            kernel: "k.bin".into(),
            initrd: Some("b.itb".into()),
            append: "vmid.bits=4 x=y".into(),
            virtualization: true,
        };
        Launch {
            program: "qemu".into(),
            version: (10, 0, 2),
            machine,
            memory: 1 << 30,
            boot,
            typed: Vec::new(),
        }
    }

    #[test]
    fn the_command_line_is_complete_and_own_options_come_last() {
        let machine = Machine { cpus: 8, qemu: vec!["-d".into(), "int".into()], ..Machine::default() };
        assert_eq!(
            launch(machine).arguments(false).join(" "),
            "-M virt,gic-version=3,virtualization=on -cpu max -smp 8 -accel tcg,thread=single -m 1024M -display none \
             -nic none -no-reboot -monitor none -serial stdio -kernel k.bin -initrd b.itb -append vmid.bits=4 x=y -d int"
        );
    }

    #[test]
    fn a_deterministic_machine_counts_instructions_and_has_no_random_seeds() {
        let machine = Machine { deterministic: true, ..Machine::default() };
        let line = launch(machine).behaviour().join(" ");
        assert!(line.contains("-icount shift=0"), "{line}");
        assert!(line.contains("dtb-randomness=off"), "{line}");
        assert!(line.contains("-seed 1"), "{line}");
    }

    #[test]
    fn without_a_hypervisor_the_machine_has_no_el2() {
        let mut native = launch(Machine::default());
        native.boot.virtualization = false;
        assert!(!native.behaviour().join(" ").contains("virtualization"));
    }
}
