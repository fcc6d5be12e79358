//! What the traced code drives: the hardware as without a trace, with a note of what is done to it.

use super::event::{Flush, Kind};
use super::tracer::Who;
use crate::arch::{self, GuestTlb, HardwareListRegisters};
use crate::ids::{CpuId, IntId, Vmid};
use crate::scheduler::Cpu;
use crate::vgic::{self, ListRegisters};
use crate::vm::{Vcpu, Vm};
use crate::vmid::TlbHardware;
use core::cell::Cell;

/// [`GuestTlb`], with a note of what the VMID allocator has done on behalf of a vCPU.
pub struct TracedTlb<'a> {
    cpu: &'a Cpu,
    who: Who,
    /// The slow path has been begun.
    slow: Cell<bool>,
}

impl<'a> TracedTlb<'a> {
    /// For a vCPU that is scheduled in.
    pub(super) fn new(cpu: &'a Cpu, vcpu: &Vcpu) -> Self {
        TracedTlb { cpu, who: Who::of(vcpu), slow: Cell::new(false) }
    }

    /// For a VM that ends.
    pub fn of_vm(cpu: &'a Cpu, vm: &Vm) -> Self {
        TracedTlb { cpu, who: Who::of_vm(vm), slow: Cell::new(true) }
    }

    fn note(&self, kind: Kind, detail: u8, value: u16) {
        self.who.did(self.cpu, arch::counter(), kind, detail, value);
    }

    fn note_flush(&self, flush: Flush, value: u16) {
        self.note(Kind::VmidFlush, flush as u8, value);
    }
}

impl TlbHardware for TracedTlb<'_> {
    fn invalidate_all(&self) {
        self.note_flush(Flush::All, 0);
        GuestTlb.invalidate_all();
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        self.note_flush(Flush::Vmids, vmids.len() as u16);
        GuestTlb.invalidate_vmids(vmids);
    }

    fn invalidate_all_here(&self) {
        self.note_flush(Flush::AllHere, 0);
        GuestTlb.invalidate_all_here();
    }

    fn invalidate_vmid_here(&self, vmid: Vmid) {
        self.note_flush(Flush::VmidHere, vmid.0);
        GuestTlb.invalidate_vmid_here(vmid);
    }

    fn publish_id(&self) {
        GuestTlb.publish_id();
    }

    fn kick(&self, cpu: CpuId) {
        self.note(Kind::Kick, 0, cpu.0);
        GuestTlb.kick(cpu);
    }

    fn wait(&self) {
        GuestTlb.wait();
    }

    /// The slow path begins with asking for the time.
    fn now(&self) -> u64 {
        let now = GuestTlb.now();
        if !self.slow.replace(true) {
            self.who.did(self.cpu, now, Kind::VmidSlow, 0, 0);
        }
        now
    }

    fn rolled_over(&self) {
        self.note(Kind::VmidRollover, 0, 0);
    }

    fn reclaimed(&self, vmid: Vmid) {
        self.note(Kind::VmidReclaim, 0, vmid.0);
    }
}

/// [`HardwareListRegisters`], with a note of each interrupt that becomes pending in one.
pub struct TracedRegisters {
    pub(super) cpu: &'static Cpu,
    pub(super) who: Who,
}

impl ListRegisters for TracedRegisters {
    fn count(&self) -> usize {
        HardwareListRegisters.count()
    }

    fn read(&self, n: usize) -> u64 {
        HardwareListRegisters.read(n)
    }

    fn write(&self, n: usize, value: u64) {
        if let Some(intid) = vgic::pending(value) {
            self.who.did(self.cpu, arch::counter(), Kind::Inject, 0, intid.0 as u16);
        }
        HardwareListRegisters.write(n, value);
    }

    fn empty_mask(&self) -> u32 {
        HardwareListRegisters.empty_mask()
    }

    fn eoi_mask(&self) -> u32 {
        HardwareListRegisters.eoi_mask()
    }

    fn vmcr(&self) -> u32 {
        HardwareListRegisters.vmcr()
    }

    fn set_vmcr(&self, value: u32) {
        HardwareListRegisters.set_vmcr(value);
    }

    fn apr_count(&self) -> usize {
        HardwareListRegisters.apr_count()
    }

    fn apr(&self, group: usize, n: usize) -> u32 {
        HardwareListRegisters.apr(group, n)
    }

    fn set_apr(&self, group: usize, n: usize, value: u32) {
        HardwareListRegisters.set_apr(group, n, value);
    }

    fn set_control(&self, value: u32) {
        HardwareListRegisters.set_control(value);
    }

    fn line_high(&self, pintid: IntId) -> bool {
        HardwareListRegisters.line_high(pintid)
    }

    fn deactivate(&self, pintid: IntId) {
        HardwareListRegisters.deactivate(pintid);
    }
}
