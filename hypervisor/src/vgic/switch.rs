//! The CPU interface at a vCPU switch. Only what is in use is touched: with one list register in use, a save is about eight
//! accesses to system registers and a load four.
//!
//! Between vCPUs the hardware is at rest: list registers in use by nobody and active priorities are 0, and
//! ICH_HCR_EL2 is `EN`. So a load writes only what isn't at rest, and nothing of one guest is left for the next.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::bank::HW_WAITING;
use super::bits::ones;
use super::lr::{ACTIVE, HW, PENDING, STATE, STATE_SHIFT};
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
        for group in 0..2 {
            for n in 0..lrs.apr_count().min(4) {
                let value = lrs.apr(group, n);
                if value != 0 {
                    lrs.set_apr(group, n, 0);
                    cpu.apr[group][n].store(value, Relaxed);
                }
            }
        }
        if cpu.control.load(Relaxed) != control::EN {
            lrs.set_control(control::EN);
        }
        let mut saved = Saved { timer_active: false, wake: VcpuSet::EMPTY };
        if cpu.used.load(Relaxed) != 0 || cpu.hw.load(Relaxed) != 0 {
            self.save_used(vcpu, lrs, timer_asserted, &mut saved);
        }
        saved
    }

    #[inline]
    fn save_used(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters, timer_asserted: bool, saved: &mut Saved) {
        let cpu = self.cpu(vcpu);
        if self.harvest_plain(cpu, lrs).is_none() {
            saved.wake = self.harvest(vcpu, lrs);
            // A line may still be high, or one may wait that fits now: looked at before the next entry.
            cpu.signal();
        }
        let hw = cpu.hw.load(Relaxed);
        saved.timer_active = hw != 0;
        if hw & HW_WAITING != 0 {
            // Forgotten: its line, if it is high still, makes the physical one pending again where the vCPU is loaded next.
            cpu.hw.store(0, Relaxed);
        }
        let mut pending = false;
        for n in ones(cpu.used.load(Relaxed)) {
            let value = lrs.read(n);
            lrs.write(n, 0);
            if value & (HW | STATE) == HW | PENDING && !timer_asserted {
                cpu.vacate(n);
                continue;
            }
            pending |= value >> STATE_SHIFT == PENDING >> STATE_SHIFT;
            cpu.saved[n & 15].store(value, Relaxed);
        }
        if pending {
            // SeqCst as all that decides whether a vCPU may be blocked.
            cpu.saved_pending.store(1, SeqCst);
        }
    }

    /// Owner: loads the CPU interface on this CPU, whose hardware is at rest. Returns whether a hardware-linked interrupt is in
    /// flight: then the caller makes the physical one active here (GICR_ISACTIVER0) before it enters the vCPU.
    #[inline]
    #[must_use]
    pub fn load(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> bool {
        let cpu = self.cpu(vcpu);
        lrs.set_vmcr(cpu.vmcr.load(Relaxed));
        for group in 0..2 {
            for n in 0..lrs.apr_count().min(4) {
                let value = cpu.apr[group][n].load(Relaxed);
                if value != 0 {
                    cpu.apr[group][n].store(0, Relaxed);
                    lrs.set_apr(group, n, value);
                }
            }
        }
        let wanted = cpu.control.load(Relaxed);
        if wanted != control::EN {
            lrs.set_control(wanted);
        }
        let used = cpu.used.load(Relaxed);
        if used == 0 {
            return false;
        }
        cpu.saved_pending.store(0, Relaxed);
        for n in ones(used) {
            lrs.write(n, cpu.saved[n & 15].load(Relaxed));
            // What others read of a loaded vCPU: nothing, rather than what was once.
            cpu.saved[n & 15].store(0, Relaxed);
        }
        cpu.hw.load(Relaxed) != 0
    }

    /// The CPU interface of a vCPU that is **not loaded** as it is at reset (CPU_ON after CPU_OFF). What was pending in list
    /// registers is pending again; what was active is not any more.
    pub fn reset_vcpu(&self, vcpu: VcpuIndex) {
        let cpu = self.cpu(vcpu);
        for n in ones(cpu.used.load(Relaxed)) {
            let intid = cpu.intid(n);
            let value = cpu.saved[n & 15].load(Relaxed);
            let latched = value & STATE & !ACTIVE != 0 && cpu.latched.load(Relaxed) >> n & 1 != 0;
            if intid < 32 {
                if latched {
                    cpu.signals.fetch_or(1 << intid, SeqCst);
                }
            } else {
                if latched {
                    self.latch.fetch_or(1 << ((intid - 32) & 63), SeqCst);
                }
                self.in_lr.fetch_and(!(1 << ((intid - 32) & 63)), SeqCst);
            }
        }
        cpu.reset_interface();
        cpu.signal();
    }
}
