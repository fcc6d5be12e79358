//! `cargo xtask build`: compiles the hypervisor and the guest and flattens them to images.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// What `cargo xtask build` is asked to do.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {}

/// A bare-metal program: its ELF file (for symbols) and the `Image` made of it.
#[derive(Debug, Clone)]
pub struct Program {
    /// The ELF file that the linker wrote.
    pub elf: PathBuf,
    /// The flat image that QEMU, a boot loader or the bundle takes.
    pub image: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes in memory, with zeroed data, stacks and all.
    pub memory_bytes: u64,
}

/// Both programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The hypervisor.
    pub odometer: Program,
    /// The bare-metal guest.
    pub guest: Program,
}

/// Builds both programs.
pub fn build() -> Result<Programs> {
    bail!("not there yet")
}

/// Does `cargo xtask build`.
pub fn run(_args: &BuildArgs) -> Result<()> {
    build().map(|_| ())
}
