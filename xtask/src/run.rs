//! `cargo xtask run`.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// What `cargo xtask run` is asked to do.
#[derive(Debug, clap::Args)]
pub struct RunArgs {}

/// Does `cargo xtask run`.
pub fn run(_args: &RunArgs) -> Result<ExitCode> {
    bail!("not there yet")
}
