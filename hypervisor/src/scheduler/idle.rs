//! Which CPUs have nothing to do.

use crate::ids::{CpuId, MAX_CPUS};
use crate::sync::moment;
use core::sync::atomic::{AtomicU64, Ordering};

/// The CPUs that have nothing to do.
#[derive(Default)]
pub struct IdleMask([AtomicU64; MAX_CPUS / 64]);

impl IdleMask {
    fn bit(cpu: CpuId) -> (usize, u64) {
        (cpu.index() / 64 % (MAX_CPUS / 64), 1 << (cpu.index() % 64))
    }

    /// `cpu` is about to wait; it looks at the queues once more after this.
    pub fn set(&self, cpu: CpuId) {
        moment();
        let (word, bit) = Self::bit(cpu);
        self.0[word].fetch_or(bit, Ordering::SeqCst);
    }

    /// `cpu` has something to do, or is being given it; whether it was idle.
    pub fn clear(&self, cpu: CpuId) -> bool {
        let (word, bit) = Self::bit(cpu);
        self.0[word].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether `cpu` waits.
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (word, bit) = Self::bit(cpu);
        self.0[word].load(Ordering::SeqCst) & bit != 0
    }

    /// Some CPU that waits.
    pub fn any(&self) -> Option<CpuId> {
        self.0.iter().enumerate().find_map(|(word, bits)| {
            let bits = bits.load(Ordering::SeqCst);
            (bits != 0).then(|| CpuId((word * 64) as u16 + bits.trailing_zeros() as u16))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap_23_cpus_beyond_64_are_found() {
        let idle = IdleMask::default();
        assert_eq!(idle.any(), None);
        idle.set(CpuId(127));
        assert_eq!(idle.any(), Some(CpuId(127)));
        idle.set(CpuId(63));
        assert_eq!(idle.any(), Some(CpuId(63)));
        assert!(idle.clear(CpuId(63)) && !idle.clear(CpuId(63)));
        assert!(idle.contains(CpuId(127)));
    }
}
