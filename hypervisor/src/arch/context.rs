//! What a vCPU is while it does not run: the registers that its guest owns.
//!
//! The general-purpose registers go in and out at each exit; the rest only when another vCPU takes the CPU. The first
//! fields are read by `vectors.s`, which relies on the offsets asserted below.

use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// AArch64 EL1h with D, A, I and F masked: how the boot protocol and PSCI's CPU_ON enter a kernel.
pub const SPSR_EL1H_MASKED: u64 = 0x3c5;

/// SCTLR_EL1 as after reset: the RES1 bits of Armv8.0, MMU and caches off (Arm ARM D19.2).
const SCTLR_EL1_RESET: u64 = 0x30d0_0800;

/// FP/SIMD registers, in the order in which `fp.s` stores them.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct FpState {
    pub(super) q: [u128; 32],
    fpsr: u64,
    fpcr: u64,
}

impl FpState {
    const RESET: FpState = FpState { q: [0; 32], fpsr: 0, fpcr: 0 };
}

macro_rules! el1_registers {
    ($($field:ident = $name:literal,)*) => {
        /// EL1 and EL0 system registers that a guest owns (without the timer and the GIC).
        #[repr(C)]
        #[derive(Clone, Default)]
        pub struct El1State {
            $(#[doc = $name] pub $field: u64,)*
        }

        #[cfg(target_os = "none")]
        impl El1State {
            /// Reads all of them from this CPU.
            #[inline(always)]
            pub fn save(&mut self) {
                $(self.$field = super::read_sysreg!($name);)*
            }

            /// Writes all of them to this CPU.
            #[inline(always)]
            pub fn restore(&self) {
                $(super::write_sysreg!($name, self.$field);)*
            }
        }
    };
}

el1_registers! {
    sctlr = "sctlr_el1",
    cpacr = "cpacr_el1",
    ttbr0 = "ttbr0_el1",
    ttbr1 = "ttbr1_el1",
    tcr = "tcr_el1",
    mair = "mair_el1",
    amair = "amair_el1",
    vbar = "vbar_el1",
    contextidr = "contextidr_el1",
    esr = "esr_el1",
    far = "far_el1",
    afsr0 = "afsr0_el1",
    afsr1 = "afsr1_el1",
    par = "par_el1",
    elr = "elr_el1",
    spsr = "spsr_el1",
    sp_el0 = "sp_el0",
    sp_el1 = "sp_el1",
    tpidr_el0 = "tpidr_el0",
    tpidrro_el0 = "tpidrro_el0",
    tpidr_el1 = "tpidr_el1",
    csselr = "csselr_el1",
    cntkctl = "cntkctl_el1",
    vmpidr = "vmpidr_el2",
    elr_el2 = "elr_el2",
    spsr_el2 = "spsr_el2",
}

/// The virtual timer while the vCPU is not loaded.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TimerState {
    /// CNTV_CTL_EL0.
    pub ctl: u64,
    /// CNTV_CVAL_EL0, in ticks of the VM's own clock.
    pub cval: u64,
}

impl TimerState {
    /// Whether the timer is enabled and not masked (CNTV_CTL_EL0: ENABLE and not IMASK), so that it interrupts when it expires.
    pub fn armed(self) -> bool {
        self.ctl & 3 == 1
    }
}

/// One vCPU's registers. Only the CPU that holds the vCPU touches it.
#[repr(C, align(64))]
pub struct Context {
    /// x0 to x30.
    pub x: [u64; 31],
    /// Stack of the CPU on which the vCPU is loaded: SP_EL2 after an exit.
    pub cpu_stack: u64,
    /// Physical counter when the guest was last entered.
    pub entered: u64,
    /// The vCPU that these registers belong to.
    pub vcpu: &'static crate::vm::Vcpu,
    /// EL1 and EL0 system registers, ELR_EL2 and SPSR_EL2.
    pub el1: El1State,
    /// Virtual timer.
    pub timer: TimerState,
    /// Emulated physical timer (CNTP_CTL_EL0, CNTP_CVAL_EL0).
    pub physical_timer: TimerState,
    /// The guest has used pointer authentication since its vCPU was started: its keys are switched.
    pub uses_pauth: bool,
    /// APIA, APIB, APDA, APDB and APGA keys, low and high halves.
    pub pauth_keys: [u64; 10],
    /// CPU whose FP/SIMD registers were last loaded from here.
    pub fp_cpu: Option<crate::ids::CpuId>,
    /// FP/SIMD registers.
    pub fp: FpState,
}

const _: () = assert!(offset_of!(Context, x) == 0);
const _: () = assert!(offset_of!(Context, cpu_stack) == 248);
const _: () = assert!(offset_of!(FpState, fpsr) == 512 && offset_of!(FpState, fpcr) == 520);

impl Context {
    /// Registers of a vCPU that was never started.
    pub fn new(vcpu: &'static crate::vm::Vcpu) -> Context {
        Context {
            x: [0; 31],
            cpu_stack: 0,
            entered: 0,
            vcpu,
            el1: El1State::default(),
            timer: TimerState::default(),
            physical_timer: TimerState::default(),
            uses_pauth: false,
            pauth_keys: [0; 10],
            fp_cpu: None,
            fp: FpState::RESET,
        }
    }

    /// As after a reset, about to execute at `entry` with `x0`.
    pub fn reset(&mut self, entry: u64, x0: u64, vmpidr: u64) {
        self.x = [0; 31];
        self.x[0] = x0;
        self.el1 = El1State {
            sctlr: SCTLR_EL1_RESET,
            vmpidr,
            elr_el2: entry,
            spsr_el2: SPSR_EL1H_MASKED,
            ..El1State::default()
        };
        self.timer = TimerState::default();
        self.physical_timer = TimerState::default();
        self.uses_pauth = false;
        self.pauth_keys = [0; 10];
        self.fp_cpu = None;
        self.fp = FpState::RESET;
    }

    /// Register `rt` of a trapped instruction: 31 is xzr.
    #[inline(always)]
    pub fn register(&self, rt: u32) -> u64 {
        self.x.get(rt as usize).copied().unwrap_or(0)
    }

    /// Writes register `rt` of a trapped instruction: 31 is xzr, and the value goes nowhere.
    #[inline(always)]
    pub fn set_register(&mut self, rt: u32, value: u64) {
        if let Some(register) = self.x.get_mut(rt as usize) {
            *register = value;
        }
    }
}

/// The right to a vCPU's registers: only the CPU on which it is loaded, or is being loaded, has one.
#[repr(transparent)]
pub struct Held(NonNull<Context>);

impl Held {
    /// Takes hold of `vcpu`.
    ///
    /// # Safety
    ///
    /// The caller is the CPU that has just taken the vCPU from a run queue, or in whose registers it is resident, and drops
    /// or forgets this value before another CPU can take it.
    pub unsafe fn of(vcpu: &crate::vm::Vcpu) -> Option<Held> {
        NonNull::new(vcpu.context()).map(Held)
    }

    /// The registers, for the code that enters the guest.
    pub fn as_ptr(&self) -> *mut Context {
        self.0.as_ptr()
    }
}

impl Deref for Held {
    type Target = Context;

    #[inline(always)]
    fn deref(&self) -> &Context {
        // SAFETY: the context lives as long as the machine runs, and whoever has this value is the only one to touch it.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Held {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Context {
        // SAFETY: as in `deref`.
        unsafe { self.0.as_mut() }
    }
}

/// Where a fault at EL2 leaves its registers: the first thing in each CPU's own structure.
#[repr(C)]
pub struct FaultArea {
    /// Top of the stack on which a fault is reported.
    pub stack: u64,
    /// SP at the fault.
    pub sp: u64,
    /// x0 to x30 at the fault.
    pub x: [u64; 31],
}

const _: () = assert!(
    offset_of!(FaultArea, stack) == 0 && offset_of!(FaultArea, sp) == 8 && offset_of!(FaultArea, x) == 16
);
