//! What stands for a guest: a list of things to do, one after the other, and a handler that takes every interrupt.

use super::program::{CNTP_CTL, Do, IL, PHYSICAL_TIMER, Trap};
use super::{HERE, Here, VIRTUAL_TIMER, here, step, this_cpu};
use crate::arch::context::{Context, Held, TimerState};
use crate::exit::{exit_irq, exit_irq_traced, exit_sync, exit_sync_traced, syndrome::class};
use crate::ids::Vmid;
use crate::system::fake::open_gic;
use crate::vgic::ListRegisters;
use crate::vgic::fake::{OPEN, SPURIOUS};
use crate::vm::layout::RAM_BASE;
use std::sync::atomic::Ordering;

/// Where guests have their exception vectors.
pub const VECTORS: u64 = 0x4000_0800;
/// Where they are once they have set themselves up.
const KERNEL: u64 = 0x4010_0000;
/// PSTATE.I.
const PSTATE_I: u64 = 1 << 7;

/// A vCPU's guest.
#[derive(Debug, Default)]
pub struct Guest {
    program: Vec<Do>,
    at: usize,
    /// How often each interrupt has come.
    pub arrivals: Vec<u64>,
    /// What [`Do::Note`] has kept.
    pub notes: Vec<u64>,
    spin_end: Option<u64>,
    /// How often the timer had interrupted when it went to sleep.
    asleep: Option<u64>,
    mark: u64,
    /// The interrupt that its handler has acknowledged and not ended yet.
    handles: Option<u32>,
    /// What it has left in its FP register.
    fp: u128,
    key: u64,
    uses_key: bool,
    /// PSTATE.I.
    masked: bool,
    /// ESR_EL1 of the exception that its last trap ended in.
    exception: Option<u64>,
    /// Address and syndrome of an instruction that has trapped, until the guest goes on.
    trapped: Option<(u64, u64)>,
    /// Registers when it last trapped.
    x: [u64; 31],
}

impl Guest {
    /// A guest that does all of `program` and then waits for ever.
    pub fn new(program: Vec<Do>) -> Guest {
        Guest { program, arrivals: vec![0; 96], ..Guest::default() }
    }

    /// Whether it has come to its end.
    pub fn is_done(&self) -> bool {
        self.at == self.program.len()
    }

    /// How far it has come.
    pub fn at(&self) -> usize {
        self.at
    }
}

/// Executes guests on this CPU, for ever.
pub fn enter(context: *mut Context) -> ! {
    // SAFETY: the caller hands over a loaded vCPU's context.
    let mut held = unsafe { Held::of((*context).vcpu) }.expect("a context");
    loop {
        step();
        held = if here(|here| here.pending()).is_some() { interrupted(held) } else { execute(held) };
    }
}

/// An exit by the vector of the table that a CPU with or without a trace has.
fn interrupted(held: Held) -> Held {
    if this_cpu().ring.is_some() { exit_irq_traced(held) } else { exit_irq(held) }
}

/// What must hold whenever a guest executes something.
fn check(here: &Here, held: &Held) {
    let vcpu = held.vcpu;
    let vttbr = here.vttbr.get();
    let vmid = Vmid((vttbr >> 48) as u16);
    assert_ne!(vmid.0, 0, "a guest runs under VMID 0");
    assert_eq!(Some(vmid), vcpu.vm.vmid.vmid(), "a guest runs under a VMID that is not its VM's");
    assert_eq!(
        vttbr & 0xffff_ffff_fffe,
        vcpu.vm.root.load(Ordering::Relaxed),
        "a guest runs on another's tables"
    );
    here.lrs.check();
    let machine = here.machine.get().expect("a machine");
    machine.tlbs().run(here.index.get(), vmid, vcpu.vm.id, vcpu.index);
}

/// One instruction.
fn execute(mut held: Held) -> Held {
    let trap = HERE.with(|here| {
        check(here, &held);
        here.el1.borrow_mut().vbar = VECTORS;
        // A kernel that has opened its CPU interface.
        if here.lrs.vmcr() != OPEN {
            here.lrs.set_vmcr(OPEN);
        }
        instruction(here, &mut held)
    });
    let Some(syndrome) = trap else { return held };
    HERE.with(|here| here.syndrome.set(syndrome));
    if this_cpu().ring.is_some() { exit_sync_traced(held) } else { exit_sync(held) }
}

/// What the guest does next: the syndrome, if that traps.
fn instruction(here: &Here, held: &mut Held) -> Option<u64> {
    let machine = here.machine.get().expect("a machine");
    let now = machine.now();
    let mut guard = machine.guest(held.vcpu.global);
    let guest = &mut *guard;
    let mut el1 = here.el1.borrow_mut();
    if el1.elr_el2.wrapping_sub(VECTORS) < 0x800 {
        // The handler of a synchronous exception goes on behind the instruction.
        guest.exception = Some(el1.esr);
        el1.elr_el2 = el1.elr + 4;
        el1.spsr_el2 = el1.spsr;
    }
    if el1.elr_el2 == RAM_BASE.0 {
        // A kernel has set itself up.
        el1.elr_el2 = KERNEL;
        el1.spsr_el2 &= !PSTATE_I;
        guest.masked = false;
        guest.arrivals.fill(0);
        guest.handles = None;
        guest.trapped = None;
        (guest.fp, guest.key, guest.uses_key) = (0, 0, false);
        guest.at += usize::from(matches!(guest.program.get(guest.at), Some(Do::UntilReset)));
    }
    assert_eq!(el1.spsr_el2 & PSTATE_I != 0, guest.masked, "the interrupt mask is not as the guest left it");
    if let Some((pc, syndrome)) = guest.trapped.take() {
        // Behind it, or, where memory was missing, once more.
        let again = matches!((syndrome >> 26) as u32, class::DATA_ABORT | class::INSTRUCTION_ABORT);
        let goes_on = el1.elr_el2;
        assert!(goes_on == pc + 4 || again && goes_on == pc, "{syndrome:#x}: from {pc:#x} to {goes_on:#x}");
    }
    if let Some(intid) = guest.handles.take() {
        here.lrs.end(intid);
        return None;
    }
    if !guest.masked && here.lrs.signalled() {
        let intid = here.lrs.acknowledge();
        assert_ne!(intid, SPURIOUS);
        guest.arrivals[intid as usize] += 1;
        if intid == VIRTUAL_TIMER {
            here.virtual_timer.set(TimerState::default());
        }
        if intid == PHYSICAL_TIMER {
            guest.handles = Some(intid);
            held.x[0] = 0;
            return Some(u64::from(class::SYSREG) << 26 | IL | CNTP_CTL);
        }
        here.lrs.end(intid);
        return None;
    }
    let Some(what) = guest.program.get(guest.at) else {
        return Some(u64::from(class::WFX) << 26 | IL);
    };
    match *what {
        Do::Spin(ticks) => {
            let end = *guest.spin_end.get_or_insert(now + ticks);
            if now >= end {
                guest.spin_end = None;
                guest.at += 1;
            }
        }
        Do::Arm { ticks, masked } => {
            let cval = now - here.cntvoff.get() + ticks;
            here.virtual_timer.set(TimerState { ctl: 1 | u64::from(masked) << 1, cval });
            guest.at += 1;
        }
        Do::Sleep(ticks) => {
            let timers = guest.arrivals[VIRTUAL_TIMER as usize];
            match guest.asleep {
                None => {
                    let cval = now - here.cntvoff.get() + ticks;
                    here.virtual_timer.set(TimerState { ctl: 1, cval });
                    guest.asleep = Some(timers);
                }
                Some(before) if before == timers => return Some(u64::from(class::WFX) << 26 | IL),
                Some(_) => {
                    guest.asleep = None;
                    guest.at += 1;
                }
            }
        }
        Do::Send(intid, targets) => {
            guest.at += 1;
            held.x[0] = u64::from(intid) << 24 | targets;
            // MSR ICC_SGI1R_EL1, X0 (op0 3, op1 0, CRn 12, CRm 11, op2 5).
            return Some(u64::from(class::SYSREG) << 26 | IL | 3 << 20 | 5 << 17 | 12 << 10 | 11 << 1);
        }
        Do::Await(intid, times) if guest.arrivals[intid as usize] < times => {
            return Some(u64::from(class::WFX) << 26 | IL);
        }
        Do::SpinUntil(intid, times) if guest.arrivals[intid as usize] < times => {}
        Do::Await(..) | Do::SpinUntil(..) => guest.at += 1,
        Do::Mask(on) => {
            guest.masked = on;
            el1.spsr_el2 = (el1.spsr_el2 & !PSTATE_I) | (u64::from(on) * PSTATE_I);
            guest.at += 1;
        }
        Do::Fp => {
            if here.fp_traps.get() {
                return Some(u64::from(class::FP) << 26 | IL);
            }
            assert_eq!(here.fp.get(), guest.fp, "another's FP register");
            guest.fp += 1 + u128::from(held.vcpu.global) * 1000;
            here.fp.set(guest.fp);
            guest.at += 1;
        }
        Do::Pauth => {
            if here.pauth_traps.get() {
                assert!(!guest.uses_key, "traps again after the first use");
                guest.uses_key = true;
                return Some(u64::from(class::PAUTH) << 26 | IL);
            }
            assert_eq!(here.pauth_keys.get()[0], guest.key, "another's key");
            guest.key += 1 + u64::from(held.vcpu.global) * 1000;
            here.pauth_keys.set([guest.key; 10]);
            guest.at += 1;
        }
        Do::Trap(Trap { syndrome, x, address }) => {
            guest.at += 1;
            guest.exception = None;
            held.x[..4].copy_from_slice(&x);
            // No register is zero by chance.
            held.x[4..].fill(0x5a5a_5a5a);
            guest.x = held.x;
            guest.trapped = Some((el1.elr_el2, syndrome));
            here.fault_address.set(address);
            here.fault_ipa.set(address);
            if syndrome >> 26 == u64::from(class::HVC) {
                // The preferred return address of an HVC is behind it.
                el1.elr_el2 += 4;
            }
            return Some(syndrome);
        }
        Do::Expect(x0) => {
            assert_eq!(held.x[0], x0, "x0 after step {}", guest.at);
            guest.at += 1;
        }
        Do::Mark(intid) => {
            guest.mark = guest.arrivals[intid as usize];
            guest.at += 1;
        }
        Do::AwaitMarked(intid) if guest.arrivals[intid as usize] == guest.mark => {
            return Some(u64::from(class::WFX) << 26 | IL);
        }
        Do::AwaitMarked(_) => guest.at += 1,
        Do::RetryUntil(x0) => {
            guest.at = if held.x[0] == x0 { guest.at + 1 } else { guest.at - 1 };
        }
        Do::Note => {
            guest.notes.push(held.x[0]);
            guest.at += 1;
        }
        Do::UntilReset => return Some(u64::from(class::WFX) << 26 | IL),
        Do::ExpectUnchanged => {
            assert_eq!(held.x, guest.x, "registers after step {}", guest.at);
            guest.at += 1;
        }
        Do::ExpectException(expected) => {
            assert_eq!(guest.exception, expected, "exception at step {}", guest.at);
            guest.at += 1;
        }
        Do::ExpectArrivals(intid, times) => {
            assert_eq!(guest.arrivals[intid as usize], times, "interrupts {intid} at step {}", guest.at);
            guest.at += 1;
        }
        Do::SpinUntilDone(other) => {
            guest.at += usize::from(machine.guest(other).is_done());
        }
        Do::Stray(intid) => {
            here.stray.set(Some(intid));
            guest.at += 1;
        }
        Do::OpenGic => {
            open_gic(held.vcpu.vm);
            guest.at += 1;
        }
    }
    None
}
