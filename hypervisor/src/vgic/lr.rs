//! List registers: the encoding of `ICH_LR<n>_EL2` and ICH_HCR_EL2 (IHI 0069, 12.4), and the trait behind which the
//! hardware is.

use crate::ids::IntId;

/// Bits of ICH_HCR_EL2 (IHI 0069, 12.4.5).
pub mod control {
    /// The virtual CPU interface works.
    pub const EN: u32 = 1 << 0;
    /// Maintenance interrupt on underflow: at most one list register holds an interrupt.
    pub const UIE: u32 = 1 << 1;
    /// Maintenance interrupt when no list register holds a pending interrupt.
    pub const NPIE: u32 = 1 << 3;
}

/// The state: both bits clear is invalid.
pub(super) const PENDING: u64 = 1 << 62;
pub(super) const ACTIVE: u64 = 1 << 63;
pub(super) const STATE: u64 = PENDING | ACTIVE;
/// Linked with a physical interrupt, which is deactivated with the virtual one.
pub(super) const HW: u64 = 1 << 61;
pub(super) const GROUP1: u64 = 1 << 60;
pub(super) const PRIORITY_SHIFT: u32 = 48;
/// With `HW`: the physical INTID. Its upper bits are above what we use.
pub(super) const PINTID_SHIFT: u32 = 32;
/// Without `HW`: maintenance interrupt at the end of this interrupt.
pub(super) const EOI: u64 = 1 << 41;
/// The field that holds the physical INTID, or `EOI`.
pub(super) const PINTID: u64 = 0x1fff << PINTID_SHIFT;

/// A list register without its state and link.
#[inline(always)]
pub(super) fn encode(intid: u32, priority: u8, group1: bool) -> u64 {
    u64::from(intid) | u64::from(priority) << PRIORITY_SHIFT | if group1 { GROUP1 } else { 0 }
}

/// The priority in a list register.
pub(super) fn priority(lr: u64) -> u8 {
    (lr >> PRIORITY_SHIFT) as u8
}

/// The interrupt that a list register's value makes pending, if it does.
pub fn pending(value: u64) -> Option<IntId> {
    (value & PENDING != 0).then_some(IntId(value as u32))
}

/// The virtual CPU interface's control registers of the CPU on which the code runs (IHI 0069, 12.4), and what goes with a
/// hardware-linked interrupt. Implemented by `arch` over system registers and by `fake` in tests.
///
/// `n` is always less than [`ListRegisters::count`].
pub trait ListRegisters {
    /// Number of list registers, 1 to 16 (ICH_VTR_EL2.ListRegs + 1). The same on every CPU: give the least.
    fn count(&self) -> usize;
    /// Reads `ICH_LR<n>_EL2`.
    fn read(&self, n: usize) -> u64;
    /// Writes `ICH_LR<n>_EL2`.
    fn write(&self, n: usize, value: u64);
    /// ICH_ELRSR_EL2: list registers that hold nothing and have no end of interrupt to report.
    fn empty_mask(&self) -> u32;
    /// ICH_EISR_EL2: list registers whose interrupt has ended and that asked for a maintenance interrupt.
    fn eoi_mask(&self) -> u32;
    /// Reads ICH_VMCR_EL2.
    fn vmcr(&self) -> u32;
    /// Writes ICH_VMCR_EL2.
    fn set_vmcr(&self, value: u32);
    /// Number of active priority registers of a group: 1, 2 or 4 for 5, 6 or 7 preemption bits (ICH_VTR_EL2.PREbits).
    fn apr_count(&self) -> usize;
    /// Reads `ICH_AP0R<n>_EL2` or `ICH_AP1R<n>_EL2`; `group` is 0 or 1, `n` less than [`ListRegisters::apr_count`].
    fn apr(&self, group: usize, n: usize) -> u32;
    /// Writes `ICH_AP0R<n>_EL2` or `ICH_AP1R<n>_EL2`.
    fn set_apr(&self, group: usize, n: usize, value: u32);
    /// Writes ICH_HCR_EL2: bits of [`control`].
    fn set_control(&self, value: u32);
    /// Whether the line of a physical interrupt that was given to [`super::Vgic::inject_timer`] is still high
    /// (CNTV_CTL_EL0: ENABLE, ISTATUS, not IMASK). Asked on rare paths alone.
    fn line_high(&self, pintid: IntId) -> bool;
    /// Deactivates a physical interrupt of this CPU (ICC_DIR_EL1). Called on rare paths alone: usually the hardware does it.
    fn deactivate(&self, pintid: IntId);
}
