//! The redistributors' registers (IHI 0069, 12.10 and 12.11): two frames of 64 KiB for each vCPU, no LPIs.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::bits::{gather, spread};
use super::lr::{ACTIVE, PENDING};
use super::registers::{BitRegister, IIDR, PIDR2, PIDR2_OFFSET, part, well_formed};
use super::{ListRegisters, PRIORITY_MASK, Vgic};
use crate::ids::VcpuIndex;

/// Size in bytes of one vCPU's two frames.
pub const REDISTRIBUTOR_SIZE: u64 = 0x2_0000;
/// Offset of the second, SGI_base.
const SGI_BASE: u64 = 0x1_0000;

const IIDR_OFFSET: u64 = 0x4;
const TYPER: u64 = 0x8;
const TYPER_END: u64 = 0x10;
const WAKER: u64 = 0x14;

const TYPER_LAST: u64 = 1 << 4;
const WAKER_PROCESSOR_SLEEP: u64 = 1 << 1;
const WAKER_CHILDREN_ASLEEP: u64 = 1 << 2;

const IGROUPR0: u64 = 0x80;
const ICFGR0: u64 = 0xc00;
const ICFGR1: u64 = 0xc04;

impl Vgic {
    /// vCPU `by`, loaded here with its list registers, reads `size` bytes at `offset` of the frames of `vcpu`.
    /// What isn't a register, or isn't of that size, reads as zero.
    pub fn redist_read(
        &self,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        vcpu: VcpuIndex,
        offset: u64,
        size: u8,
    ) -> u64 {
        if !well_formed(offset, size) || vcpu.index() >= self.vcpus() {
            return 0;
        }
        let cpu = self.cpu(vcpu);
        let Some(offset) = offset.checked_sub(SGI_BASE) else {
            return match (offset, size) {
                (TYPER..TYPER_END, 4 | 8) => part(self.redist_type(vcpu), offset, size),
                (WAKER, 4) => match cpu.asleep.load(Relaxed) {
                    0 => 0,
                    _ => WAKER_PROCESSOR_SLEEP | WAKER_CHILDREN_ASLEEP,
                },
                (IIDR_OFFSET, 4) => u64::from(IIDR),
                (PIDR2_OFFSET, 4) => u64::from(PIDR2),
                _ => 0,
            };
        };
        match (offset, size) {
            (0x400..0x420, 1 | 4) => (0..u64::from(size)).fold(0, |word, n| {
                let byte = cpu.priority[(offset - 0x400 + n) as usize & 31].load(Relaxed);
                word | u64::from(byte) << (8 * n)
            }),
            (ICFGR0, 4) => u64::from(spread(cpu.edge.load(Relaxed) as u16)),
            (ICFGR1, 4) => u64::from(spread((cpu.edge.load(Relaxed) >> 16) as u16)),
            (IGROUPR0..0x400, 4) => match BitRegister::at(offset) {
                Some((register, 0)) => u64::from(self.private_bits(register, vcpu, by, lrs)),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// vCPU `by`, loaded here with its list registers, writes `size` bytes at `offset` of the frames of `vcpu`. What
    /// isn't a writable register, or isn't of that size, ignores it. `notify` is called for each other vCPU that may now have
    /// something to take or to give back; `by` has its attention set.
    #[allow(clippy::too_many_arguments)] // an access is these seven things, and grouping them costs at each call
    pub fn redist_write(
        &self,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        vcpu: VcpuIndex,
        offset: u64,
        size: u8,
        value: u64,
        notify: &mut impl FnMut(VcpuIndex),
    ) {
        if !well_formed(offset, size) || vcpu.index() >= self.vcpus() {
            return;
        }
        let cpu = self.cpu(vcpu);
        let Some(offset) = offset.checked_sub(SGI_BASE) else {
            if (offset, size) == (WAKER, 4) {
                // ChildrenAsleep follows at once, there is nothing to wait for.
                cpu.asleep.store(u32::from(value & WAKER_PROCESSOR_SLEEP != 0), Relaxed);
            }
            return;
        };
        match (offset, size) {
            (0x400..0x420, 1 | 4) => {
                for n in 0..u64::from(size) {
                    let priority = (value >> (8 * n)) as u8 & PRIORITY_MASK;
                    cpu.priority[(offset - 0x400 + n) as usize & 31].store(priority, Relaxed);
                }
                return;
            }
            // SGIs are edge-triggered, always: ICFGR0 is read-only.
            (ICFGR1, 4) => {
                let edges = u32::from(gather(value as u32)) << 16;
                cpu.edge.fetch_and(edges | 0xffff, SeqCst);
                cpu.edge.fetch_or(edges, SeqCst);
            }
            (IGROUPR0..0x400, 4) => {
                let Some((register, 0)) = BitRegister::at(offset) else { return };
                if !self.write_private_bits(register, value as u32, vcpu, by, lrs) {
                    return;
                }
            }
            _ => return,
        }
        cpu.signal();
        if vcpu != by {
            notify(vcpu);
        }
    }

    /// GICR_TYPER: affinity (Aff0 is the vCPU's index), processor number, whether it is the last.
    fn redist_type(&self, vcpu: VcpuIndex) -> u64 {
        let index = u64::from(vcpu.0);
        let last = if vcpu.0 + 1 == self.vcpus { TYPER_LAST } else { 0 };
        index << 32 | index << 8 | last
    }

    fn private_bits(
        &self,
        register: BitRegister,
        vcpu: VcpuIndex,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
    ) -> u32 {
        let cpu = self.cpu(vcpu);
        match register {
            BitRegister::Group => cpu.group1.load(Relaxed),
            BitRegister::SetEnable | BitRegister::ClearEnable => cpu.enabled.load(Relaxed),
            BitRegister::SetPending | BitRegister::ClearPending => {
                cpu.signals.load(Relaxed) as u32
                    | cpu.line.load(Relaxed) & !cpu.edge.load(Relaxed)
                    | cpu.hw_waiting()
                    | self.private_in_lrs(vcpu, by, lrs, PENDING)
            }
            BitRegister::SetActive | BitRegister::ClearActive => {
                cpu.active.load(Relaxed) | self.private_in_lrs(vcpu, by, lrs, ACTIVE)
            }
        }
    }

    /// Whether anything has changed that the vCPU's owner must look at.
    fn write_private_bits(
        &self,
        register: BitRegister,
        bits: u32,
        vcpu: VcpuIndex,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
    ) -> bool {
        let cpu = self.cpu(vcpu);
        // Clearing private interrupts in list registers concerns no other vCPU: nothing to notify.
        // SeqCst: the change comes before the signal; see `latch_private` for a poster's side, which tests what is enabled
        // after it has latched.
        match register {
            BitRegister::Group => cpu.group1.swap(bits, SeqCst) != bits,
            BitRegister::SetEnable => bits & !cpu.enabled.fetch_or(bits, SeqCst) != 0,
            BitRegister::ClearEnable => bits & cpu.enabled.fetch_and(!bits, SeqCst) != 0,
            BitRegister::SetPending => bits & !cpu.signals.fetch_or(u64::from(bits), SeqCst) as u32 != 0,
            BitRegister::ClearPending => {
                cpu.signals.fetch_and(!u64::from(bits), SeqCst);
                if vcpu == by && bits & cpu.in_lr.load(Relaxed) != 0 {
                    let _ = self.clear_in_lrs(by, lrs, u128::from(bits), PENDING);
                }
                false
            }
            BitRegister::SetActive => {
                let rest = match vcpu == by {
                    true => self.set_active_in_lrs(by, lrs, u128::from(bits)) as u32,
                    false => bits,
                };
                let rest = rest & !cpu.in_lr.load(SeqCst);
                rest & !cpu.active.fetch_or(rest, SeqCst) != 0
            }
            BitRegister::ClearActive => {
                let old = bits & cpu.active.fetch_and(!bits, SeqCst);
                if vcpu == by && bits & cpu.in_lr.load(Relaxed) != 0 {
                    let _ = self.clear_in_lrs(by, lrs, u128::from(bits), ACTIVE);
                }
                old != 0
            }
        }
    }
}
