//! `cargo xtask audit`: a run under the auditor, QEMU's plugin that counts from outside what Odometer counts itself
//! (`docs/auditor.md`), and whether both agree.

mod classes;
pub mod compare;
mod instructions;
pub mod plugin;
mod record;

use std::process::ExitCode;

use anyhow::Result;

use crate::qemu::interactive;
use crate::report::records::Report;
use crate::{fit, image, interrupt, paths, run, setup};
use compare::Comparison;
use instructions::Costs;
use plugin::Plugin;
pub use record::Record;

/// What `cargo xtask audit` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask audit docs/examples/crowd.toml\n  \
    cargo xtask audit docs/examples/two-guests.toml --set vmid.policy=reclaim --set vmid.bits=4 --cpus 4\n\n\
    The exit code is 0 only if both counted the same. docs/auditor.md says what is counted, and how.")]
pub struct AuditArgs {
    /// What runs
    #[command(flatten)]
    pub what: run::What,
    /// Count the instructions of each exit, too (slower; one CPU, or a thread for each)
    #[arg(long)]
    pub instructions: bool,
}

/// Does `cargo xtask audit`.
///
/// # Errors
/// A scenario that can't run, a QEMU that doesn't take the plugin, a run that has no end. That the counts differ is no
/// error but an exit code.
pub fn run(args: &AuditArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let mut scenario = run::scenario(&args.what).or_else(|error| interrupt::check().and(Err(error)))?;
    if args.instructions {
        instructions::allowed(&scenario.machine)?;
    }
    let programs = image::build()?;
    let plugin = Plugin::build(&programs.odometer, scenario.is_traced())?;
    plugin.probe(&setup::qemu()?.path)?;
    let scratch = paths::scratch()?;
    let path = scratch.path().join("bundle.itb");
    fit::write(&scenario)?.write(&path)?;
    let counts = scratch.path().join("auditor.json");
    scenario.machine.qemu.extend(plugin.arguments(&counts, args.instructions));
    let outcome = interactive::run(&run::launch(&programs, &scenario, &path)?, false)?;
    let (report, record) = (Report::read(&outcome.reports)?, Record::read(&counts)?);
    let comparison = Comparison::of(&report, &record)?;
    print!("\n{comparison}");
    if args.instructions {
        print!("\n{}", Costs::of(&report, &record, &scenario.machine));
    }
    Ok(if comparison.agrees() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
