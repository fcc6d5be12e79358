//! Finding or installing what the other commands need.
//! (Stub: `setup` fills it in. Signatures that other modules rely on stand here.)

use std::path::PathBuf;

use anyhow::{Result, bail};

/// What `cargo xtask setup` is asked to do.
#[derive(Debug, clap::Args)]
pub struct SetupArgs {
    /// Fetch what Linux guests need, too: Debian's arm64 kernel, busybox and rt-tests
    #[arg(long)]
    pub linux: bool,
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

/// Finds the compiler for the bare-metal target, or says how to get it (or gets it).
pub fn toolchain() -> Result<Toolchain> {
    Ok(Toolchain {
        cargo: std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from),
        args: vec!["--target".into(), "aarch64-unknown-none-softfloat".into()],
        envs: Vec::new(),
        target: "aarch64-unknown-none-softfloat".into(),
        version: "unknown".into(),
    })
}

/// Finds QEMU (7.2 or later), or says how to get it (or gets it).
pub fn qemu() -> Result<Qemu> {
    Ok(Qemu { path: "qemu-system-aarch64".into(), version: (10, 0, 2) })
}

/// Does `cargo xtask setup`.
pub fn run(_args: &SetupArgs) -> Result<()> {
    bail!("not there yet")
}
