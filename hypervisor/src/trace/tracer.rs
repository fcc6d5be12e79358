//! With and without a trace: what an exit goes through is compiled twice, and VBAR_EL2 says which of the two runs. So a machine
//! without a trace executes no instruction for it on that way. What else there is to trace, kicks and a VM's end, asks the CPU for its
//! ring.

use super::area::Ring;
use super::event::{Event, Kind};
use super::hooks::{TracedRegisters, TracedTlb};
use crate::arch::{self, HardwareListRegisters};
use crate::ids::Vmid;
use crate::scheduler::{Cpu, CpuShared, vmid_in};
use crate::vgic::ListRegisters;
use crate::vm::{Vcpu, Vm};

/// Whether events are recorded.
pub trait Tracer {
    /// What interrupts are injected through.
    type Registers: ListRegisters;

    /// List registers for an injection into `vcpu`.
    fn registers(cpu: &'static Cpu, vcpu: &'static Vcpu) -> Self::Registers;

    /// The VMID allocator's part of entering the vCPU's VM.
    fn schedule_in(cpu: &Cpu, vcpu: &Vcpu) -> Vmid;

    /// Records an event of a vCPU that was at `time`.
    fn record_at(cpu: &Cpu, vcpu: &Vcpu, time: u64, kind: Kind, detail: u8, value: u16);

    /// Records an event of a vCPU that is now.
    fn record(cpu: &Cpu, vcpu: &Vcpu, kind: Kind, detail: u8, value: u16);

    /// Records that the CPU begins or ends to wait.
    fn record_idle(cpu: &Cpu, time: u64, kind: Kind);
}

/// Nothing is recorded.
pub struct Quiet;

impl Tracer for Quiet {
    type Registers = HardwareListRegisters;

    #[inline(always)]
    fn registers(_: &'static Cpu, _: &'static Vcpu) -> HardwareListRegisters {
        HardwareListRegisters
    }

    #[inline(always)]
    fn schedule_in(cpu: &Cpu, vcpu: &Vcpu) -> Vmid {
        vmid_in(&cpu.system.vmids, cpu.vmid, &vcpu.vm.vmid)
    }

    #[inline(always)]
    fn record_at(_: &Cpu, _: &Vcpu, _: u64, _: Kind, _: u8, _: u16) {}

    #[inline(always)]
    fn record(_: &Cpu, _: &Vcpu, _: Kind, _: u8, _: u16) {}

    #[inline(always)]
    fn record_idle(_: &Cpu, _: u64, _: Kind) {}
}

/// Everything is recorded.
pub struct Traced;

impl Tracer for Traced {
    type Registers = TracedRegisters;

    fn registers(cpu: &'static Cpu, vcpu: &'static Vcpu) -> TracedRegisters {
        TracedRegisters { cpu, who: Who::of(vcpu) }
    }

    fn schedule_in(cpu: &Cpu, vcpu: &Vcpu) -> Vmid {
        let tlb = TracedTlb::new(cpu, vcpu);
        let vmid = cpu.system.vmids.schedule_in(cpu.vmid, &vcpu.vm.vmid, &tlb);
        Self::record(cpu, vcpu, Kind::ScheduleIn, 0, vmid.0);
        vmid
    }

    fn record_at(cpu: &Cpu, vcpu: &Vcpu, time: u64, kind: Kind, detail: u8, value: u16) {
        Who::of(vcpu).did(cpu, time, kind, detail, value);
    }

    fn record(cpu: &Cpu, vcpu: &Vcpu, kind: Kind, detail: u8, value: u16) {
        Self::record_at(cpu, vcpu, arch::counter(), kind, detail, value);
    }

    fn record_idle(cpu: &Cpu, time: u64, kind: Kind) {
        Who::NOBODY.did(cpu, time, kind, 0, 0);
    }
}

/// A vCPU, as an event names it.
#[derive(Clone, Copy)]
pub(super) struct Who {
    vm: u16,
    vcpu: u16,
}

impl Who {
    const NOBODY: Who = Who { vm: 0, vcpu: 0 };

    pub(super) fn of(vcpu: &Vcpu) -> Who {
        Who { vm: vcpu.vm.id.0, vcpu: vcpu.index.0.into() }
    }

    /// Its first one, in place of the VM as a whole.
    pub(super) fn of_vm(vm: &Vm) -> Who {
        Who { vm: vm.id.0, vcpu: 0 }
    }

    /// Records an event of it, if the CPU has a ring.
    pub(super) fn did(self, cpu: &Cpu, time: u64, kind: Kind, detail: u8, value: u16) {
        if let Some(ring) = &cpu.ring {
            record(ring, self, time, kind, detail, value);
        }
    }
}

/// Writes an event. A function of its own, so that a test finds it in the image, counts its instructions, and sees who calls it.
#[inline(never)]
fn record(ring: &Ring<'_>, who: Who, time: u64, kind: Kind, detail: u8, value: u16) {
    ring.record(Event { time, kind, detail, vm: who.vm, vcpu: who.vcpu, value });
}

/// Another CPU is kicked on behalf of `target`. Out of the way of those that have no trace.
#[cold]
#[inline(never)]
pub fn note_kick(cpu: &Cpu, other: &CpuShared, target: &Vcpu) {
    Traced::record(cpu, target, Kind::Kick, 0, other.id.0);
}
