//! What is pending, and what may be delivered: questions to the state of one interrupt or of all.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::Vgic;
use super::bank::VgicCpu;

impl Vgic {
    /// Private interrupts that may be delivered when pending: enabled, and so is their group.
    #[inline(always)]
    pub(super) fn private_gate(&self, cpu: &VgicCpu) -> u32 {
        // SeqCst: a poster has latched before; see `latch_private`. On the owner's side it is as cheap as any load.
        let group1 = cpu.group1.load(SeqCst);
        let groups = group1 & self.group1_on.load(SeqCst) | !group1 & self.group0_on.load(SeqCst);
        groups & cpu.enabled.load(SeqCst)
    }

    /// SPIs that may be delivered when pending.
    pub(super) fn spi_gate(&self) -> u64 {
        let widen = |word: u32| word as i32 as i64 as u64;
        let group1 = self.group1.load(SeqCst);
        let groups =
            group1 & widen(self.group1_on.load(SeqCst)) | !group1 & widen(self.group0_on.load(SeqCst));
        groups & self.enabled.load(SeqCst)
    }

    /// SPIs that are pending outside of list registers.
    pub(super) fn spi_pending(&self) -> u64 {
        self.latch.load(SeqCst) | self.line.load(SeqCst) & !self.edge.load(SeqCst)
    }

    /// Everything (bit = INTID) that may be delivered to a vCPU when pending.
    pub(super) fn gate(&self, cpu: &VgicCpu) -> u128 {
        wide(self.private_gate(cpu), self.spi_gate() & cpu.routed.load(SeqCst))
    }

    /// Everything that is pending in software and may be delivered to a vCPU.
    pub(super) fn wanted(&self, cpu: &VgicCpu) -> u128 {
        let private = cpu.signals.load(SeqCst) as u32
            | cpu.line.load(SeqCst) & !cpu.edge.load(SeqCst)
            | cpu.hw_waiting();
        let pending = wide(private, self.spi_pending());
        let active = wide(cpu.active.load(SeqCst), self.active.load(SeqCst));
        pending & self.gate(cpu) & !active
    }

    /// Everything that is in a list register of this vCPU or, an SPI, of any.
    pub(super) fn in_list_registers(&self, cpu: &VgicCpu) -> u128 {
        wide(cpu.in_lr.load(SeqCst), self.in_lr.load(SeqCst))
    }

    /// Takes the latch of an interrupt; whether it was set.
    pub(super) fn take_latch(&self, cpu: &VgicCpu, intid: u32) -> bool {
        // SeqCst: after the claim of the list register's content; a post after this is a new one.
        if intid < 32 {
            let bit = 1u64 << intid;
            cpu.signals.load(SeqCst) & bit != 0 && cpu.signals.fetch_and(!bit, SeqCst) & bit != 0
        } else {
            let bit = 1u64 << ((intid - 32) & 63);
            self.latch.load(SeqCst) & bit != 0 && self.latch.fetch_and(!bit, SeqCst) & bit != 0
        }
    }

    /// Sets the latch of an interrupt again, without a signal.
    pub(super) fn set_latch(&self, cpu: &VgicCpu, intid: u32) {
        if intid < 32 {
            cpu.signals.fetch_or(1 << intid, SeqCst);
        } else {
            self.latch.fetch_or(1 << ((intid - 32) & 63), SeqCst);
        }
    }

    /// Whether an interrupt is level-triggered and its line high.
    pub(super) fn line_is_high(&self, cpu: &VgicCpu, intid: u32) -> bool {
        if intid < 32 {
            (cpu.line.load(SeqCst) & !cpu.edge.load(SeqCst)) >> intid & 1 != 0
        } else {
            (self.line.load(SeqCst) & !self.edge.load(SeqCst)) >> ((intid - 32) & 63) & 1 != 0
        }
    }

    pub(super) fn priority_of(&self, cpu: &VgicCpu, intid: u32) -> u8 {
        if intid < 32 {
            cpu.priority[intid as usize & 31].load(Relaxed)
        } else {
            self.priority[(intid - 32) as usize & 63].load(Relaxed)
        }
    }
}

/// Private interrupts and SPIs as one set: bit = INTID.
#[inline(always)]
pub(super) fn wide(private: u32, spis: u64) -> u128 {
    u128::from(private) | u128::from(spis) << 32
}
