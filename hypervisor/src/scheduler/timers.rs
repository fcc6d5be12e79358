//! When a CPU must wake vCPUs that wait there with their virtual timer armed but not loaded.
//!
//! A binary heap by deadline, with each vCPU's place in it, so that a vCPU has at most one entry for each CPU and setting one
//! costs O(log n). An entry carries the number of the wait that it belongs to: one that was ended otherwise is stale
//! and does nothing. All memory is taken at the start.

use alloc::{boxed::Box, vec, vec::Vec};

const NOWHERE: u32 = u32::MAX;

/// A wake-up that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// Physical count at which the vCPU's timer expires.
    pub deadline: u64,
    /// The vCPU's index in the machine.
    pub vcpu: u32,
    /// Which of its waits this belongs to.
    pub wait: u32,
}

/// The wake-ups of one CPU.
pub struct Timers {
    heap: Vec<Wake>,
    place: Box<[u32]>,
}

impl Timers {
    /// For a machine of `vcpus` vCPUs.
    pub fn new(vcpus: usize) -> Timers {
        Timers { heap: Vec::with_capacity(vcpus), place: vec![NOWHERE; vcpus].into_boxed_slice() }
    }

    /// The earliest deadline.
    pub fn earliest(&self) -> Option<u64> {
        self.heap.first().map(|wake| wake.deadline)
    }

    /// Sets the vCPU's wake-up, in the place of an earlier one.
    pub fn set(&mut self, wake: Wake) {
        let Some(&place) = self.place.get(wake.vcpu as usize) else { return };
        if let Some(entry) = self.heap.get_mut(place as usize) {
            *entry = wake;
            self.settle(place as usize);
        } else if self.heap.len() < self.heap.capacity() {
            self.heap.push(wake);
            self.settle(self.heap.len() - 1);
        }
    }

    /// Forgets the vCPU's wake-up.
    pub fn cancel(&mut self, vcpu: u32) {
        if let Some(&place) = self.place.get(vcpu as usize)
            && place != NOWHERE
        {
            self.remove(place as usize);
        }
    }

    /// Takes the earliest wake-up whose deadline is not after `now`.
    pub fn expired(&mut self, now: u64) -> Option<Wake> {
        let first = *self.heap.first()?;
        if first.deadline > now {
            return None;
        }
        self.remove(0);
        Some(first)
    }

    fn remove(&mut self, at: usize) {
        let gone = self.heap.swap_remove(at);
        if let Some(place) = self.place.get_mut(gone.vcpu as usize) {
            *place = NOWHERE;
        }
        if at < self.heap.len() {
            self.settle(at);
        }
    }

    /// Moves the entry at `at` up or down until the heap is in order.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.deadline(at) < self.deadline((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = if self.deadline(right) < self.deadline(left) { right } else { left };
            if self.deadline(child) >= self.deadline(at) {
                break;
            }
            self.swap(at, child);
            at = child;
        }
        self.note(at);
    }

    fn deadline(&self, at: usize) -> u64 {
        self.heap.get(at).map_or(u64::MAX, |wake| wake.deadline)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    fn note(&mut self, at: usize) {
        if let Some(wake) = self.heap.get(at)
            && let Some(place) = self.place.get_mut(wake.vcpu as usize)
        {
            *place = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_second_wait_replaces_the_first() {
        let mut timers = Timers::new(2);
        timers.set(Wake { deadline: 10, vcpu: 1, wait: 1 });
        timers.set(Wake { deadline: 30, vcpu: 1, wait: 2 });
        timers.set(Wake { deadline: 20, vcpu: 0, wait: 1 });
        assert_eq!(timers.earliest(), Some(20));
        assert_eq!(timers.expired(19), None);
        assert_eq!(timers.expired(100).map(|wake| wake.vcpu), Some(0));
        assert_eq!(timers.expired(100), Some(Wake { deadline: 30, vcpu: 1, wait: 2 }));
        assert_eq!(timers.expired(100), None);
    }

    proptest! {
        #[test]
        fn the_earliest_is_always_first(steps in prop::collection::vec((0u32..12, 0u64..100, 0u8..4), 1..300)) {
            let mut timers = Timers::new(12);
            let mut model: Vec<Option<u64>> = vec![None; 12];
            for (vcpu, deadline, action) in steps {
                match action {
                    0 | 1 => {
                        timers.set(Wake { deadline, vcpu, wait: 0 });
                        model[vcpu as usize] = Some(deadline);
                    }
                    2 => {
                        timers.cancel(vcpu);
                        model[vcpu as usize] = None;
                    }
                    _ => {
                        let earliest = model.iter().flatten().min().copied();
                        match timers.expired(deadline) {
                            Some(wake) => {
                                prop_assert_eq!(Some(wake.deadline), earliest);
                                prop_assert!(wake.deadline <= deadline);
                                prop_assert_eq!(model[wake.vcpu as usize].take(), Some(wake.deadline));
                            }
                            None => prop_assert!(earliest.is_none_or(|first| first > deadline)),
                        }
                    }
                }
                prop_assert_eq!(timers.earliest(), model.iter().flatten().min().copied());
            }
        }
    }
}
