//! The command line: one subcommand for each thing that a person wants done.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{audit, bench, image, matrix, model, mutate, page, plot, run, setup, test, trace};

/// Odometer's host tool: set up, build, run, bench and test.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find or install what is missing: QEMU, the compiler's target, Debian's packages for Linux guests
    Setup(setup::SetupArgs),
    /// Build the hypervisor and the guest kernel, and print how large they are
    Build(image::BuildArgs),
    /// Boot a scenario, or one kernel, interactively on QEMU
    Run(run::RunArgs),
    /// Run a scenario under a QEMU plugin that counts from outside, and compare with Odometer's own counters
    Audit(audit::AuditArgs),
    /// Measure: VMID policies under many VMs (`vmid`, the default) or single operations (`micro`)
    Bench(bench::BenchArgs),
    /// Boot Debian's kernels as guests, each on several CPU models with 1 to 8 vCPUs
    Matrix(matrix::MatrixArgs),
    /// Check the models of the VMID allocator with TLC
    Model(model::ModelArgs),
    /// Make the code wrong, in a copy, and see by which tests that is noticed
    Mutate(mutate::MutateArgs),
    /// Draw what VMID policies cost as VMs become more, from the simulation in the allocator's tests
    Plot(plot::PlotArgs),
    /// Run a scenario with a trace of its exits, switches and VMIDs, and write it for Perfetto
    Trace(trace::TraceArgs),
    /// Show results of benches on one HTML page, or read the console of a board
    Report(page::ReportArgs),
    /// Run the tests: on the host, in loom, and on QEMU
    Test(test::TestArgs),
}

/// Parses the command line and does what it says.
pub fn run() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Setup(args) => setup::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Build(args) => image::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Run(args) => run::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Matrix(args) => matrix::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Mutate(args) => mutate::run(&args),
        Command::Plot(args) => plot::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Trace(args) => trace::run(args),
        Command::Report(args) => page::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Test(args) => test::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// clap's own check of the definition: names that clash, defaults that don't parse.
    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
