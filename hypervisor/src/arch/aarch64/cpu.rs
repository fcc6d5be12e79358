//! This CPU: its own structure, waiting, and how EL2 is configured.

use super::{read_sysreg, write_sysreg};
use crate::arch::context::Context;
use crate::memory::stage2::Stage2Config;
use crate::scheduler::Cpu;
use core::arch::asm;

unsafe extern "C" {
    static vectors: u8;
    static vectors_traced: u8;
    fn enter_guest(context: *mut u64) -> !;
}

/// HCR_EL2 (Arm ARM D19.2): what guests may do and what traps. The same for every guest and never changed, as a write that
/// changes VM would empty TLBs. [`HCR_FWB`] is set beside these where the CPUs have it.
const HCR_EL2: u64 = 1 // VM: stage 2 on
    | 1 << 1 // SWIO: set/way invalidation cleans too
    | 1 << 3 // FMO: FIQs to EL2
    | 1 << 4 // IMO: IRQs to EL2, virtual ones to the guest
    | 1 << 5 // AMO: SErrors to EL2
    | 1 << 9 // FB: a guest's local TLBI reaches every CPU, as its vCPU may have run on another
    | 1 << 10 // BSU: and its barriers are at least inner shareable
    | 1 << 13 // TWI: WFI gives the CPU away
    | 1 << 18 // TID3: ID registers are ours to say
    | 1 << 19 // TSC: SMC
    | 1 << 20 // TIDCP: IMPLEMENTATION DEFINED registers
    | 1 << 21 // TACR: ACTLR_EL1
    | 1 << 22 // TSW: set/way maintenance
    | 1 << 31 // RW: EL1 is AArch64
    | 1 << 35 // TLOR: LORegions
    | 1 << 36 // TERR: RAS error records
    | 1 << 58; // TID5: GMID_EL1, of MTE

/// FWB: stage 2 decides that RAM is write-back cacheable. As stage 2's descriptors are written (`Stage2Config::forces_write_back`).
const HCR_FWB: u64 = 1 << 46;

/// CPTR_EL2: RES1 bits, SVE and SME trap (TZ, TSM), trace and activity counters do (TTA, TAM), FP/SIMD traps until it is
/// switched (TFP), CPACR accesses don't.
const CPTR_EL2_BASE: u64 = 0x33ff & !(1 << 10) | 1 << 20 | 1 << 30;
const CPTR_TFP: u64 = 1 << 10;

/// Configures EL2 on this CPU and makes `cpu` its own. The CPU has what `stage2` asks for.
pub fn init_cpu(cpu: &'static Cpu, stage2: &Stage2Config) {
    write_sysreg!("tpidr_el2", core::ptr::from_ref(cpu) as u64);
    let base = if cpu.ring.is_some() { &raw const vectors_traced } else { &raw const vectors };
    // SAFETY: both are tables of vectors.s, aligned to 2 KiB.
    unsafe { asm!("msr vbar_el2, {}", "isb", in(reg) base as u64, options(nostack, preserves_flags)) };
    write_sysreg!("hcr_el2", HCR_EL2 | if stage2.forces_write_back() { HCR_FWB } else { 0 });
    fp_trap(true);
    write_sysreg!("hstr_el2", 0);
    init_traps_of_newer_cpus();
    // TDA, TDOSA, TDRA: debug registers trap; TPM, TPMCR: the PMU does; TTRF, TPMS: trace and profiling do.
    // HPMN stays as reset: all event counters that the CPU has.
    let hpmn = read_sysreg!("mdcr_el2") & 0x1f;
    write_sysreg!("mdcr_el2", hpmn | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 6 | 1 << 5 | 1 << 19 | 1 << 14);
    // EL1PCTEN: the physical counter is readable; EL1PCEN = 0: the physical timer traps and is emulated.
    write_sysreg!("cnthctl_el2", 1);
    write_sysreg!("cntvoff_el2", 0);
    write_sysreg!("cntv_ctl_el0", 0);
    write_sysreg!("cnthp_ctl_el2", 0);
    write_sysreg!("vpidr_el2", read_sysreg!("midr_el1"));
    write_sysreg!("vtcr_el2", stage2.vtcr());
    write_sysreg!("vttbr_el2", 0);
    super::isb(); // all of the above is in effect before the first guest
}

/// Registers that only newer CPUs have and whose value after reset is not known. Of the fine-grained traps those are active that
/// trap where they are 0: of features that guests are not told of (docs/id-registers.md).
fn init_traps_of_newer_cpus() {
    let mmfr0 = super::id_aa64mmfr0();
    let mmfr1 = super::id_aa64mmfr1();
    let pfr0 = read_sysreg!("id_aa64pfr0_el1");
    let pfr1 = read_sysreg!("id_aa64pfr1_el1");
    // ID_AA64MMFR0_EL1.FGT: HFGRTR, HFGWTR, HFGITR, HDFGRTR, HDFGWTR.
    if mmfr0 >> 56 & 0xf != 0 {
        write_sysreg!("S3_4_C1_C1_4", 0);
        write_sysreg!("S3_4_C1_C1_5", 0);
        write_sysreg!("S3_4_C1_C1_6", 0);
        write_sysreg!("S3_4_C3_C1_4", 0);
        write_sysreg!("S3_4_C3_C1_5", 0);
    }
    // FGT 2: HDFGRTR2, HDFGWTR2, HFGRTR2, HFGWTR2, HFGITR2.
    if mmfr0 >> 56 & 0xf >= 2 {
        write_sysreg!("S3_4_C3_C1_0", 0);
        write_sysreg!("S3_4_C3_C1_1", 0);
        write_sysreg!("S3_4_C3_C1_2", 0);
        write_sysreg!("S3_4_C3_C1_3", 0);
        write_sysreg!("S3_4_C3_C1_7", 0);
    }
    // ID_AA64MMFR1_EL1.HCX: HCRX_EL2.
    if mmfr1 >> 40 & 0xf != 0 {
        // TALLINT, where there are non-maskable interrupts (ID_AA64PFR1_EL1.NMI).
        let tallint = u64::from(pfr1 >> 36 & 0xf != 0) << 6;
        write_sysreg!("S3_4_C1_C2_2", tallint);
    }
    // ID_AA64PFR0_EL1.MPAM, ID_AA64PFR1_EL1.MPAM_frac: MPAM2_EL2.TRAPMPAM0EL1, TRAPMPAM1EL1, and the default partition.
    if pfr0 >> 40 & 0xf != 0 || pfr1 >> 16 & 0xf != 0 {
        write_sysreg!("S3_4_C10_C5_0", 1 << 49 | 1 << 48);
    }
}

/// A register of EL2 and what it holds.
pub type Configured = (&'static str, u64);

macro_rules! configured {
    ($($name:literal,)*) => {
        /// How many registers [`configuration`] looks at.
        pub const CONFIGURED: usize = [$($name),*].len();

        /// Registers of EL2 that hold the same on every CPU, as guests go from one to another.
        pub fn configuration() -> [Configured; CONFIGURED] {
            [$(($name, read_sysreg!($name))),*]
        }
    };
}

configured! {
    "hcr_el2", "cptr_el2", "cnthctl_el2", "hstr_el2", "vtcr_el2", "vttbr_el2", "sctlr_el2", "tcr_el2", "ttbr0_el2", "mair_el2", "vbar_el2",
    "icc_sre_el2", "ich_hcr_el2",
}

/// Makes this CPU's configuration another one than that of the first (`debug.fault=differ`).
pub fn differ() {
    write_sysreg!("hstr_el2", 1);
}

/// Whether guests' accesses to RAM go through the caches whatever they say themselves: known once the CPU is configured.
pub fn write_back_is_forced() -> bool {
    read_sysreg!("hcr_el2") & HCR_FWB != 0
}

/// The structure of the CPU that executes this.
#[inline(always)]
pub fn this_cpu() -> &'static Cpu {
    let pointer: *const Cpu;
    // SAFETY: `init_cpu` stored a `&'static Cpu` before any caller runs; `nomem` as the register never changes afterwards.
    unsafe {
        asm!("mrs {}, tpidr_el2", out(reg) pointer, options(nomem, nostack, preserves_flags, pure));
        &*pointer
    }
}

/// Whether this CPU has its structure yet.
pub fn has_cpu() -> bool {
    read_sysreg!("tpidr_el2") != 0
}

/// This CPU's affinity fields of MPIDR_EL1.
pub fn mpidr() -> u64 {
    read_sysreg!("mpidr_el1") & 0xff_00ff_ffff
}

/// Waits for an interrupt: masked ones wake it too, and stay pending.
pub fn wait_for_interrupt() {
    // SAFETY: WFI only waits. The DSB completes earlier stores, so that what other CPUs wait for is not held back.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) }
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        // SAFETY: waits with interrupts masked.
        unsafe { asm!("msr daifset, #0xf", "wfi", options(nostack)) }
    }
}

/// Leaves the hypervisor for the guest whose registers `context` holds.
pub fn enter(context: *mut Context) -> ! {
    // SAFETY: the caller hands over a loaded vCPU's context, which outlives the machine's run.
    unsafe { enter_guest(context.cast()) }
}

/// Whether the guest's FP/SIMD instructions trap.
#[inline(always)]
pub fn fp_trap(on: bool) {
    write_sysreg!("cptr_el2", if on { CPTR_EL2_BASE | CPTR_TFP } else { CPTR_EL2_BASE });
}

/// Where this CPU's stacks are: its own and the emergency one, guard pages between them included.
pub fn own_stacks() -> crate::memory::address::PaRange {
    use crate::memory::address::{Pa, PaRange};
    if !has_cpu() {
        return PaRange::new(Pa(0), 0);
    }
    let cpu = this_cpu();
    let base = cpu.stack - crate::boot::memory::STACK;
    PaRange::new(Pa(base), crate::boot::memory::STACK)
}

/// A hint that this CPU waits for another.
#[inline(always)]
pub fn yield_cpu() {
    // SAFETY: a hint changes no state.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) }
}
