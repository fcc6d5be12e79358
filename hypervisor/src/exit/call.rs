//! HVC and SMC: PSCI, and Odometer's own calls (`docs/hypercalls.md`).

use super::dispatch::step;
use super::syndrome::Syndrome;
use crate::arch::{self, context::Held};
use crate::scheduler;
use crate::stats::{Reason, query};
use crate::vm::psci::{self, Call, Status};
use crate::vm::{RunState, VmState, life, request};
use core::sync::atomic::Ordering;

/// SMCCC: the function does not exist; an argument is wrong.
const NOT_SUPPORTED: u64 = -1i64 as u64;
const INVALID_PARAMETER: u64 = -3i64 as u64;

/// Functions of the vendor-specific hypervisor range.
const UID: u32 = 0x8600_ff01;
const REVISION: u32 = 0x8600_ff03;
const FEATURES: u32 = 0xc600_0000;
const YIELD: u32 = 0xc600_0001;
const READ_COUNTER: u32 = 0xc600_0002;
const MEASURE: u32 = 0xc600_0003;
/// Our UID, 6f646f6d-6574-6572-8000-617263683634, as SMCCC returns one: byte 0 in the lowest bits of w0.
const UID_WORDS: [u64; 4] = [0x6d6f_646f, 0x7265_7465, 0x7261_0080, 0x3436_6863];

/// HVC: the PC is already behind it.
pub fn hvc(held: &mut Held, _: Syndrome) -> Reason {
    call(held);
    Reason::Hvc
}

/// SMC: the same, but a trapped one has to be stepped over.
pub fn smc(held: &mut Held, syndrome: Syndrome) -> Reason {
    step(syndrome);
    call(held);
    Reason::Smc
}

#[inline(always)]
fn call(held: &mut Held) {
    match held.x[0] as u32 {
        psci::VERSION_ID => held.x[0] = psci::VERSION,
        // How long this takes is what a switch between VMs costs.
        YIELD => {
            held.vcpu.ask(request::RESCHEDULE);
            held.x[0] = 0;
        }
        function => other_call(held, function),
    }
}

#[inline(never)]
fn other_call(held: &mut Held, function: u32) {
    let vcpu = held.vcpu;
    let [_, x1, x2, x3, ..] = held.x;
    held.x[0] = match psci::decode(function, x1, x2, x3) {
        Call::Version => psci::VERSION,
        Call::SmcccVersion => psci::SMCCC_VERSION,
        Call::MigrateInfoType => 2,
        Call::Features(function) => psci::features(function),
        Call::CpuSuspend => {
            vcpu.ask(request::BLOCK);
            Status::Success.value()
        }
        Call::CpuOff => {
            vcpu.ask(request::OFF);
            Status::InternalFailure.value()
        }
        Call::CpuOn { target, entry, context } => life::cpu_on(vcpu, target, entry, context).value(),
        Call::AffinityInfo { target, level } => affinity_info(held, target, level),
        Call::SystemOff => {
            life::begin_stop(vcpu.vm, VmState::Ending);
            Status::InternalFailure.value()
        }
        Call::SystemReset => {
            life::begin_stop(vcpu.vm, VmState::Resetting);
            Status::InternalFailure.value()
        }
        Call::ArchFeatures(function) => psci::arch_features(function),
        Call::PvTimeFeatures(function) => psci::pv_time_features(function),
        // No memory for it, which there is in what a VM is promised: as if it weren't offered.
        Call::StolenTime => life::stolen_time(vcpu).map_or(NOT_SUPPORTED, |ipa| ipa.0),
        Call::Vendor(function) => return vendor(held, function),
        Call::Unknown => NOT_SUPPORTED,
    };
}

/// AFFINITY_INFO: 0 on, 1 off, 2 about to be on.
fn affinity_info(held: &Held, target: u64, level: u64) -> u64 {
    let vcpus = held.vcpu.vm.vcpus();
    let state = |vcpu: &crate::vm::Vcpu| match vcpu.state.get() {
        RunState::Off => 1,
        _ if vcpu.on_pending.load(Ordering::Relaxed) => 2,
        _ => 0,
    };
    match level {
        0 => match psci::target_index(target, vcpus.len()).and_then(|index| vcpus.get(index)) {
            Some(vcpu) => state(vcpu),
            None => Status::InvalidParameters.value(),
        },
        // All vCPUs are in the one cluster 0 of each higher level: it is on while the caller is.
        1..=3 if target >> 8 == 0 => 0,
        _ => Status::InvalidParameters.value(),
    }
}

fn vendor(held: &mut Held, function: u32) {
    let [_, x1, x2, ..] = held.x;
    match function {
        UID => held.x[..4].copy_from_slice(&UID_WORDS),
        REVISION => {
            held.x[0] = 0;
            held.x[1] = 1;
        }
        // One bit for each function from YIELD on.
        FEATURES => held.x[0] = 0b111,
        READ_COUNTER => {
            let (status, value) = match read_counter(held, x1, x2) {
                Ok(value) => (0, value),
                Err(status) => (status, 0),
            };
            held.x[0] = status;
            held.x[1] = value;
        }
        MEASURE => measure(held, x1, x2),
        _ => held.x[0] = NOT_SUPPORTED,
    }
}

/// READ_COUNTER: a counter of the caller's own VM.
fn read_counter(held: &Held, which: u64, counter: u64) -> Result<u64, u64> {
    let vcpus = held.vcpu.vm.vcpus();
    let chosen = match which {
        u64::MAX => vcpus,
        index => vcpus.get(index as usize..).and_then(|rest| rest.get(..1)).ok_or(INVALID_PARAMETER)?,
    };
    let rate = arch::this_cpu().system.rate();
    query::read(chosen.iter().map(|vcpu| &vcpu.stats), counter, arch::counter(), rate)
        .ok_or(INVALID_PARAMETER)
}

/// MEASURE: `n` runs of one operation of the hypervisor's, and of a loop that does nothing, in ticks.
fn measure(held: &mut Held, operation: u64, n: u64) {
    /// Bounds the time that a guest can spend here: about a millisecond.
    const MOST: u64 = 10_000;
    if operation != 0 || n == 0 || n > MOST {
        held.x[0] = if operation == 0 { INVALID_PARAMETER } else { NOT_SUPPORTED };
        return;
    }
    let taken = scheduler::time_schedule_in(arch::this_cpu(), held.vcpu, n);
    let start = arch::counter();
    for _ in 0..n {
        core::hint::black_box(());
    }
    let end = arch::counter();
    held.x[0] = 0;
    held.x[1] = taken;
    held.x[2] = end.wrapping_sub(start);
}
