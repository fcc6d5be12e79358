//! What a system test is.

use std::time::Duration;

use anyhow::Result;

use super::NAME;
use odometer::trace::Decoded;

use crate::audit::compare::Comparison;
use crate::linux::Release;
use crate::qemu::Typed;
use crate::qemu::capture::{Captured, Limits};
use crate::scenario::{Machine, Scenario};
use crate::trace::Until;

/// A check of what was on the console.
pub type Check = Box<dyn Fn(&Outcome<'_>) -> Result<()> + Send + Sync>;

/// What a run left behind, for checks.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// What was on the console.
    pub captured: &'a Captured,
    /// What booted, where that was a scenario.
    pub scenario: Option<&'a Scenario>,
    /// How often QEMU took an exception from a guest to EL2, where the case has it counted.
    pub taken_to_el2: Option<u64>,
    /// What Odometer counted beside what the auditor counted, where the case has it do so.
    pub audit: Option<Comparison>,
    /// The trace, where the case has one.
    pub trace: Option<Decoded>,
}

/// What boots.
#[derive(Debug)]
pub enum Boots {
    /// The hypervisor with the bundle of a scenario, given as the text of its file.
    Scenario(String),
    /// The hypervisor with these bytes for its initrd (or none) and this command line.
    Hypervisor {
        /// The initrd.
        initrd: Option<Vec<u8>>,
        /// The command line.
        append: &'static str,
        /// The machine.
        machine: Machine,
        /// At which exception level it is entered.
        level: Level,
    },
    /// Our own guest without a hypervisor, with this command line: the native floor.
    Native {
        /// The command line.
        append: &'static str,
        /// The machine.
        machine: Machine,
    },
}

/// The exception level at which the hypervisor is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The machine has no EL2.
    El1,
    /// As it should be.
    El2,
    /// The machine has no firmware at EL3, and the image is started as if it were that.
    El3,
}

/// Which QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulator {
    /// The one that `setup` finds.
    Usual,
    /// The oldest that is accepted.
    Oldest,
}

/// How the run may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The machine powers itself off.
    ByItself,
    /// Or it stands still: where there is nobody to ask for power-off.
    OrStops,
}

/// One system test.
pub struct Case {
    /// Its name within the suite.
    pub name: String,
    /// Whether `--quick` runs it.
    pub quick: bool,
    /// What boots.
    pub boots: Boots,
    /// On which QEMU.
    pub emulator: Emulator,
    /// The QEMU that it needs, where the oldest that is accepted won't do.
    pub since: (u32, u32, u32),
    /// Whether it needs Debian's packages for Linux guests.
    pub linux: bool,
    /// Further kernels that it needs: a scenario finds each as `vmlinuz-NAME`, with `initramfs-NAME`.
    pub kernels: Vec<Release>,
    /// Whether QEMU logs all exceptions, so that those taken to EL2 are counted.
    pub logs_exceptions: bool,
    /// Whether QEMU's plugin counts what Odometer counts.
    pub audited: bool,
    /// When the trace is fetched, if it is; the scenario says `trace=on`.
    pub traced: Option<Until>,
    /// How it may end.
    pub ends: Ends,
    /// How long it may take.
    pub limits: Limits,
    /// What is typed at the console.
    pub typed: Vec<Typed>,
    /// Memory that the machine's device tree reserves in its reservation map: address and size.
    pub reserve: Option<(u64, u64)>,
    /// Changes a scenario after all that the host checks, for the hypervisor to find.
    pub spoil: Option<fn(&mut Scenario)>,
    /// What must hold afterwards.
    pub checks: Vec<Check>,
}

impl Case {
    /// A case that boots a scenario, powers itself off, and is not a quick one.
    pub fn scenario(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(name, Boots::Scenario(text.into()))
    }

    /// A case with no check yet.
    pub fn new(name: impl Into<String>, boots: Boots) -> Self {
        Self {
            name: name.into(),
            quick: false,
            boots,
            emulator: Emulator::Usual,
            since: (0, 0, 0),
            linux: false,
            kernels: Vec::new(),
            logs_exceptions: false,
            audited: false,
            traced: None,
            ends: Ends::ByItself,
            limits: Limits { silence: Duration::from_secs(90), total: Duration::from_secs(240) },
            typed: Vec::new(),
            reserve: None,
            spoil: None,
            checks: Vec::new(),
        }
    }

    /// `--quick` runs it, too.
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// Adds a check.
    pub fn expect(mut self, check: impl Fn(&Outcome<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        self.checks.push(Box::new(check));
        self
    }

    /// The name with the suite's before it.
    pub fn full_name(&self) -> String {
        format!("{NAME}/{}", self.name)
    }
}
