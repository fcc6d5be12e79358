//! Whether Odometer is beneath, and its hypercalls.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::arch::exception::probe;
use crate::arch::psci;

/// Counter of READ_COUNTER: schedule-ins.
pub const SCHEDULE_INS: u64 = 5;
/// Counter of READ_COUNTER: exits that were HVCs.
pub const HVC_EXITS: u64 = 0x100;
/// READ_COUNTER of the whole VM.
pub const WHOLE_VM: u64 = !0;
/// MEASURE's operation: the VMID allocator's fast path.
pub const MEASURE_VMID: u64 = 0;

/// Odometer's UID as four words (docs/hypercalls.md).
const UID: [u32; 4] = [0x6d6f_646f, 0x7265_7465, 0x7261_0080, 0x3436_6863];

/// Whether we run under Odometer. Asked once: PSCI 1.0, SMCCC_VERSION among PSCI_FEATURES, and only then the vendor's
/// UID, because firmware without SMCCC may do anything with a function that it doesn't know. (An undefined
/// HVC is survived all the same.)
pub fn is_beneath() -> bool {
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    if ANSWER.load(Ordering::Relaxed) == 0 {
        ANSWER.store(1 + u8::from(ask()), Ordering::Relaxed);
    }
    ANSWER.load(Ordering::Relaxed) == 2
}

fn ask() -> bool {
    if crate::kernel::machine().psci.is_none() {
        return false;
    }
    let ask = |function, argument| {
        let mut answer = [0; 4];
        let fault = probe(|| answer = psci::call(function, argument, 0, 0));
        fault.is_none().then_some(answer)
    };
    let version = ask(psci::VERSION, 0).map_or(0, |answer| answer[0] as u32);
    if !(0x1_0000..0x8000_0000).contains(&version) {
        return false;
    }
    if ask(psci::FEATURES, psci::SMCCC_VERSION).is_none_or(|answer| psci::status(answer) < 0) {
        return false;
    }
    let Some(uid) = ask(psci::VENDOR_UID, 0) else { return false };
    uid.map(|word| word as u32) == UID
}

/// One of this VM's counters.
pub fn counter(id: u64) -> Option<u64> {
    let answer = psci::call(psci::READ_COUNTER, WHOLE_VM, id, 0);
    (answer[0] == 0).then_some(answer[1])
}

/// Gives the CPU to another vCPU.
#[inline(always)]
pub fn give_cpu_away() {
    psci::call(psci::YIELD, 0, 0, 0);
}

/// Ticks of `n` runs of an operation inside the hypervisor, and of `n` turns of an empty loop.
pub fn measure(operation: u64, n: u64) -> Option<(u64, u64)> {
    let answer = psci::call(psci::MEASURE, operation, n, 0);
    (answer[0] == 0).then_some((answer[1], answer[2]))
}
