//! `cargo xtask audit`: a run under the auditor, QEMU's plugin that counts from outside what Odometer counts itself
//! (`docs/auditor.md`), and whether both agree.

pub mod compare;
pub mod plugin;
mod record;

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::qemu::interactive;
use crate::report::records::Report;
use crate::scenario::Machine;
use crate::{fit, image, interrupt, paths, run, setup};
use compare::Comparison;
use plugin::Plugin;
pub use record::Record;

/// What `cargo xtask audit` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask audit docs/examples/two-guests.toml\n  \
    cargo xtask audit docs/examples/two-guests.toml --set vmid.policy=reclaim --set vmid.bits=4 --cpus 4\n\n\
    The exit code is 0 only if both counted the same. docs/auditor.md says what is counted, and how.")]
pub struct AuditArgs {
    /// What runs
    #[command(flatten)]
    pub what: run::What,
}

/// Does `cargo xtask audit`.
///
/// # Errors
/// A scenario that can't run, a QEMU that doesn't take the plugin, a run that has no end. That the counts differ is no
/// error but an exit code.
pub fn run(args: &AuditArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let mut scenario = run::scenario(&args.what).or_else(|error| interrupt::check().and(Err(error)))?;
    prepare(&mut scenario.machine)?;
    let programs = image::build()?;
    let plugin = Plugin::build(&programs.odometer)?;
    plugin.probe(&setup::qemu()?.path)?;
    let scratch = paths::scratch()?;
    let path = scratch.path().join("bundle.itb");
    fit::write(&scenario)?.write(&path)?;
    let counts = scratch.path().join("auditor.json");
    scenario.machine.qemu.extend(plugin.arguments(&counts));
    let outcome = interactive::run(&run::launch(&programs, &scenario, &path)?, false)?;
    let comparison = Comparison::of(&Report::read(&outcome.reports)?, &Record::read(&counts)?)?;
    print!("\n{comparison}");
    Ok(if comparison.agrees() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sets a machine up so that the auditor learns which CPU does what: QEMU tells a plugin so only where each CPU has a thread of
/// its own, or where there is but one CPU. (With one thread for all, versions 9.1 to 10.0 name the CPU that has translated the code.)
///
/// # Errors
/// It has several CPUs, and is to be deterministic, which takes one thread for all of them.
pub fn prepare(machine: &mut Machine) -> Result<()> {
    if machine.cpus == 1 {
        return Ok(());
    }
    ensure!(
        !machine.deterministic,
        "machine.deterministic (or --deterministic) with {} CPUs: QEMU runs them in one thread then, and doesn't tell the \
         auditor which of them executes an instruction; leave it out, or give one CPU (--cpus 1)",
        machine.cpus
    );
    machine.multi_threaded = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_gets_a_thread_or_is_alone() {
        let mut machine = Machine { cpus: 4, ..Machine::default() };
        prepare(&mut machine).unwrap();
        assert!(machine.multi_threaded);
        machine.deterministic = true;
        assert!(prepare(&mut machine).unwrap_err().to_string().contains("with 4 CPUs"));
        machine.cpus = 1;
        assert!(prepare(&mut machine).is_ok());
    }
}
