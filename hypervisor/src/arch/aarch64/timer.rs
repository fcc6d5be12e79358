//! The generic timer (Arm ARM D12): the counter, and EL2's own physical timer.

use super::{read_sysreg, write_sysreg};

/// The physical counter, in ticks.
///
/// No ISB before it: at the start of an exit the exception itself has synchronized, and elsewhere an early reading is off by
/// less than what is measured.
#[inline(always)]
pub fn counter() -> u64 {
    read_sysreg!("cntpct_el0")
}

/// Ticks a second, as firmware says (CNTFRQ_EL0).
pub fn counter_frequency() -> u64 {
    read_sysreg!("cntfrq_el0") & 0xffff_ffff
}

/// Lets EL2's physical timer interrupt at `deadline` (ticks of the physical counter).
#[inline(always)]
pub fn arm_el2_timer(deadline: u64) {
    write_sysreg!("cnthp_cval_el2", deadline);
    write_sysreg!("cnthp_ctl_el2", 1);
}

/// Switches EL2's physical timer off.
#[inline(always)]
pub fn disarm_el2_timer() {
    write_sysreg!("cnthp_ctl_el2", 0);
}
