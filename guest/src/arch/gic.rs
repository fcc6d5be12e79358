//! GICv3 with affinity routing (IHI 0069): distributor and redistributor by MMIO, CPU interface by system
//! registers.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::cpu::{isb, read_register, write_register};
use super::mmio::Registers;
use crate::machine::Machine;

const GICD_CTLR: usize = 0x0000;
/// Interrupt controller type register.
pub const GICD_TYPER: usize = 0x0004;
/// Interrupt group registers.
pub const GICD_IGROUPR: usize = 0x0080;
/// Interrupt set-enable registers.
pub const GICD_ISENABLER: usize = 0x0100;
/// Interrupt clear-enable registers.
pub const GICD_ICENABLER: usize = 0x0180;
/// Interrupt set-pending registers.
pub const GICD_ISPENDR: usize = 0x0200;
/// Interrupt clear-pending registers.
pub const GICD_ICPENDR: usize = 0x0280;
/// Interrupt priority registers.
pub const GICD_IPRIORITYR: usize = 0x0400;
/// Interrupt configuration registers.
pub const GICD_ICFGR: usize = 0x0c00;
/// Interrupt routing registers.
pub const GICD_IROUTER: usize = 0x6000;
/// Peripheral ID 2: the architecture's version in bits 7 to 4.
pub const GICD_PIDR2: usize = 0xffe8;
/// Redistributor type register.
pub const GICR_TYPER: usize = 0x0008;
const GICR_WAKER: usize = 0x0014;
/// The second frame of a redistributor: SGIs and PPIs.
const SGI_FRAME: usize = 0x1_0000;
const GICR_IGROUPR0: usize = SGI_FRAME + 0x0080;
/// Set-enable register of SGIs and PPIs.
pub const GICR_ISENABLER0: usize = SGI_FRAME + 0x0100;
/// Clear-enable register of SGIs and PPIs.
pub const GICR_ICENABLER0: usize = SGI_FRAME + 0x0180;
/// Priority registers of SGIs and PPIs.
pub const GICR_IPRIORITYR: usize = SGI_FRAME + 0x0400;

const CTLR_RWP: u32 = 1 << 31;
/// Affinity routing and group 1; the group's bit stands at 1 with one security state, and is EnableGrp1A as the
/// non-secure side of two sees it.
const CTLR_ENABLE: u32 = (1 << 4) | (1 << 1);
const WAKER_PROCESSOR_SLEEP: u32 = 1 << 1;
const WAKER_CHILDREN_ASLEEP: u32 = 1 << 2;

/// INTIDs from here on are special: no interrupt to handle.
pub const SPECIAL: u32 = 1020;

static DISTRIBUTOR: AtomicUsize = AtomicUsize::new(0);

/// The distributor's registers.
pub fn distributor() -> Registers {
    // SAFETY: `init` stored the address from the device tree after mapping it.
    unsafe { Registers::new(DISTRIBUTOR.load(Ordering::Relaxed)) }
}

/// Switches the distributor on.
pub fn init(machine: &Machine<'_>) {
    DISTRIBUTOR.store(machine.distributor.base as usize, Ordering::Relaxed);
    let registers = distributor();
    registers.write32(GICD_CTLR, CTLR_ENABLE);
    while registers.read32(GICD_CTLR) & CTLR_RWP != 0 {
        crate::sync::relax();
    }
}

/// The redistributor with this affinity.
pub fn redistributor(machine: &Machine<'_>, affinity: u64) -> Option<Registers> {
    let wanted = ((affinity >> 32) << 24) | (affinity & 0xff_ffff);
    for region in &machine.redistributors {
        let mut offset = 0;
        while offset + 0x2_0000 <= region.size {
            // SAFETY: within a redistributor region of the device tree, mapped as device.
            let frame = unsafe { Registers::new((region.base + offset) as usize) };
            let typer = frame.read64(GICR_TYPER);
            if typer >> 32 == wanted {
                return Some(frame);
            }
            if typer & (1 << 4) != 0 {
                break; // the last of its region
            }
            offset += if typer & (1 << 1) != 0 { 0x4_0000 } else { 0x2_0000 };
        }
    }
    None
}

/// Sets up this CPU's redistributor and CPU interface; SGIs and `timer` are enabled.
pub fn init_cpu(frame: Registers, timer: u32) {
    let waker = frame.read32(GICR_WAKER);
    frame.write32(GICR_WAKER, waker & !WAKER_PROCESSOR_SLEEP);
    while frame.read32(GICR_WAKER) & WAKER_CHILDREN_ASLEEP != 0 {
        crate::sync::relax();
    }
    frame.write32(GICR_IGROUPR0, u32::MAX);
    for i in 0..8 {
        frame.write32(GICR_IPRIORITYR + 4 * i, 0xa0a0_a0a0);
    }
    frame.write32(GICR_ISENABLER0, 0xffff | (1 << timer));
    write_register!("S3_0_C12_C12_5", read_register!("S3_0_C12_C12_5") | 1); // ICC_SRE_EL1.SRE
    isb();
    set_priority_mask(0xf0);
    write_register!("S3_0_C12_C12_3", 0); // ICC_BPR1_EL1
    write_register!("S3_0_C12_C12_4", 0); // ICC_CTLR_EL1: EOI also deactivates
    write_register!("S3_0_C12_C12_7", 1); // ICC_IGRPEN1_EL1
    isb();
}

/// Sets the least priority that is no longer taken (ICC_PMR_EL1).
pub fn set_priority_mask(mask: u64) {
    write_register!("S3_0_C4_C6_0", mask);
    isb();
}

/// Acknowledges the most urgent interrupt.
#[inline(always)]
pub fn acknowledge() -> u32 {
    let intid = read_register!("S3_0_C12_C12_0") as u32; // ICC_IAR1_EL1
    // SAFETY: a barrier: the acknowledgement is complete before the handler touches the device.
    unsafe { core::arch::asm!("dsb sy", options(nostack)) };
    intid & 0xff_ffff
}

/// Completes an interrupt.
#[inline(always)]
pub fn complete(intid: u32) {
    write_register!("S3_0_C12_C12_1", u64::from(intid)); // ICC_EOIR1_EL1
    isb();
}

/// The value of ICC_SGI1R_EL1 that sends SGI `intid` to the CPU with this affinity.
pub const fn sgi_value(affinity: u64, intid: u32) -> u64 {
    let aff0 = affinity & 0xff;
    let (aff1, aff2, aff3) = ((affinity >> 8) & 0xff, (affinity >> 16) & 0xff, (affinity >> 32) & 0xff);
    (aff3 << 48)
        | ((aff0 >> 4) << 44)
        | (aff2 << 32)
        | ((intid as u64) << 24)
        | (aff1 << 16)
        | (1 << (aff0 & 0xf))
}

/// Sends an SGI; stores before it are visible to the handler.
#[inline(always)]
pub fn send_sgi(value: u64) {
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ishst", options(nostack)) };
    write_register!("S3_0_C12_C11_5", value); // ICC_SGI1R_EL1
    isb();
}
