//! Exits as they stand, on simulated CPUs (`arch/fake`): what a guest finds after an instruction that traps.

use super::syndrome::class;
use crate::arch::fake::machine::Outcome;
use crate::arch::fake::program::{Do, Trap};
use crate::stats::{ExitSnapshot, Reason};
use crate::system::fake::{Ran, Setup, free, run};
use crate::vm::VmState;
use crate::vm::layout::{GICD_BASE, GICR_BASE, RAM_BASE, RTC_BASE, UART_BASE, VIRTIO_BASE};

/// ESR_EL1 of an undefined instruction: IL.
const UNDEFINED: u64 = 1 << 25;
/// ESR_EL1 of a synchronous external abort from EL1: EC 0x25, IL, DFSC 0x10.
const EXTERNAL_ABORT: u64 = 0x25 << 26 | 1 << 25 | 0x10;

/// ISS of a data abort: ISV, SAS of 32 bits, a translation fault at level 3.
const WORD: u64 = 1 << 24 | 2 << 22 | 0x07;
/// WnR.
const WRITE: u64 = 1 << 6;
/// SRT of a data abort: xzr.
const TO_ZERO: u64 = 31 << 16;
/// Direction of a trapped MSR or MRS: it reads.
const READ: u64 = 1;
/// Rt of one: xzr.
const ZERO: u64 = 31 << 5;

fn iss(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64) -> u64 {
    op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | crm << 1
}

/// A VM with one vCPU does all of this, and ends.
fn alone(program: Vec<Do>) -> Ran {
    let ran = run(Setup::new(1), vec![vec![free([program, vec![Do::system_off()]].concat())]]);
    assert_eq!(ran.outcome, Outcome::Off, "{:#?}", ran.states());
    ran.adds_up();
    ran
}

fn exits(ran: &Ran, reason: Reason) -> u64 {
    let mut exits = ExitSnapshot::default();
    for vcpu in ran.system.vcpus.get().into_iter().flatten() {
        exits.add(&vcpu.stats.exits);
    }
    exits.reason(reason).count()
}

#[test]
fn trap_28_register_31_stores_zero_and_loads_nowhere() {
    let priorities = GICD_BASE.0 + 0x400 + 40;
    let config = UART_BASE.0 + 0x38;
    let cval = iss(3, 3, 14, 2, 2);
    let id = iss(3, 0, 0, 4, 0);
    alone(vec![
        Do::access(WORD | WRITE, priorities, 0xa0a0_a0a0),
        Do::access(WORD, priorities, 0),
        Do::Expect(0xa0a0_a0a0),
        Do::access(WORD | TO_ZERO, priorities, 7),
        Do::ExpectUnchanged,
        Do::access(WORD | WRITE | TO_ZERO, priorities, 7),
        Do::ExpectUnchanged,
        Do::access(WORD, priorities, 7),
        Do::Expect(0),
        Do::access(WORD | WRITE, config, 0x10),
        Do::access(WORD | WRITE | TO_ZERO, config, 0x10),
        Do::access(WORD, config, 7),
        Do::Expect(0),
        // Where there is nothing.
        Do::access(WORD | TO_ZERO, 0x0b80_0000, 7),
        Do::ExpectUnchanged,
        // System registers: CNTP_CVAL_EL0 and ID_AA64PFR0_EL1, and an SGI to nobody.
        Do::sysreg(cval, 0x1234),
        Do::sysreg(cval | READ, 0),
        Do::Expect(0x1234),
        Do::sysreg(cval | ZERO, 0x1234),
        Do::ExpectUnchanged,
        Do::sysreg(cval | READ, 7),
        Do::Expect(0),
        Do::sysreg(id | READ | ZERO, 7),
        Do::ExpectUnchanged,
        Do::sysreg(iss(3, 0, 12, 11, 5) | ZERO, 5 << 24 | 1),
        Do::ExpectUnchanged,
        Do::ExpectArrivals(5, 0),
    ]);
}

#[test]
fn trap_29_no_other_register_sends_an_sgi() {
    const SGI1R: u64 = iss_of_sgi1r();
    let mut program = vec![Do::cpu_on(1), Do::Await(1, 1)];
    let mut written = 0;
    for crn in 0..16 {
        for crm in 0..16 {
            for (op1, op2) in [(0, 5), (0, 4), (0, 6), (0, 7), (1, 5), (3, 5), (4, 5), (6, 5), (7, 5)] {
                let register = iss(3, op1, crn, crm, op2);
                if register != SGI1R {
                    program.push(Do::sysreg(register, 5 << 24 | 0b11));
                    program.push(Do::sysreg(register | READ, 5 << 24 | 0b11));
                    written += 1;
                }
            }
        }
    }
    assert!(written > 2000);
    program.extend([Do::ExpectArrivals(5, 0), Do::Send(2, 0b10), Do::Await(3, 1)]);
    // The real one does; reading it, which nobody can, is undefined.
    program.extend([
        Do::sysreg(SGI1R | READ, 5 << 24 | 0b01),
        Do::ExpectException(Some(UNDEFINED)),
        Do::ExpectArrivals(5, 0),
        Do::sysreg(SGI1R, 5 << 24 | 0b01),
        Do::ExpectException(None),
        Do::Await(5, 1),
        Do::system_off(),
    ]);
    let second = vec![Do::Send(1, 0b01), Do::Await(2, 1), Do::ExpectArrivals(5, 0), Do::Send(3, 0b01)];
    let ran = run(Setup::new(1), vec![vec![free(program), free(second)]]);
    assert_eq!(ran.outcome, Outcome::Off, "{:#?}", ran.states());
}

const fn iss_of_sgi1r() -> u64 {
    3 << 20 | 5 << 17 | 12 << 10 | 11 << 1
}

#[test]
fn trap_32_an_access_that_is_not_described_is_an_abort_and_one_to_ram_is_not() {
    /// Not ISV: pairs, write-back forms.
    const UNDESCRIBED: u64 = 0x07;
    let mut program = Vec::new();
    for base in [GICD_BASE.0, GICR_BASE.0, UART_BASE.0, RTC_BASE.0, VIRTIO_BASE.0, 0x0b80_0000, 0x8000_0000] {
        for access in [UNDESCRIBED, UNDESCRIBED | WRITE] {
            program.extend([
                Do::access(access, base, 7),
                Do::ExpectException(Some(EXTERNAL_ABORT)),
                Do::ExpectUnchanged,
            ]);
        }
    }
    for access in [UNDESCRIBED, UNDESCRIBED | WRITE] {
        program.extend([
            Do::access(access, RAM_BASE.0 + 0x10_0000, 7),
            Do::ExpectException(None),
            Do::ExpectUnchanged,
        ]);
    }
    let ran = alone(program);
    assert_eq!(exits(&ran, Reason::Stage2Abort), 14);
    assert_eq!(exits(&ran, Reason::Memory), 2);
}

#[test]
fn trap_33_calls_that_nobody_knows_are_not_supported() {
    let mut program = Vec::new();
    for function in
        [0, 0x8600_ff77, 0xc600_7777, 0x8000_4242, 0x8400_00fe, 0xc500_0022, 0xffff_ffff, 0xbf00_0000]
    {
        for call in [Do::hvc([function, 1, 2, 3]), Do::smc([function, 1, 2, 3])] {
            program.extend([call, Do::Expect(u64::MAX), Do::ExpectException(None)]);
        }
    }
    // PSCI is the same over both.
    program.extend([
        Do::hvc([0x8400_0000, 0, 0, 0]),
        Do::Expect(0x1_0001),
        Do::smc([0x8400_0000, 0, 0, 0]),
        Do::Expect(0x1_0001),
    ]);
    alone(program);
}

#[test]
fn trap_33_set_way_wfe_and_implementation_defined_registers_do_no_harm() {
    let mut program = Vec::new();
    // DC ISW, CSW, CISW.
    for crm in [6, 10, 14] {
        program.extend([
            Do::sysreg(iss(1, 0, 7, crm, 2), 0x10),
            Do::ExpectException(None),
            Do::ExpectUnchanged,
        ]);
    }
    // WFE (TI = 1).
    let wfe = Trap { syndrome: u64::from(class::WFX) << 26 | 1 << 25 | 1, x: [1, 2, 3, 4], address: 0 };
    program.extend([Do::Trap(wfe), Do::ExpectException(None), Do::ExpectUnchanged]);
    // IMPLEMENTATION DEFINED: op0 3 (or, instructions, 1), CRn 11 or 15.
    for crn in [11, 15] {
        for register in [iss(3, 0, crn, 0, 0), iss(3, 3, crn, 15, 7) | READ, iss(1, 7, crn, 3, 1)] {
            program.extend([
                Do::sysreg(register, 9),
                Do::ExpectException(Some(UNDEFINED)),
                Do::ExpectUnchanged,
            ]);
        }
    }
    alone(program);
}

#[test]
fn trap_33_no_exception_class_is_without_a_handler() {
    let handled = [
        class::WFX,
        class::FP,
        class::PAUTH,
        class::HVC,
        class::SMC,
        class::SYSREG,
        class::INSTRUCTION_ABORT,
        class::DATA_ABORT,
    ];
    let mut program = Vec::new();
    for ec in (0..64).filter(|ec| !handled.contains(ec)) {
        let trap = Trap { syndrome: u64::from(ec) << 26 | 1 << 25 | 0xff_ffff, x: [1, 2, 3, 4], address: 0 };
        program.extend([Do::Trap(trap), Do::ExpectException(Some(UNDEFINED)), Do::ExpectUnchanged]);
    }
    let ran = alone(program);
    assert_eq!(exits(&ran, Reason::Undefined), 64 - handled.len() as u64);
}

#[test]
fn trap_35_the_interrupt_mask_is_as_it_was_after_every_kind_of_exit() {
    let mut program = vec![Do::Mask(true), Do::Send(5, 0b1)];
    program.extend([
        Do::hvc([0x8400_0000, 0, 0, 0]),
        Do::smc([0x8400_0000, 0, 0, 0]),
        Do::sysreg(iss(3, 0, 0, 4, 0) | READ, 0),
        Do::sysreg(iss(3, 7, 11, 0, 0), 0),
        Do::access(WORD, GICD_BASE.0, 0),
        Do::access(0x07, GICD_BASE.0, 0),
        Do::access(WORD, RAM_BASE.0 + 0x10_0000, 0),
        Do::Fp,
        Do::Pauth,
        Do::Spin(5000),
        // It waits with its timer: a masked interrupt ends that, and is not taken.
        Do::Arm { ticks: 100, masked: false },
        Do::hvc([0x8400_0001, 0, 0, 0]),
        Do::ExpectArrivals(5, 0),
        Do::Mask(false),
        Do::SpinUntil(5, 1),
    ]);
    alone(program);
}

#[test]
fn trap_14_a_timer_that_is_masked_does_not_interrupt_and_does_not_wake() {
    alone(vec![
        Do::Arm { ticks: 50, masked: true },
        Do::Spin(500),
        Do::ExpectArrivals(27, 0),
        // And one that isn't, once.
        Do::Sleep(300),
        Do::Spin(500),
        Do::ExpectArrivals(27, 1),
    ]);
}

#[test]
fn trap_18_an_interrupt_that_is_nobodys_is_silenced_at_once() {
    let ran = alone(vec![Do::Stray(77), Do::Spin(500), Do::Stray(78), Do::Spin(500)]);
    assert_eq!(exits(&ran, Reason::IrqOther), 2);
}

#[test]
fn trap_22_a_thousand_resets_take_no_frame_and_leave_no_interrupt() {
    let round = vec![
        Do::OpenGic,
        Do::ExpectArrivals(27, 0),
        Do::ExpectArrivals(5, 0),
        Do::access(WORD | WRITE, RAM_BASE.0 + 0x20_0000, 1),
        Do::Mask(true),
        Do::Send(5, 0b1),
        Do::Arm { ticks: 1, masked: false },
        Do::Spin(5),
        Do::system_reset(),
    ];
    let program = (0..1000).flat_map(|_| round.clone()).collect();
    let ran = alone(program);
    let vm = ran.system.vms()[0];
    assert_eq!(vm.state(), VmState::Off);
    let vmids = ran.system.vmids.counters();
    assert_eq!(vmids.rollovers, 0, "each reset gave its VMID back");
    assert_eq!(vmids.allocations, 1001);
}
