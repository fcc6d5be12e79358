//! Stopping the machine.

use crate::arch;
use crate::platform::machine::Conduit;
use crate::system::System;

const SYSTEM_OFF: u32 = 0x8400_0008;

/// Switches the machine off through PSCI, or stops this CPU where there is none.
pub fn power_off(conduit: Option<Conduit>) -> ! {
    if let Some(conduit) = conduit {
        arch::firmware_call(conduit, SYSTEM_OFF, 0, 0, 0);
    }
    arch::halt()
}

/// The end of the run: everything has been said.
pub fn end(system: &System) -> ! {
    system.console.finish();
    power_off(system.psci)
}
