//! A set of VMs that any CPU may change.

use crate::ids::MAX_VMS;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

const WORDS: usize = MAX_VMS.div_ceil(64);

/// A bit for each VM. Numbers beyond [`MAX_VMS`] are never in it.
#[derive(Debug)]
pub(super) struct VmSet([AtomicU64; WORDS]);

impl VmSet {
    pub(super) const fn new() -> Self {
        VmSet([const { AtomicU64::new(0) }; WORDS])
    }

    pub(super) fn insert(&self, vm: usize) {
        if let Some(word) = self.0.get(vm / 64) {
            word.fetch_or(1 << (vm % 64), SeqCst);
        }
    }

    /// Takes `vm` out; whether it was in.
    pub(super) fn remove(&self, vm: usize) -> bool {
        let bit = 1 << (vm % 64);
        self.0.get(vm / 64).is_some_and(|word| word.fetch_and(!bit, SeqCst) & bit != 0)
    }

    pub(super) fn contains(&self, vm: usize) -> bool {
        self.0.get(vm / 64).is_some_and(|word| word.load(SeqCst) & 1 << (vm % 64) != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(SeqCst) == 0)
    }

    /// The first member from `vm` on, and from the beginning if there is none.
    pub(super) fn next_from(&self, vm: usize) -> Option<usize> {
        let (start, bit) = (vm / 64 % WORDS, vm % 64);
        // The word where it begins is looked at twice: its upper part first, its lower part last.
        (0..=WORDS).find_map(|step| {
            let index = (start + step) % WORDS;
            let mask = match step {
                0 => u64::MAX << bit,
                WORDS => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let bits = self.0.get(index)?.load(SeqCst) & mask;
            (bits != 0).then(|| index * 64 + bits.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_round() {
        let set = VmSet::new();
        assert_eq!(set.next_from(0), None);
        for vm in [3, 64, 255] {
            set.insert(vm);
        }
        let expected = [(0, 3), (3, 3), (4, 64), (65, 255), (255, 255), (256, 3), (200, 255)];
        for (from, next) in expected {
            assert_eq!(set.next_from(from), Some(next), "from {from}");
        }
        assert!(set.remove(255) && !set.remove(255));
        assert_eq!(set.next_from(65), Some(3));
        assert!(set.remove(64));
        assert_eq!(set.next_from(4), Some(3), "lower part of the word where it began");
        assert!(set.remove(3) && set.is_empty());
    }

    #[test]
    fn absurd_numbers_are_not_in_it() {
        let set = VmSet::new();
        set.insert(MAX_VMS);
        set.insert(usize::MAX);
        assert!(set.is_empty() && !set.contains(usize::MAX) && !set.remove(MAX_VMS));
        assert_eq!(set.next_from(usize::MAX), None);
    }
}
