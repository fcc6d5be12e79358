//! Instructions that a hypervisor refuses or emulates.

use super::{Checks, NATIVE, odometer};
use crate::arch::exception::{CLASS_UNKNOWN, class};
use crate::arch::features::{self, Feature};
use crate::arch::{psci, selfcheck};

/// Why a check is skipped on an older CPU.
const ABSENT: &str = "the CPU has no such instructions";

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
    features::each(|Feature { name, present, outcome }| {
        let undefined = outcome.is_some_and(|syndrome| class(syndrome) == CLASS_UNKNOWN);
        let ok = if present { outcome.is_none() } else { undefined };
        checks.note(name, ok, format_args!("present {present}: {outcome:x?}"));
    });
    results(checks);
    for (name, outcome) in [
        ("set_way_is_no_fault", selfcheck::set_way()),
        ("wait_for_event_is_no_fault", selfcheck::wait_for_event()),
    ] {
        checks.note(name, outcome.is_none(), format_args!("{outcome:x?}"));
    }
    // Elsewhere an HVC may be undefined.
    let outcome = selfcheck::odd_hvc();
    let ok = outcome.is_none() || !odometer::is_beneath();
    checks.note("odd_hvc_is_no_fault", ok, format_args!("{outcome:x?}"));
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

/// That offered instructions also compute what they should.
fn results(checks: &mut Checks) {
    /// CRC32 (polynomial 0x04c11db7) of eight bytes 0xff, from 0 on.
    const CRC: u64 = 0x44660075;
    match features::crc32() {
        Some(sum) => checks.note("crc32_of_ones", sum == CRC, format_args!("{sum:#x}")),
        None => checks.skip("crc32_of_ones", ABSENT),
    }
    match features::add_atomically(40, 2) {
        Some(seen) => checks.note("atomic_add", seen == (42, 40), format_args!("{seen:?}")),
        None => checks.skip("atomic_add", ABSENT),
    }
    // A kernel's pointer, as authentication needs it: bits 63 to 48 alike.
    let pointer = 0x4008_0000;
    match (features::authenticate(pointer, 1, 1), features::authenticate(pointer, 1, 2)) {
        (Some((signed, same)), Some((_, other))) => {
            checks.note("pointer_is_signed", signed != pointer, format_args!("{signed:#x}"));
            checks.note("pointer_is_authenticated", same == pointer, format_args!("{same:#x}"));
            checks.note("pointer_is_refused", other != pointer, format_args!("{other:#x}"));
        }
        _ => checks.skip("pointer_is_authenticated", ABSENT),
    }
}
