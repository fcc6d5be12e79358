//! Stopping the machine.

use crate::arch;
use crate::platform::machine::{Conduit, Machine};
use crate::system::System;

const SYSTEM_OFF: u32 = 0x8400_0008;

/// Switches the machine off through PSCI, or stops this CPU where there is none.
pub fn power_off(conduit: Option<Conduit>) -> ! {
    if let Some(conduit) = conduit {
        arch::firmware_call(conduit, SYSTEM_OFF, 0, 0, 0);
    }
    arch::halt()
}

/// The same before the machine is known: through the conduit that the device tree names, where it is one that exception
/// level `level` can use.
pub fn power_off_early(dtb: u64, level: u64) -> ! {
    use crate::memory::address::Pa;
    let conduit = Machine::from_dtb(super::early::blob(dtb), Pa(dtb)).ok().and_then(|machine| machine.psci);
    match conduit {
        // At EL3 we are where the firmware would be.
        Some(conduit) if level < 3 => power_off(Some(conduit)),
        _ => arch::halt(),
    }
}

/// The end of the run: everything has been said.
pub fn end(system: &System) -> ! {
    system.console.finish();
    power_off(system.psci)
}
