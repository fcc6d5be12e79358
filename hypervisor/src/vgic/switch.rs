//! The CPU interface at a vCPU switch. Only what is in use is touched: with one list register in use, a save is about eight
//! accesses to system registers and a load four.
//!
//! Between vCPUs the hardware is at rest: list registers in use by nobody and active priorities are 0, and
//! ICH_HCR_EL2 is `EN`. So a load writes only what isn't at rest, and nothing of one guest is left for the next.

use core::sync::atomic::Ordering::Relaxed;

use super::bank::{HW_WAITING, VgicCpu};
use super::bits::ones;
use super::lr::{HW, PENDING, STATE};
use super::{ListRegisters, VcpuSet, Vgic, control};
use crate::ids::VcpuIndex;

/// What [`Vgic::save`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// A hardware-linked interrupt was in flight, so the physical one is active on this CPU: the caller clears that.
    pub timer_active: bool,
    /// Other vCPUs that are to be notified, as with [`Vgic::flush`].
    pub wake: VcpuSet,
}

impl Vgic {
    /// Puts the CPU interface of this CPU at rest: once, when the CPU starts.
    pub fn init_cpu(lrs: &impl ListRegisters) {
        for n in 0..lrs.count() {
            lrs.write(n, 0);
        }
        for n in 0..lrs.apr_count() {
            lrs.set_apr(0, n, 0);
            lrs.set_apr(1, n, 0);
        }
        lrs.set_vmcr(0);
        lrs.set_control(control::EN);
    }

    /// Owner: saves the CPU interface and puts the hardware at rest. `timer_asserted`: the line of the linked timer is high;
    /// if it isn't, a linked interrupt that the guest hasn't acknowledged is dropped, its cause having gone. The
    /// vCPU may be loaded on another CPU after this.
    #[inline]
    pub fn save(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters, timer_asserted: bool) -> Saved {
        let cpu = self.cpu(vcpu);
        cpu.vmcr.store(lrs.vmcr(), Relaxed);
        save_apr(cpu, lrs, 0);
        for n in 1..lrs.apr_count().min(4) {
            save_apr(cpu, lrs, n);
        }
        let notes = cpu.notes();
        if !notes.is_plain() {
            // A line may be sampled high at an end that is found below, or one may wait that fits then: looked at before
            // the next entry.
            cpu.signal();
            if notes.control() != control::EN {
                lrs.set_control(control::EN);
            }
        }
        let mut saved = Saved { timer_active: false, wake: VcpuSet::EMPTY };
        for n in ones(notes.used()) {
            let value = lrs.read(n);
            if value & STATE == 0 {
                saved.wake |= self.free(vcpu, n, lrs);
                continue;
            }
            lrs.write(n, 0);
            if value & (HW | STATE) == HW | PENDING && !timer_asserted {
                saved.timer_active = true;
                cpu.vacate(n);
                continue;
            }
            cpu.saved[n & 15].store(value, Relaxed);
        }
        let hw = cpu.hw.load(Relaxed);
        if hw != 0 {
            saved.timer_active = true;
            if hw & HW_WAITING != 0 {
                // Forgotten: its line, if it is high still, makes the physical one pending again where the vCPU is loaded.
                cpu.hw.store(0, Relaxed);
            }
        }
        saved
    }

    /// Owner: loads the CPU interface on this CPU, whose hardware is at rest. Returns whether a hardware-linked interrupt is in
    /// flight: then the caller makes the physical one active here (GICR_ISACTIVER0) before it enters the vCPU.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> bool {
        let cpu = self.cpu(vcpu);
        lrs.set_vmcr(cpu.vmcr.load(Relaxed));
        load_apr(cpu, lrs, 0);
        for n in 1..lrs.apr_count().min(4) {
            load_apr(cpu, lrs, n);
        }
        let notes = cpu.notes();
        if notes.control() != control::EN {
            lrs.set_control(notes.control());
        }
        if notes.used() == 0 {
            return false;
        }
        for n in ones(notes.used()) {
            lrs.write(n, cpu.saved[n & 15].load(Relaxed));
            // What others read of a loaded vCPU: nothing, rather than what was once.
            cpu.saved[n & 15].store(0, Relaxed);
        }
        cpu.hw.load(Relaxed) != 0
    }

    /// The CPU interface of a vCPU that is **not loaded** as it is at reset (CPU_ON after CPU_OFF). What was pending in list
    /// registers is pending again; what was active is not any more. Returns other vCPUs that are to be notified.
    pub fn reset_vcpu(&self, vcpu: VcpuIndex) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let notes = cpu.notes();
        let mut wake = VcpuSet::EMPTY;
        for n in ones(notes.used()) {
            let intid = cpu.intid(n);
            let latched = notes.latched(n) && cpu.saved[n & 15].load(Relaxed) & PENDING != 0;
            if latched {
                self.set_latch(cpu, intid);
            }
            if intid >= 32 {
                wake |= self.release_spi(vcpu, intid - 32);
            }
        }
        cpu.reset_interface();
        cpu.signal();
        wake
    }
}

/// Saves the active priorities of both groups in register `n`. They must be looked at even with no list register in
/// use: a guest can deactivate an interrupt and keep its priority.
#[inline(always)]
fn save_apr(cpu: &VgicCpu, lrs: &impl ListRegisters, n: usize) {
    for group in 0..2 {
        let value = lrs.apr(group, n);
        if value != 0 {
            lrs.set_apr(group, n, 0);
            cpu.apr[group][n & 3].store(value, Relaxed);
        }
    }
}

#[inline(always)]
fn load_apr(cpu: &VgicCpu, lrs: &impl ListRegisters, n: usize) {
    for group in 0..2 {
        let value = cpu.apr[group][n & 3].load(Relaxed);
        if value != 0 {
            cpu.apr[group][n & 3].store(0, Relaxed);
            lrs.set_apr(group, n, value);
        }
    }
}
