//! Linux guests: Debian's unmodified arm64 kernel with an initramfs that runs the real hackbench.
//!
//! See `docs/linux-guests.md`.

mod cpio;
pub mod initramfs;
mod libraries;
mod packages;
mod release;

use std::path::PathBuf;

use anyhow::Result;

pub use packages::{Packages, ensure as packages, with_perf as packages_with_perf};
pub use release::Release;

/// Memory for a guest: the kernel is content with less (see docs/linux-guests.md), hackbench with few groups, too.
pub const MEMORY: u64 = 96 << 20;

/// hackbench's parameters, for the guest's init.
#[derive(Debug, Clone)]
pub struct Hackbench {
    /// Groups of senders and receivers.
    pub groups: u32,
    /// Senders (and receivers) in each group.
    pub fds: u32,
    /// Messages of each sender to each receiver.
    pub loops: u32,
    /// Bytes in a message.
    pub size: u32,
    /// How often the guest runs it before it powers off.
    pub runs: u32,
}

impl Hackbench {
    /// Messages in one run: each sender writes `loops` messages to each receiver of its group.
    pub fn messages(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.fds) * u64::from(self.fds) * u64::from(self.loops)
    }

    /// What the guest's init reads from the kernel's command line.
    fn words(&self) -> String {
        format!(
            "odometer.hackbench=\"-g {} -f {} -l {} -s {}\" odometer.runs={} odometer.messages={}",
            self.groups,
            self.fds,
            self.loops,
            self.size,
            self.runs,
            self.messages()
        )
    }
}

/// What a Linux guest boots from. Its init prints `@guest {...}` lines as our own guest does
/// (kind `messaging` for each run of hackbench, then kind `end`), and powers off.
#[derive(Debug, Clone)]
pub struct LinuxGuest {
    /// The kernel, perhaps compressed.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// The kernel's command line.
    pub append: String,
    /// The same on a machine without a virtio-console.
    pub append_native: String,
    /// Bytes of memory that it needs.
    pub memory: u64,
    /// Package names and versions, for the report.
    pub description: String,
}

/// The kernel's command line of a guest that only boots, with these words about its console: init says that it runs and powers off.
pub fn append_boot(console: &str) -> String {
    format!("{console} cma=0 cryptomgr.notests odometer.boot")
}

/// The kernel's command line of a guest that makes so many null system calls, with isolation of the kernel's page tables or not.
pub fn append_perf(calls: u32, isolated: bool) -> String {
    append_words(&format!("kpti={} odometer.perf={calls}", u8::from(isolated)))
}

/// The kernel's command line of a guest that says what it is (a record of kind `about`) and powers off.
pub fn append_about() -> String {
    append_words("odometer.about")
}

/// The kernel's command line: `hackbench` runs and then the guest powers off; without it there is a shell.
///
/// `quiet` because console output is an exit for each character, `cryptomgr.notests` because the kernel's tests of its
/// own ciphers are a third of an emulated boot, `cma=0` because the kernel would set aside memory for devices that aren't
/// there.
pub fn append(hackbench: Option<&Hackbench>) -> String {
    append_words(&hackbench.map_or_else(|| "odometer.shell".to_owned(), Hackbench::words))
}

/// The same for a guest with a virtio-console, which all of its output goes to: a block is one exit there, and on the PL011 one or two
/// for each byte. What the kernel says before init has loaded the driver is not seen.
pub fn append_virtio(hackbench: &Hackbench) -> String {
    append(Some(hackbench)).replace("console=ttyAMA0", "console=hvc0 odometer.console=hvc0")
}

/// The kernel's command line, `work` for our init.
fn append_words(work: &str) -> String {
    format!("console=ttyAMA0 quiet cma=0 cryptomgr.notests {work}")
}

/// A guest with this kernel and a virtio-console that runs hackbench; packages are fetched when they are missing.
///
/// # Errors
/// As [`packages()`].
pub fn guest(load: &Hackbench, release: Release) -> Result<LinuxGuest> {
    let Packages { kernel, initrd, description, .. } = packages(release)?;
    Ok(LinuxGuest {
        kernel,
        initrd,
        append: append_virtio(load),
        append_native: append(Some(load)),
        memory: MEMORY,
        description,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hackbenchs_parameters_reach_the_command_line() {
        let load = Hackbench { groups: 2, fds: 4, loops: 20, size: 100, runs: 5 };
        assert_eq!(load.messages(), 2 * 4 * 4 * 20);
        let line = append(Some(&load));
        assert!(line.contains("odometer.hackbench=\"-g 2 -f 4 -l 20 -s 100\""), "{line}");
        assert!(line.contains("odometer.runs=5") && line.contains("odometer.messages=640"), "{line}");
        assert!(line.starts_with("console=ttyAMA0 "));
        assert!(append(None).ends_with("odometer.shell"));
    }
}
