//! What the distributor's and the redistributors' registers have in common.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::bits::ones;
use super::fill::soften;
use super::lr::{ACTIVE, HW, PENDING, STATE};
use super::{ListRegisters, VcpuSet, Vgic};
use crate::ids::{MAX_VCPUS, VcpuIndex};

/// GICD_IIDR and GICR_IIDR: product 'O', revision 0, variant 0, implementer Arm (whose architecture it is): no
/// driver has a quirk for it.
pub(super) const IIDR: u32 = 0x4f00_043b;
/// GICD_PIDR2 and GICR_PIDR2: architecture version 3.
pub(super) const PIDR2: u32 = 0x3b;
/// Offset of PIDR2 in both.
pub(super) const PIDR2_OFFSET: u64 = 0xffe8;

/// A register with one bit for each interrupt, by its block of 128 bytes (IHI 0069, 12.8): GICD_IGROUPR is at 0x80, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BitRegister {
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
}

impl BitRegister {
    /// The register at an offset, and the number of its word.
    pub fn at(offset: u64) -> Option<(BitRegister, usize)> {
        let register = match offset >> 7 {
            1 => BitRegister::Group,
            2 => BitRegister::SetEnable,
            3 => BitRegister::ClearEnable,
            4 => BitRegister::SetPending,
            5 => BitRegister::ClearPending,
            6 => BitRegister::SetActive,
            7 => BitRegister::ClearActive,
            _ => return None,
        };
        Some((register, (offset & 0x7f) as usize / 4))
    }
}

/// Whether an access is one that any register may have: 1, 2, 4 or 8 bytes, aligned.
pub(super) fn well_formed(offset: u64, size: u8) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && offset & (u64::from(size) - 1) == 0
}

/// The half of a 64-bit register that a 32-bit access at `offset` means, or all of it.
pub(super) fn part(register: u64, offset: u64, size: u8) -> u64 {
    match (size, offset & 4) {
        (8, _) => register,
        (4, 0) => register & 0xffff_ffff,
        (4, _) => register >> 32,
        _ => 0,
    }
}

impl Vgic {
    /// Interrupts (bit = INTID) that are pending, and that are active, in the list registers of a vCPU: in the hardware if
    /// it is the one that is loaded here, `by`, else as saved.
    fn list_registers_of(
        &self,
        vcpu: VcpuIndex,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        state: u64,
    ) -> u128 {
        let cpu = self.cpu(vcpu);
        let mut found = 0;
        for n in ones(cpu.notes().used()) {
            let value = if vcpu == by { lrs.read(n) } else { cpu.saved[n & 15].load(Relaxed) };
            if value & state != 0 {
                found |= 1u128 << (cpu.intid(n) & 127);
            }
        }
        found
    }

    /// Private interrupts of `vcpu` whose state in list registers is `state` ([`PENDING`] or [`ACTIVE`]).
    pub(super) fn private_in_lrs(
        &self,
        vcpu: VcpuIndex,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        state: u64,
    ) -> u32 {
        self.list_registers_of(vcpu, by, lrs, state) as u32
    }

    /// SPIs whose state in list registers, of any vCPU, is `state`.
    pub(super) fn spis_in_lrs(&self, by: VcpuIndex, lrs: &impl ListRegisters, state: u64) -> u64 {
        if self.in_lr.load(SeqCst) == 0 {
            return 0;
        }
        (0..MAX_VCPUS as u8)
            .fold(0, |set, n| set | (self.list_registers_of(VcpuIndex(n), by, lrs, state) >> 32) as u64)
    }

    /// Takes the state ([`PENDING`] or [`ACTIVE`]) of interrupts out of the list registers of the vCPU that is loaded here.
    /// Returns other vCPUs that are to be notified.
    pub(super) fn clear_in_lrs(
        &self,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        set: u128,
        state: u64,
    ) -> VcpuSet {
        let cpu = self.cpu(by);
        let mut wake = VcpuSet::EMPTY;
        for n in ones(cpu.notes().used()) {
            let mut value = lrs.read(n);
            if set >> (cpu.intid(n) & 127) & 1 == 0 || value & state == 0 {
                continue;
            }
            if value & HW != 0 {
                // `free` deactivates the physical one, which then comes again if its line is high.
                value = soften(cpu, n, value);
            }
            if state == PENDING {
                cpu.set_notes(cpu.notes().without_latched(n));
            }
            value &= !state;
            if value & STATE == 0 {
                wake |= self.free(by, n, lrs);
            } else {
                lrs.write(n, value);
            }
        }
        // A line that is high makes it pending again.
        cpu.signal();
        wake
    }

    /// Makes interrupts active that are in list registers of the vCPU that is loaded here; returns the others.
    pub(super) fn set_active_in_lrs(&self, by: VcpuIndex, lrs: &impl ListRegisters, set: u128) -> u128 {
        let cpu = self.cpu(by);
        let mut rest = set;
        for n in ones(cpu.notes().used()) {
            let bit = 1u128 << (cpu.intid(n) & 127);
            let mut value = lrs.read(n);
            if set & bit == 0 || value & STATE == 0 {
                continue;
            }
            if value & ACTIVE == 0 {
                if value & HW != 0 {
                    // A linked one can't be pending and active.
                    value = soften(cpu, n, value);
                }
                lrs.write(n, value | ACTIVE);
            }
            rest &= !bit;
        }
        rest
    }
}
