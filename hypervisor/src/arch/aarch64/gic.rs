//! The GIC's CPU interface (IHI 0069): ICC_* for EL2's own interrupts, ICH_* for the guest's.

use super::{read_sysreg, write_sysreg};
use crate::ids::IntId;
use crate::memory::address::Pa;
use crate::platform::gic::Registers;
use crate::vgic::ListRegisters;

/// Makes this CPU take interrupts through system registers, with priority drop and deactivation apart (EOImode 1), so that a
/// hardware-linked one stays active until its guest completes it.
///
/// # Errors
///
/// `false` where the CPU has no system register interface.
pub fn init_interrupt_interface() -> bool {
    if read_sysreg!("id_aa64pfr0_el1") >> 24 & 0xf == 0 {
        return false;
    }
    // Enable (EL1 may use its own), DIB, DFB, SRE.
    write_sysreg!("icc_sre_el2", 0xf);
    super::isb(); // SRE is in effect before the next access
    if read_sysreg!("icc_sre_el2") & 1 == 0 {
        return false;
    }
    write_sysreg!("icc_sre_el1", 7);
    super::isb();
    write_sysreg!("icc_pmr_el1", 0xff);
    write_sysreg!("icc_bpr1_el1", 0);
    write_sysreg!("icc_ctlr_el1", 1 << 1);
    write_sysreg!("icc_igrpen1_el1", 1);
    write_sysreg!("ich_hcr_el2", 1);
    super::isb();
    true
}

/// Acknowledges the highest pending interrupt; 1020 and above are none.
#[inline(always)]
pub fn acknowledge() -> IntId {
    IntId(read_sysreg!("icc_iar1_el1") as u32 & 0xff_ffff)
}

/// Drops the running priority of an acknowledged interrupt, which stays active.
#[inline(always)]
pub fn drop_priority(intid: IntId) {
    write_sysreg!("icc_eoir1_el1", u64::from(intid.0));
}

/// Deactivates an interrupt whose priority has been dropped.
#[inline(always)]
pub fn deactivate(intid: IntId) {
    write_sysreg!("icc_dir_el1", u64::from(intid.0));
}

/// Sends the kick, SGI 0, to the CPU whose ICC_SGI1R_EL1 encoding is `target`.
#[inline(always)]
pub fn send_kick(target: u64) {
    // SAFETY: a barrier: what the target is to find in memory is there before the interrupt.
    unsafe { core::arch::asm!("dsb ishst", options(nostack, preserves_flags)) };
    write_sysreg!("icc_sgi1r_el1", target);
}

/// ICC_SGI1R_EL1's encoding of SGI 0 to the CPU with these affinities (IHI 0069, 12.2.21).
pub const fn kick_target(mpidr: u64) -> u64 {
    let aff0 = mpidr & 0xff;
    let rest = (mpidr >> 8 & 0xff) << 16 | (mpidr >> 16 & 0xff) << 32 | (mpidr >> 32 & 0xff) << 48;
    rest | (aff0 >> 4) << 44 | 1 << (aff0 & 0xf)
}

/// The list registers and the virtual CPU interface of this CPU.
pub struct HardwareListRegisters;

macro_rules! lr_access {
    ($($n:literal)*) => {
        fn read_lr(n: usize) -> u64 {
            match n {
                $($n => read_sysreg!(concat!("ich_lr", $n, "_el2")),)*
                _ => 0,
            }
        }

        fn write_lr(n: usize, value: u64) {
            match n {
                $($n => write_sysreg!(concat!("ich_lr", $n, "_el2"), value),)*
                _ => {}
            }
        }
    };
}

lr_access!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

impl ListRegisters for HardwareListRegisters {
    fn count(&self) -> usize {
        (read_sysreg!("ich_vtr_el2") & 0x1f) as usize + 1
    }

    #[inline(always)]
    fn read(&self, n: usize) -> u64 {
        // The first one is nearly always the one.
        if n == 0 { read_sysreg!("ich_lr0_el2") } else { read_lr(n) }
    }

    #[inline(always)]
    fn write(&self, n: usize, value: u64) {
        if n == 0 { write_sysreg!("ich_lr0_el2", value) } else { write_lr(n, value) }
    }

    #[inline(always)]
    fn empty_mask(&self) -> u32 {
        read_sysreg!("ich_elrsr_el2") as u32
    }

    #[inline(always)]
    fn eoi_mask(&self) -> u32 {
        read_sysreg!("ich_eisr_el2") as u32
    }

    #[inline(always)]
    fn vmcr(&self) -> u32 {
        read_sysreg!("ich_vmcr_el2") as u32
    }

    #[inline(always)]
    fn set_vmcr(&self, value: u32) {
        write_sysreg!("ich_vmcr_el2", u64::from(value));
    }

    fn apr_count(&self) -> usize {
        // PREbits: the number of preemption bits less one.
        match read_sysreg!("ich_vtr_el2") >> 26 & 7 {
            0..=4 => 1,
            5 => 2,
            _ => 4,
        }
    }

    #[inline(always)]
    fn apr(&self, group: usize, n: usize) -> u32 {
        let value = match (group, n) {
            (1, 0) => read_sysreg!("ich_ap1r0_el2"),
            (0, 0) => read_sysreg!("ich_ap0r0_el2"),
            (1, 1) => read_sysreg!("ich_ap1r1_el2"),
            (0, 1) => read_sysreg!("ich_ap0r1_el2"),
            (1, 2) => read_sysreg!("ich_ap1r2_el2"),
            (0, 2) => read_sysreg!("ich_ap0r2_el2"),
            (1, 3) => read_sysreg!("ich_ap1r3_el2"),
            (0, 3) => read_sysreg!("ich_ap0r3_el2"),
            _ => 0,
        };
        value as u32
    }

    #[inline(always)]
    fn set_apr(&self, group: usize, n: usize, value: u32) {
        let value = u64::from(value);
        match (group, n) {
            (1, 0) => write_sysreg!("ich_ap1r0_el2", value),
            (0, 0) => write_sysreg!("ich_ap0r0_el2", value),
            (1, 1) => write_sysreg!("ich_ap1r1_el2", value),
            (0, 1) => write_sysreg!("ich_ap0r1_el2", value),
            (1, 2) => write_sysreg!("ich_ap1r2_el2", value),
            (0, 2) => write_sysreg!("ich_ap0r2_el2", value),
            (1, 3) => write_sysreg!("ich_ap1r3_el2", value),
            (0, 3) => write_sysreg!("ich_ap0r3_el2", value),
            _ => {}
        }
    }

    #[inline(always)]
    fn set_control(&self, value: u32) {
        write_sysreg!("ich_hcr_el2", u64::from(value));
    }

    fn line_high(&self, _: IntId) -> bool {
        super::virtual_timer_asserts()
    }

    fn deactivate(&self, pintid: IntId) {
        deactivate(pintid);
    }
}

/// Makes a private interrupt active in the redistributor whose SGI frame this is, so that it does not fire until it is
/// deactivated (GICR_ISACTIVER0).
#[inline(always)]
pub fn activate_private(sgi_frame: Pa, intid: IntId) {
    const GICR_ISACTIVER0: u64 = 0x300;
    super::devices().write32(Pa(sgi_frame.0 + GICR_ISACTIVER0), 1 << (intid.0 & 31));
}
