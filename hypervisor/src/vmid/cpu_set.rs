//! Sets of CPUs.

use crate::ids::{CpuId, MAX_CPUS};

const _: () = assert!(MAX_CPUS <= u128::BITS as usize);

/// Some of the machine's CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct CpuSet(u128);

impl CpuSet {
    pub(super) const EMPTY: CpuSet = CpuSet(0);

    /// CPUs 0 to `count` - 1.
    pub(super) fn first(count: usize) -> CpuSet {
        CpuSet(u128::MAX.checked_shr(u128::BITS.saturating_sub(count as u32)).unwrap_or(0))
    }

    pub(super) fn of(cpu: CpuId) -> CpuSet {
        CpuSet(1u128.checked_shl(u32::from(cpu.0)).unwrap_or(0))
    }

    pub(super) fn insert(&mut self, cpu: CpuId) {
        self.0 |= Self::of(cpu).0;
    }

    pub(super) fn remove(&mut self, cpu: CpuId) {
        self.0 &= !Self::of(cpu).0;
    }

    pub(super) fn contains(self, cpu: CpuId) -> bool {
        self.0 & Self::of(cpu).0 != 0
    }

    pub(super) fn union(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 | other.0)
    }

    /// The CPUs in it, lowest first.
    pub(super) fn iter(self) -> impl Iterator<Item = CpuId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let cpu = left.trailing_zeros();
            (left != 0).then(|| {
                left &= left - 1;
                CpuId(cpu as u16)
            })
        })
    }
}
