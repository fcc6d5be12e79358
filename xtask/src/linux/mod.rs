//! Linux guests from Debian's packages.
//! (Stub: `setup` fills it in.)

use std::path::PathBuf;

use anyhow::{Result, bail};

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
    /// Bytes of memory that it needs.
    pub memory: u64,
    /// Package names and versions, for the report.
    pub description: String,
}

/// A guest that runs hackbench; packages are fetched when they are missing.
pub fn guest(_load: &Hackbench) -> Result<LinuxGuest> {
    bail!("not there yet")
}
