//! The hardware-linked virtual timer: a list register with its HW bit, so that the guest's end of interrupt
//! deactivates the physical one without an exit (IHI 0069, 6.3 and 12.4.7).

use core::sync::atomic::Ordering::Relaxed;

use super::bank::{HW_PINTID_SHIFT, HW_WAITING};
use super::bits::ones;
use super::fill::report_end;
use super::flush::harvest_plain;
use super::lr::{HW, PENDING, PINTID_SHIFT};
use super::{ListRegisters, VcpuSet, Vgic};
use crate::ids::{IntId, VcpuIndex};

impl Vgic {
    /// Owner: the physical timer interrupt `pintid` was acknowledged and its priority dropped (EOImode 1), so it is active:
    /// gives it to the loaded vCPU as its PPI `intid`. The guest's completion deactivates it. While the guest has the PPI
    /// disabled, or no list register is free, it waits here, active and so silent. One interrupt at a time is linked.
    ///
    /// Returns other vCPUs that are to be notified, as [`Vgic::flush`] does. An `intid` that is no PPI is deactivated.
    #[inline(always)]
    pub fn inject_timer(
        &self,
        vcpu: VcpuIndex,
        lrs: &impl ListRegisters,
        intid: IntId,
        pintid: IntId,
    ) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let notes = cpu.notes();
        let bit = if (16..32).contains(&intid.0) { 1u32 << intid.0 } else { 0 };
        // A latched one, an active one, one in a list register are for the other path: both become one.
        let blocked = cpu.active.load(Relaxed) | cpu.signals.load(Relaxed) as u32;
        if notes.is_plain() && bit & self.owner_gate(cpu) & !blocked != 0 {
            let notes = harvest_plain(cpu, lrs, notes);
            let in_lr = cpu.in_lr.load(Relaxed);
            let slot = (!notes.used()).trailing_zeros() as usize;
            if in_lr & bit == 0 && (slot == 0 || slot < lrs.count()) {
                let link = HW | u64::from(pintid.0 & 0x3ff) << PINTID_SHIFT;
                lrs.write(slot, cpu.encode_private(intid.0) | link | PENDING);
                cpu.lr_intid[slot & 15].store(intid.0 as u8, Relaxed);
                cpu.in_lr.store(in_lr | bit, Relaxed);
                cpu.hw.store(pack(intid, pintid), Relaxed);
                cpu.set_notes(notes.with_used(slot));
                return VcpuSet::EMPTY;
            }
        }
        self.inject_timer_slowly(vcpu, lrs, intid, pintid)
    }

    #[cold]
    #[inline(never)]
    fn inject_timer_slowly(
        &self,
        vcpu: VcpuIndex,
        lrs: &impl ListRegisters,
        intid: IntId,
        pintid: IntId,
    ) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        if !(16..32).contains(&intid.0) {
            lrs.deactivate(pintid);
            return VcpuSet::EMPTY;
        }
        let mut wake = self.harvest(vcpu, lrs);
        let bit = 1 << intid.0;
        if cpu.in_lr.load(Relaxed) & bit != 0 {
            // The guest made it pending or active itself. That one is delivered; the physical one comes again after it, when
            // its line is still high.
            self.link(vcpu, lrs, intid, pintid);
            return wake;
        }
        cpu.hw.store(pack(intid, pintid) | HW_WAITING, Relaxed);
        wake |= self.flush_all(vcpu, lrs);
        wake
    }

    /// Links an interrupt that is in a list register without a link.
    fn link(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters, intid: IntId, pintid: IntId) {
        let cpu = self.cpu(vcpu);
        // As if its link had been cut: at its end, which is reported, the physical one is deactivated.
        for n in ones(cpu.notes().used()).filter(|&n| cpu.intid(n) == intid.0) {
            let value = lrs.read(n);
            if value & HW == 0 {
                lrs.write(n, report_end(cpu, n, value));
                cpu.hw.store(pack(intid, pintid), Relaxed);
            }
        }
    }
}

fn pack(intid: IntId, pintid: IntId) -> u32 {
    (intid.0 & 31) | (pintid.0 & 0x3ff) << HW_PINTID_SHIFT
}
