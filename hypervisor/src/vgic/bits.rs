//! Sets in machine words: bit scans, and sets of vCPUs.

use core::ops::{BitOr, BitOrAssign};

use crate::ids::VcpuIndex;

/// The positions of the ones in a word of list registers (16 bits are used), upwards.
#[inline(always)]
pub(super) fn ones(mut word: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let n = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (n < 32).then_some(n as usize)
    })
}

/// The INTIDs in a set of them, upwards.
#[inline(always)]
pub(super) fn intids(mut set: u128) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let n = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (n < 128).then_some(n)
    })
}

/// Each bit of a half-word at every second position: bit n at 2n + 1, as ICFGR has it (IHI 0069, 12.9.9).
pub(super) fn spread(half: u16) -> u32 {
    (0..16).fold(0, |word, n| word | u32::from(half >> n & 1) << (2 * n + 1))
}

/// The reverse of [`spread`].
pub(super) fn gather(word: u32) -> u16 {
    (0..16).fold(0, |half, n| half | ((word >> (2 * n + 1) & 1) as u16) << n)
}

/// A set of vCPUs of one VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct VcpuSet(u8);

impl VcpuSet {
    /// No vCPU.
    pub const EMPTY: VcpuSet = VcpuSet(0);

    /// One vCPU.
    pub const fn one(vcpu: VcpuIndex) -> VcpuSet {
        VcpuSet(1u8.wrapping_shl(vcpu.0 as u32))
    }

    /// Whether there is none in it.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the vCPU is in it.
    pub const fn contains(self, vcpu: VcpuIndex) -> bool {
        vcpu.0 < 8 && self.0 & 1 << vcpu.0 != 0
    }

    /// The same without one.
    pub const fn without(self, vcpu: VcpuIndex) -> VcpuSet {
        VcpuSet(self.0 & !VcpuSet::one(vcpu).0)
    }
}

impl BitOr for VcpuSet {
    type Output = VcpuSet;

    fn bitor(self, other: VcpuSet) -> VcpuSet {
        VcpuSet(self.0 | other.0)
    }
}

impl BitOrAssign for VcpuSet {
    fn bitor_assign(&mut self, other: VcpuSet) {
        self.0 |= other.0;
    }
}

impl Iterator for VcpuSet {
    type Item = VcpuIndex;

    #[inline(always)]
    fn next(&mut self) -> Option<VcpuIndex> {
        if self.0 == 0 {
            return None;
        }
        let n = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        Some(VcpuIndex(n as u8))
    }
}
