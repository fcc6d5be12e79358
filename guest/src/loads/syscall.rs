//! System calls from EL0 with the kernel in the program's map or not (E4): what a call costs, and proof that the
//! isolation is one.

use crate::arch::cpu;
use crate::arch::exception::CLASS_DATA_ABORT;
use crate::arch::user::User;
use crate::json::Tenths;
use crate::kernel::console::report;
use crate::kernel::error;
use crate::kernel::memory::Arena;
use crate::samples::nanoseconds;
use crate::syscall::{Call, Isolation, Syscall};

/// A data abort from EL0.
const CLASS_USER_DATA_ABORT: u64 = CLASS_DATA_ABORT - 1;
/// DFSC without its level: no translation, no permission (Arm ARM, ESR_EL1's ISS for data aborts).
const TRANSLATION: u64 = 0x04;
const PERMISSION: u64 = 0x0c;

/// The class of a syndrome and its fault's kind without the level.
fn fault(syndrome: Option<u64>) -> Option<(u64, u64)> {
    syndrome.map(|syndrome| (syndrome >> 26, syndrome & 0x3c))
}

/// Whether the maps are what they are said to be.
fn isolated(user: &User, isolation: Isolation) -> bool {
    let (kernel, common) = User::addresses();
    let (from_kernel, from_user, open) =
        user.within(|| (user.load_at_entry(kernel), user.peek(kernel), user.load_at_entry(common)));
    let ok = open.is_none()
        && if isolation == Isolation::Off {
            from_kernel.is_none() && fault(from_user) == Some((CLASS_USER_DATA_ABORT, PERMISSION))
        } else {
            fault(from_kernel) == Some((CLASS_DATA_ABORT, TRANSLATION))
                && fault(from_user) == Some((CLASS_USER_DATA_ABORT, TRANSLATION))
        };
    report!(
        "isolation",
        "\"isolation\":\"{}\",\"el1_syndrome\":{},\"el0_syndrome\":{},\"ok\":{}",
        isolation.name(),
        from_kernel.unwrap_or(0),
        from_user.unwrap_or(0),
        ok
    );
    ok
}

fn measure(user: &User, isolation: Isolation, call: Call, load: &Syscall) -> bool {
    let n = u64::from(load.n);
    let (ok, ticks) = user.within(|| {
        // Brings code and tables into caches and TLB.
        let warm = user.calls(call, n.min(100), load.pad.into());
        let start = cpu::counter();
        let ok = user.calls(call, n, load.pad.into());
        (warm && ok, cpu::counter() - start)
    });
    let time = nanoseconds(ticks, cpu::frequency());
    report!(
        "syscall",
        "\"isolation\":\"{}\",\"call\":\"{}\",\"n\":{},\"pad\":{},\"time_ns\":{},\"call_ns\":{},\"ok\":{}",
        isolation.name(),
        call.name(),
        n,
        load.pad,
        time,
        Tenths(time * 10 / n),
        ok
    );
    ok
}

/// Runs the load.
pub fn run(load: &Syscall, arena: &mut Arena) -> bool {
    let mut ok = true;
    for isolation in Isolation::ALL.into_iter().filter(|one| load.isolation.is_none_or(|only| only == *one)) {
        let Some(user) = User::new(arena, isolation) else {
            error(format_args!("too little memory for the tables of isolation={}", isolation.name()));
            return false;
        };
        ok &= isolated(&user, isolation);
        for call in Call::ALL.into_iter().filter(|one| load.call.is_none_or(|only| only == *one)) {
            ok &= measure(&user, isolation, call, load);
        }
    }
    ok
}
