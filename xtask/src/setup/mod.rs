//! Finding or installing what the other commands need: QEMU, a compiler for the bare-metal target, and the packages of
//! Linux guests.
//!
//! What can be had without touching the machine is fetched into cargo's target directory; only QEMU is installed, and
//! only with a person's consent or as root.

mod apt;
pub mod command;
mod os;
mod privilege;
mod qemu;
mod sources;
mod tlc;
mod toolchain;

use std::path::PathBuf;

use anyhow::Result;

use crate::linux::{self, Release};

pub use apt::Apt;
pub use qemu::oldest_beside as oldest_qemu;

/// What `cargo xtask setup` is asked to do.
#[derive(Debug, clap::Args)]
pub struct SetupArgs {
    /// Fetch what Linux guests need, too: Debian's arm64 kernel, busybox and rt-tests
    #[arg(long)]
    pub linux: bool,
    /// Fetch this kernel for Linux guests, too; may be repeated
    #[arg(long = "kernel", value_name = "NAME", value_enum)]
    pub kernels: Vec<Release>,
}

/// How to compile for the bare-metal target.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// The cargo to call.
    pub cargo: PathBuf,
    /// Arguments after `build` (`--target ...` is among them, and `-Zbuild-std` where that is needed).
    pub args: Vec<String>,
    /// Environment variables to set.
    pub envs: Vec<(String, String)>,
    /// The target's name: the directory under cargo's target directory where the images are found.
    pub target: String,
    /// The compiler's version, for the report.
    pub version: String,
}

/// A QEMU for aarch64.
#[derive(Debug, Clone)]
pub struct Qemu {
    /// The program.
    pub path: PathBuf,
    /// Its version, such as (10, 0, 2).
    pub version: (u32, u32, u32),
}

/// TLA+'s model checker.
#[derive(Debug, Clone)]
pub struct Tlc {
    /// The Java to run it on.
    pub java: PathBuf,
    /// Environment variables to set for that.
    pub envs: Vec<(String, String)>,
    /// Its archive.
    pub jar: PathBuf,
}

/// Finds TLC and Java, or gets them.
///
/// # Errors
/// One of them is missing and can't be had; the message says what would help.
pub fn tlc() -> Result<Tlc> {
    tlc::ensure()
}

/// Finds the compiler for the bare-metal target, or gets it.
///
/// # Errors
/// There is none and none can be had; the message says what would help.
pub fn toolchain() -> Result<Toolchain> {
    toolchain::ensure()
}

/// Finds QEMU (7.2 or later), or gets it.
///
/// # Errors
/// It is missing and can't be installed; the message shows the command that a person can run.
pub fn qemu() -> Result<Qemu> {
    qemu::ensure()
}

/// Does `cargo xtask setup`: everything is looked at, even when one thing is missing, and each is reported.
///
/// # Errors
/// Something is missing and can't be had.
pub fn run(args: &SetupArgs) -> Result<()> {
    toolchain::forget_failures()?;
    let toolchain = toolchain().map(|found| format!("{} for {}", found.version, found.target));
    let qemu = qemu().map(|found| format!("{} at {}", qemu::dotted(found.version), found.path.display()));
    let linux = |release| linux::packages(release).map(|packages| packages.description);
    let wanted = args.linux || !args.kernels.is_empty();
    let mut results = vec![("compiler", Some(toolchain)), ("QEMU", Some(qemu))];
    results.push(("Linux guests", wanted.then(|| linux(Release::default()))));
    let others = args.kernels.iter().filter(|release| **release != Release::default());
    results.extend(others.map(|release| (release.name(), Some(linux(*release)))));
    let mut missing = Vec::new();
    for (what, result) in results {
        match result {
            Some(Ok(found)) => println!("{what:<13} {found}"),
            Some(Err(error)) => {
                println!("{what:<13} missing");
                missing.push(format!("{what}: {error:#}"));
            }
            None => println!("{what:<13} not asked for (--linux fetches their packages)"),
        }
    }
    if missing.is_empty() { Ok(()) } else { anyhow::bail!("{}", missing.join("\n")) }
}
