//! Odometer's counters are what QEMU's plugin counts from outside (docs/auditor.md), to the unit and on each CPU.

use anyhow::{Context, Result, ensure};

use super::case::{Case, Outcome};
use super::cases::{scenario, vm};
use super::expect::runs_well;
use super::linux::linux_case;
use crate::linux;

/// All of them.
pub fn all() -> Vec<Case> {
    // More VMs than VMIDs on few CPUs, so that VMIDs run out again and again.
    let crowd = [vm("talk", 2, "load=messaging groups=1 fds=4 loops=10 runs=1", "count = 20")];
    let crowded = |name: &str, machine: &str, policy: &str, least: &'static [(&'static str, u64)]| {
        let options = format!("\"vmid.bits\" = 4\n\"vmid.policy\" = \"{policy}\"");
        let case = Case::scenario(name, scenario(machine, &options, &crowd));
        audited(case.expect(runs_well), least)
    };
    vec![
        crowded(
            "audit",
            "cpus = 4",
            "clear",
            &[
                ("exits from guests", 1000),
                ("VMs put on a CPU", 100),
                ("tlbi alle1is", 3),
                ("tlbi vmalls12e1is", 15),
            ],
        )
        .quick(),
        crowded(
            "audit-threads",
            "cpus = 4\nthreads = \"multi\"",
            "reclaim",
            &[("tlbi vmalls12e1", 3), ("tlbi vmalls12e1is", 15)],
        ),
        // CPUs are called out of guests, and enter them anew.
        crowded("audit-deterministic", "cpus = 4\ndeterministic = true", "global", &[("tlbi alle1is", 1)]),
        // Siblings come after one another where there is but one CPU.
        crowded("audit-one-cpu", "cpus = 1", "v3-no-clear", &[("tlbi vmalle1", 5)]),
        linux(),
    ]
}

/// Linux guests write to pages that they share, so that stage 2 changes under them.
fn linux() -> Case {
    let guests = format!(
        "[[vm]]\nname = \"linux\"\ncount = 2\nvcpus = 2\nmemory = \"96M\"\nkernel = \"vmlinuz\"\ninitrd = \"initramfs\"\n\
         bootargs = '{}'\n",
        linux::append_about()
    );
    let least = &[("tlbi ipas2e1is", 50), ("tlbi vmalle1is", 50)];
    audited(linux_case("audit-linux", scenario("cpus = 2", "", &[guests])), least)
}

/// A case that is audited, too.
pub fn audited(case: Case, least: &'static [(&'static str, u64)]) -> Case {
    let mut case = case.expect(agrees(least));
    case.audited = true;
    case.since = (9, 1, 0);
    case
}

/// Both agree in everything, and these have occurred at least so often: that both have seen nothing wouldn't say much.
fn agrees(least: &'static [(&'static str, u64)]) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let audit = outcome.audit.as_ref().context("the run was not audited")?;
        audit.require()?;
        for (what, least) in least {
            let count = audit.agreed(what).with_context(|| format!("nothing is called \"{what}\""))?;
            ensure!(count >= *least, "{what}: {count}, expected are {least} or more");
        }
        Ok(())
    }
}
