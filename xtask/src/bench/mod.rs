//! `cargo xtask bench`.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// What `cargo xtask bench` is asked to do.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {}

/// Does `cargo xtask bench`.
pub fn run(_args: &BenchArgs) -> Result<ExitCode> {
    bail!("not there yet")
}
