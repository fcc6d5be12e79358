//! A VM's virtual GIC, and what a guest's driver does with it.

use crate::ids::{IntId, VcpuIndex};
use crate::vgic::bits::ones;
use crate::vgic::fake::{FakeLrs, SPURIOUS};
use crate::vgic::lr::{PENDING, STATE};
use crate::vgic::{REDISTRIBUTOR_SIZE, Vgic};
use std::sync::atomic::Ordering::SeqCst;

pub const V0: VcpuIndex = VcpuIndex(0);
pub const V1: VcpuIndex = VcpuIndex(1);
pub const TIMER: IntId = IntId(27);

pub const SGI_BASE: u64 = 0x1_0000;

/// A notifier that doesn't care.
pub fn anybody(_: VcpuIndex) {}

/// Collects what `action` notifies.
pub fn notified(action: impl FnOnce(&mut dyn FnMut(VcpuIndex))) -> Vec<u8> {
    let mut seen = Vec::new();
    action(&mut |vcpu| seen.push(vcpu.0));
    seen
}

pub fn dist_write(vgic: &Vgic, offset: u64, size: u8, value: u64) {
    vgic.dist_write(V0, &FakeLrs::new(1), offset, size, value, &mut anybody);
}

pub fn dist_read(vgic: &Vgic, offset: u64, size: u8) -> u64 {
    vgic.dist_read(V0, &FakeLrs::new(1), offset, size)
}

pub fn redist_read(vgic: &Vgic, vcpu: VcpuIndex, offset: u64, size: u8) -> u64 {
    vgic.redist_read(vcpu, &FakeLrs::new(1), vcpu, offset, size)
}

pub fn redist_write(vgic: &Vgic, vcpu: VcpuIndex, offset: u64, size: u8, value: u64) {
    assert!(offset < REDISTRIBUTOR_SIZE);
    vgic.redist_write(vcpu, &FakeLrs::new(1), vcpu, offset, size, value, &mut anybody);
}

/// A VM whose guest has set its GIC up as Linux does: all in group 1, priority 0xa0, all enabled, SPIs routed to vCPU 0;
/// SPIs below 48 level-triggered, from 48 up edge-triggered. Nothing needs attention.
pub fn booted(vcpus: usize) -> Vgic {
    let vgic = Vgic::new(vcpus);
    dist_write(&vgic, 0x84, 4, 0xffff_ffff);
    dist_write(&vgic, 0x104, 4, 0xffff_ffff);
    for n in (32..64).step_by(4) {
        dist_write(&vgic, 0x400 + n, 4, 0xa0a0_a0a0);
    }
    dist_write(&vgic, 0xc0c, 4, 0xaaaa_aaaa);
    for vcpu in (0..vcpus as u8).map(VcpuIndex) {
        redist_write(&vgic, vcpu, 0x14, 4, 0);
        redist_write(&vgic, vcpu, SGI_BASE + 0x80, 4, 0xffff_ffff);
        for n in (0..32).step_by(4) {
            redist_write(&vgic, vcpu, SGI_BASE + 0x400 + n, 4, 0xa0a0_a0a0);
        }
        redist_write(&vgic, vcpu, SGI_BASE + 0x100, 4, 0xffff_ffff);
    }
    dist_write(&vgic, 0, 4, 0x13);
    for vcpu in (0..vcpus as u8).map(VcpuIndex) {
        assert!(vgic.flush(vcpu, &FakeLrs::new(1)).is_empty());
        assert!(!vgic.attention(vcpu));
    }
    vgic
}

/// The vCPU enters the guest as the exit path does it: flushes if it must, and answers maintenance interrupts.
pub fn enter(vgic: &Vgic, vcpu: VcpuIndex, lrs: &FakeLrs) {
    if vgic.attention(vcpu) {
        assert!(vgic.flush(vcpu, lrs).is_empty());
    }
    for _ in 0..4 {
        lrs.check();
        if !lrs.maintenance_asserted() {
            return;
        }
        assert!(vgic.maintenance(vcpu, lrs).is_empty());
    }
    panic!("a storm of maintenance interrupts");
}

/// Enters, and has the guest take all that is there, one after the other; the INTIDs.
pub fn take_all(vgic: &Vgic, vcpu: VcpuIndex, lrs: &FakeLrs) -> Vec<u32> {
    let mut taken = Vec::new();
    loop {
        enter(vgic, vcpu, lrs);
        let intid = lrs.acknowledge();
        if intid == SPURIOUS {
            return taken;
        }
        taken.push(intid);
        assert!(taken.len() < 1000, "endless");
        enter(vgic, vcpu, lrs);
        lrs.end(intid);
    }
}

impl Vgic {
    /// Whether a vCPU that is **not loaded** has an interrupt that it would take: it must not wait then, or must have been notified. What
    /// is enabled in its CPU interface (ICC_PMR_EL1, ICC_IGRPEN1_EL1) isn't looked at.
    pub fn has_deliverable(&self, vcpu: VcpuIndex) -> bool {
        let cpu = self.cpu(vcpu);
        let saved = |n: usize| cpu.saved[n & 15].load(SeqCst) & STATE == PENDING;
        ones(cpu.notes().used()).any(saved) || self.wanted(cpu) & !self.in_list_registers(cpu) != 0
    }
}

/// ICC_SGI1R_EL1 for an SGI to the vCPUs in `targets`.
pub fn sgi(intid: u64, targets: u64) -> u64 {
    intid << 24 | targets
}
