//! Instructions that a hypervisor refuses or emulates.

use super::{Checks, NATIVE, odometer};
use crate::arch::exception::{CLASS_UNKNOWN, class};
use crate::arch::{psci, selfcheck};

/// Runs the checks.
pub fn run(checks: &mut Checks) {
    for (name, outcome) in [
        ("implementation_defined_register_is_undefined", selfcheck::read_implementation_defined()),
        ("unallocated_register_read_is_undefined", selfcheck::read_unallocated()),
        ("unallocated_register_write_is_undefined", selfcheck::write_unallocated()),
    ] {
        let ok = outcome.is_some_and(|syndrome| class(syndrome) == CLASS_UNKNOWN);
        checks.note(name, ok, format_args!("{outcome:x?}"));
    }
    for (name, present, outcome) in selfcheck::features() {
        let undefined = outcome.is_some_and(|syndrome| class(syndrome) == CLASS_UNKNOWN);
        let ok = if present { outcome.is_none() } else { undefined };
        checks.note(name, ok, format_args!("present {present}: {outcome:x?}"));
    }
    // What these do is the machine's choice; that the guest goes on is the check.
    for (name, outcome) in [
        ("set_way_is_survived", selfcheck::set_way()),
        ("wait_for_event_is_survived", selfcheck::wait_for_event()),
        ("odd_hvc_is_survived", selfcheck::odd_hvc()),
    ] {
        checks.note(name, true, format_args!("{outcome:x?}"));
    }
    let outcome = selfcheck::zero_register_system();
    checks.note("zero_register_in_system_access", outcome.is_none(), format_args!("{outcome:x?}"));
    if odometer::is_beneath() {
        let unknown = [0x8600_ff77, 0xc600_7777, 0x8000_4242, 0xffff_ffff_0000_0000];
        let ok = unknown.into_iter().all(|f| psci::status(psci::hvc(f, 0, 0, 0)) == psci::NOT_SUPPORTED);
        checks.check("unknown_functions_are_not_supported", ok);
    } else {
        checks.skip("unknown_functions_are_not_supported", NATIVE);
    }
}
