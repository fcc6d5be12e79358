//! Trapped system registers.
//!
//! ID registers are answered from the table; SGIs go to the vGIC; the physical timer is emulated; debug registers, and set/way
//! maintenance, are there and do nothing. All else is UNDEFINED, as on a CPU without the feature.

use super::dispatch::{allow_pauth, step_a64, undefined};
use super::syndrome::{Syndrome, SysReg};
use crate::arch::{self, context::Held};
use crate::scheduler;
use crate::stats::Reason;

const ICC_SGI1R: SysReg = SysReg::new(3, 0, 12, 11, 5);
const ICC_ASGI1R: SysReg = SysReg::new(3, 0, 12, 11, 6);
const ICC_SGI0R: SysReg = SysReg::new(3, 0, 12, 11, 7);
const ACTLR: SysReg = SysReg::new(3, 0, 1, 0, 1);
const OSLSR: SysReg = SysReg::new(2, 0, 1, 1, 4);
const CNTP_TVAL: SysReg = SysReg::new(3, 3, 14, 2, 0);
const CNTP_CTL: SysReg = SysReg::new(3, 3, 14, 2, 1);
const CNTP_CVAL: SysReg = SysReg::new(3, 3, 14, 2, 2);

/// A trapped MSR, MRS or system instruction.
pub fn access(held: &mut Held, syndrome: Syndrome) -> Reason {
    let register = syndrome.sysreg();
    if register == ICC_SGI1R && !syndrome.sysreg_is_read() {
        return send_sgi(held, syndrome);
    }
    if let Some(slot) = register.id_slot()
        && syndrome.sysreg_is_read()
    {
        let value = arch::this_cpu().system.id_registers.get(slot);
        held.set_register(syndrome.sysreg_rt(), value);
        step_a64();
        return Reason::IdRegister;
    }
    rare(held, syndrome, register)
}

/// ICC_SGI1R_EL1: an interrupt to siblings.
#[inline(always)]
fn send_sgi(held: &mut Held, syndrome: Syndrome) -> Reason {
    let cpu = arch::this_cpu();
    let vcpu = held.vcpu;
    let value = held.register(syndrome.sysreg_rt());
    vcpu.vm.vgic.send_sgi(vcpu.index, value, &mut |index| scheduler::notify_index(cpu, vcpu.vm, index));
    step_a64();
    Reason::Sgi
}

#[inline(never)]
fn rare(held: &mut Held, syndrome: Syndrome, register: SysReg) -> Reason {
    let rt = syndrome.sysreg_rt();
    let read = syndrome.sysreg_is_read();
    let mut reason = Reason::Sysreg;
    match register {
        // Group 0 and the other security state's group 1: nothing of a guest's is in them.
        ICC_ASGI1R | ICC_SGI0R if !read => reason = Reason::Sgi,
        ACTLR => answer(held, rt, read, 0),
        CNTP_TVAL | CNTP_CTL | CNTP_CVAL => physical_timer(held, register, rt, read),
        // The OS lock is implemented (OSLM = 0b10) and not locked.
        OSLSR => answer(held, rt, read, 0b1000),
        // Not op1 1: those are trace and branch records.
        _ if register.op0() == 2 && register.op1() != 1 => {
            reason = Reason::Debug;
            answer(held, rt, read, 0);
        }
        // APIAKeyLo_EL1 to APGAKeyHi_EL1.
        _ if register.is_pauth_key() && allow_pauth(held) => return reason,
        // DC ISW, CSW, CISW: with coherent caches and shared CPUs there is nothing useful that set/way could do.
        _ if register.op0() == 1 && register.op1() == 0 && register.crn() == 7 && register.op2() == 2 => {}
        _ => return undefined(held, syndrome),
    }
    step_a64();
    reason
}

/// A register that reads as `value` and ignores writes.
fn answer(held: &mut Held, rt: u32, read: bool, value: u64) {
    if read {
        held.set_register(rt, value);
    }
}

/// CNTP_*: the guest's physical timer, in software (Arm ARM D12.2.4): EL2's own timer stands in for it.
fn physical_timer(held: &mut Held, register: SysReg, rt: u32, read: bool) {
    let now = arch::counter();
    let timer = held.physical_timer;
    if read {
        let expired = u64::from(timer.ctl & 1 != 0 && now >= timer.cval) << 2;
        let value = match register {
            CNTP_CTL => timer.ctl | expired,
            CNTP_CVAL => timer.cval,
            _ => timer.cval.wrapping_sub(now) & 0xffff_ffff,
        };
        held.set_register(rt, value);
        return;
    }
    let value = held.register(rt);
    match register {
        CNTP_CTL => held.physical_timer.ctl = value & 3,
        CNTP_CVAL => held.physical_timer.cval = value,
        _ => held.physical_timer.cval = now.wrapping_add(i64::from(value as i32) as u64),
    }
    scheduler::follow_physical_timer(arch::this_cpu(), held.vcpu, held.physical_timer);
}
