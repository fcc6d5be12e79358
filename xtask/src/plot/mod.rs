//! `cargo xtask plot`: what the VMID policies cost as VMs become more, drawn.
//!
//! The figures come from a simulation around the real allocators, which is a test of theirs (`vmid_over_vms`). It is run here,
//! and what it prints is checked, kept as CSV, and drawn as SVG and PNG.

mod draw;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::setup::command;
use crate::test::cargo;
use crate::{interrupt, paths};
use draw::{Figure, png, svg};
use table::Table;

/// The test that prints the figures.
const TEST: &str = "vmid::tests::over_vms::vmid_over_vms";

/// What `cargo xtask plot` is asked to do.
#[derive(Debug, clap::Args)]
pub struct PlotArgs {
    /// Slices of time to simulate for each policy and number of VMs
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    pub slices: u64,
    /// Directory for the plots and the CSV, made when it is missing [default: odometer/plots in cargo's target directory]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Runs the simulation and draws it.
///
/// # Errors
/// The simulation fails, or prints what can't be; a file can't be written.
pub fn run(args: &PlotArgs) -> Result<()> {
    let directory = match &args.output {
        Some(path) => path.clone(),
        None => paths::kept("plots")?,
    };
    fs::create_dir_all(&directory)
        .with_context(|| format!("making the directory {} (--output)", directory.display()))?;
    interrupt::watch()?;
    let mut test = cargo::cargo(&["test", "--quiet", "--release", "--package", "odometer", "--lib", "--"]);
    test.args(["--exact", TEST, "--nocapture"]).env("VMID_SLICES", args.slices.to_string());
    let output = command::checked(&mut test, cargo::LIMIT)?;
    let table = Table::of_output(&output.stdout)
        .with_context(|| format!("reading what `{}` printed", command::shown(&test)))?;
    write(&directory.join("vmid.csv"), table.csv())?;
    for figure in Figure::ALL {
        let path = directory.join(figure.name()).with_extension("svg");
        write(&path, &svg(&table, figure)?)?;
        let path = path.with_extension("png");
        png(&table, figure, &path).with_context(|| format!("drawing {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Writes a text, and says where.
fn write(path: &Path, text: &str) -> Result<()> {
    paths::write_whole(path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
