//! Reading the device tree and the command line.

use super::early::blob;
use crate::memory::address::Pa;
use crate::platform::machine::{Conduit, Machine, MachineError, early_psci};
use crate::platform::options::{OptionError, Options};

/// The machine whose device tree is at `dtb`.
///
/// # Errors
///
/// It can't be driven.
pub fn read(dtb: u64) -> Result<Machine<'static>, MachineError<'static>> {
    Machine::from_dtb(blob(dtb), Pa(dtb))
}

/// How to switch a machine off that could not be booted.
pub fn conduit(dtb: u64) -> Option<Conduit> {
    early_psci(blob(dtb))
}

/// The options of the command line.
///
/// # Errors
///
/// One of ours is unknown or has a wrong value.
pub fn options(machine: &Machine<'_>) -> Result<Options, OptionError> {
    Options::parse(machine.bootargs)
}
