//! What guests may be told to do.

use crate::exit::syndrome::class;
use crate::vm::layout::RAM_BASE;

/// The interrupt of the emulated physical timer, and its control register as an ISS.
pub(super) const PHYSICAL_TIMER: u32 = 30;
pub(super) const CNTP_CTL: u64 = 3 << 20 | 1 << 17 | 3 << 14 | 14 << 10 | 2 << 1;
/// Its value register.
const CNTP_TVAL: u64 = 3 << 20 | 3 << 14 | 14 << 10 | 2 << 1;
/// IL: the instruction that trapped is 32 bits wide.
pub(super) const IL: u64 = 1 << 25;

/// Something that a guest does.
#[derive(Clone, Debug)]
pub enum Do {
    /// Computes for so many ticks, at least.
    Spin(u64),
    /// Arms its virtual timer, to expire in so many ticks; with IMASK or without.
    Arm {
        /// From now.
        ticks: u64,
        /// CNTV_CTL_EL0.IMASK.
        masked: bool,
    },
    /// Arms its virtual timer and waits until that has interrupted.
    Sleep(u64),
    /// Sends an SGI to the vCPUs in a mask.
    Send(u32, u64),
    /// WFI until an interrupt has come so often in all.
    Await(u32, u64),
    /// The same, spinning.
    SpinUntil(u32, u64),
    /// PSTATE.I.
    Mask(bool),
    /// Uses an FP/SIMD register, which must be as it left it.
    Fp,
    /// Uses a key of pointer authentication, which must be as it left it.
    Pauth,
    /// An instruction that traps.
    Trap(Trap),
    /// `x0` of the last instruction that trapped must be this.
    Expect(u64),
    /// Remembers how often an interrupt has come.
    Mark(u32),
    /// WFI until it has come once more than that.
    AwaitMarked(u32),
    /// The last instruction that trapped is done again until its `x0` is this.
    RetryUntil(u64),
    /// Keeps `x0` of the last instruction that trapped, for the test.
    Note,
    /// Waits until the VM is reset.
    UntilReset,
    /// All registers must be as they were when the last instruction trapped.
    ExpectUnchanged,
    /// ESR_EL1 of the exception that the last instruction that trapped ended in; `None`: in none.
    ExpectException(Option<u64>),
    /// So often must an interrupt have come.
    ExpectArrivals(u32, u64),
    /// Spins until another vCPU, by its number in the machine, has done all that it has to do.
    SpinUntilDone(u32),
    /// A physical interrupt that is nobody's rises, and stays until it is disabled.
    Stray(u32),
    /// Sets its GIC up, as after a reset.
    OpenGic,
}

/// An instruction that traps: what EL2 finds.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// ESR_EL2.
    pub syndrome: u64,
    /// x0 to x3.
    pub x: [u64; 4],
    /// The address of an abort, virtual and intermediate physical alike.
    pub address: u64,
}

impl Do {
    /// CPU_ON of the VM's vCPU `index`.
    pub fn cpu_on(index: u64) -> Do {
        Do::hvc([0xc400_0003, index, RAM_BASE.0, 0])
    }

    /// Arms the emulated physical timer, to expire in so many ticks.
    pub fn arm_physical(ticks: u64) -> [Do; 2] {
        [Do::sysreg(CNTP_TVAL, ticks), Do::sysreg(CNTP_CTL, 1)]
    }

    /// CPU_OFF.
    pub fn cpu_off() -> Do {
        Do::hvc([0x8400_0002, 0, 0, 0])
    }

    /// SYSTEM_RESET.
    pub fn system_reset() -> Do {
        Do::hvc([0x8400_0009, 0, 0, 0])
    }

    /// HVC with a function and three arguments.
    pub fn hvc(x: [u64; 4]) -> Do {
        Do::Trap(Trap { syndrome: u64::from(class::HVC) << 26 | IL, x, address: 0 })
    }

    /// SMC with a function and three arguments.
    pub fn smc(x: [u64; 4]) -> Do {
        Do::Trap(Trap { syndrome: u64::from(class::SMC) << 26 | IL, x, address: 0 })
    }

    /// SYSTEM_OFF.
    pub fn system_off() -> Do {
        Do::hvc([0x8400_0008, 0, 0, 0])
    }

    /// A trapped MSR or MRS of x0, or with `rt`.
    pub fn sysreg(iss: u64, x0: u64) -> Do {
        Do::Trap(Trap { syndrome: u64::from(class::SYSREG) << 26 | IL | iss, x: [x0, 0, 0, 0], address: 0 })
    }

    /// A data abort at `address`, with what the syndrome says of the access.
    pub fn access(iss: u64, address: u64, x0: u64) -> Do {
        Do::Trap(Trap { syndrome: u64::from(class::DATA_ABORT) << 26 | IL | iss, x: [x0, 1, 2, 3], address })
    }
}
