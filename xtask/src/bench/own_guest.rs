//! One load of our own guest in one VM with one vCPU: how the benches of single loads run it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::{BenchArgs, LoadName, Threads};
use crate::image::{self, Programs};
use crate::qemu::Launch;
use crate::qemu::capture::{Limits, capture};
use crate::scenario::{Kernel, Machine, Scenario, Vm};
use crate::{fit, paths, run};

/// Memory of the VM.
const MEMORY: u64 = 16 << 20;

/// What is built once for all runs.
pub struct OwnGuest<'a> {
    args: &'a BenchArgs,
    programs: Programs,
    guest: Arc<Kernel>,
    scratch: TempDir,
}

impl<'a> OwnGuest<'a> {
    /// Builds both images.
    ///
    /// # Errors
    /// Arguments that such a bench doesn't have, a build that fails.
    pub fn build(args: &'a BenchArgs) -> Result<Self> {
        let shaped = [args.cpus, args.vms, args.vcpus, args.setup].iter().any(Option::is_some);
        let loaded = [args.groups, args.fds, args.loops, args.runs].iter().any(Option::is_some);
        ensure!(
            !shaped && !loaded && args.memory.is_none() && args.load == LoadName::Messaging,
            "--setup, --load, --cpus, --vms, --vcpus, --memory and hackbench's parameters are not for this bench: it has one guest \
             with one vCPU; --calls says how often"
        );
        let programs = image::build()?;
        let guest = run::read_kernel(&programs.guest.image)?;
        Ok(Self { args, programs, guest, scratch: paths::scratch()? })
    }

    /// What QEMU boots for a load with these bootargs. `name` names its bundle.
    ///
    /// # Errors
    /// A scenario that can't be, a bundle that can't be written, no QEMU.
    pub fn launch(&self, name: &str, cpu: &str, deterministic: bool, bootargs: String) -> Result<Launch> {
        let machine = Machine {
            cpus: 1,
            cpu: cpu.into(),
            deterministic,
            multi_threaded: !deterministic && self.args.threads == Some(Threads::Multi),
            qemu: self.args.qemu.clone(),
            ..Machine::default()
        };
        let vms = vec![Vm { vcpus: 1, memory: MEMORY, bootargs, ..Vm::new("load", Arc::clone(&self.guest)) }];
        let scenario = Scenario { machine, options: self.args.options.clone(), vms };
        scenario.check("the command line")?;
        let path = self.scratch.path().join(format!("{name}.itb"));
        fit::write(&scenario)?.write(&path)?;
        run::launch(&self.programs, &scenario, &path)
    }

    /// Runs it; returns the guest's records of `kind`.
    ///
    /// # Errors
    /// A run that fails, a record that says that something is wrong, another number of records than `expected`.
    pub fn records<T: DeserializeOwned>(
        &self,
        launch: &Launch,
        log: &str,
        kind: &str,
        expected: usize,
    ) -> Result<Vec<T>> {
        let log = self.args.logs.as_ref().map(|logs| logs.join(format!("{log}.log")));
        let captured = capture(launch, &Limits::default(), log.as_deref(), &mut |_| ())?;
        let mut found = Vec::new();
        for (_, record) in &captured.guests {
            ensure!(record["ok"] != false, "the guest reports a failure: {record}");
            if record["kind"] == kind {
                found.push(T::deserialize(record).with_context(|| format!("the guest's record {record}"))?);
            }
        }
        ensure!(found.len() == expected, "{} records `{kind}` on the console, not {expected}", found.len());
        Ok(found)
    }
}
