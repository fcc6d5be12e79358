//! Software-generated interrupts: a write to ICC_SGI1R_EL1 (IHI 0069, 12.2.20), which always traps.

use core::sync::atomic::Ordering::Relaxed;

use super::Vgic;
use crate::ids::VcpuIndex;

/// ICC_SGI1R_EL1.IRM: to all but the sender.
const IRM: u64 = 1 << 40;
/// ICC_SGI1R_EL1: Aff3, RS, Aff2, Aff1. vCPUs have 0 in all of them, and there are none above range 0.
const BEYOND: u64 = 0xff << 48 | 0xf << 44 | 0xff << 32 | 0xff << 16;

impl Vgic {
    /// vCPU `sender` wrote `value` to ICC_SGI1R_EL1: the SGI becomes pending at its targets, if it is in group 1 there. Targets
    /// that don't exist are ignored. `notify` is called for each other vCPU that now has something to take; the sender has
    /// its attention set.
    #[inline]
    pub fn send_sgi(&self, sender: VcpuIndex, value: u64, notify: &mut impl FnMut(VcpuIndex)) {
        let mut targets = if value & IRM != 0 {
            self.present & !(1 << (sender.0 & 7))
        } else if value & BEYOND != 0 {
            return;
        } else {
            value as u32 & self.present
        };
        let bit = 1 << (value >> 24 & 0xf);
        while targets != 0 {
            let vcpu = VcpuIndex(targets.trailing_zeros() as u8);
            targets &= targets - 1;
            // Only one that its target has in group 1.
            let bit = bit & self.cpu(vcpu).group1.load(Relaxed);
            if bit == 0 {
                continue;
            }
            if vcpu == sender {
                self.latch_own(vcpu, bit);
            } else if self.latch_private(vcpu, bit) {
                notify(vcpu);
            }
        }
    }
}
