//! A run queue: the vCPUs that are ready on one CPU, first in, first out.
//!
//! An intrusive list: links live in one table for all vCPUs, as a vCPU is in at most one queue, so nothing is allocated.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// "No vCPU" in a link.
const NONE: u32 = u32::MAX;

/// The link of each vCPU of the machine to the next in its queue. A link is touched under the lock of the queue it is in.
pub struct Links(alloc::boxed::Box<[AtomicU32]>);

impl Links {
    /// Links for `vcpus` vCPUs, all of them in no queue.
    pub fn new(vcpus: usize) -> Links {
        Links((0..vcpus).map(|_| AtomicU32::new(NONE)).collect())
    }

    fn get(&self, index: u32) -> u32 {
        self.0.get(index as usize).map_or(NONE, |link| link.load(Relaxed))
    }

    fn set(&self, index: u32, next: u32) {
        if let Some(link) = self.0.get(index as usize) {
            link.store(next, Relaxed);
        }
    }
}

/// The ready vCPUs of one CPU, by their index in the machine.
pub struct RunQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for RunQueue {
    fn default() -> Self {
        RunQueue { head: NONE, tail: NONE, len: 0 }
    }
}

impl RunQueue {
    /// How many wait.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `index` at the end.
    pub fn push(&mut self, links: &Links, index: u32) {
        links.set(index, NONE);
        if self.tail == NONE {
            self.head = index;
        } else {
            links.set(self.tail, index);
        }
        self.tail = index;
        self.len += 1;
    }

    /// Takes the first.
    pub fn pop(&mut self, links: &Links) -> Option<u32> {
        self.take_first(links, |_| true)
    }

    /// Takes the first that `wanted` accepts.
    pub fn take_first(&mut self, links: &Links, mut wanted: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut before = NONE;
        let mut index = self.head;
        while index != NONE {
            let next = links.get(index);
            if wanted(index) {
                if before == NONE {
                    self.head = next;
                } else {
                    links.set(before, next);
                }
                if self.tail == index {
                    self.tail = before;
                }
                links.set(index, NONE);
                self.len -= 1;
                return Some(index);
            }
            before = index;
            index = next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn takes_from_the_middle_and_the_end() {
        let links = Links::new(4);
        let mut queue = RunQueue::default();
        for index in 0..4 {
            queue.push(&links, index);
        }
        assert_eq!(queue.take_first(&links, |index| index == 3), Some(3));
        assert_eq!(queue.take_first(&links, |index| index == 1), Some(1));
        assert_eq!(queue.take_first(&links, |index| index == 1), None);
        queue.push(&links, 3);
        assert_eq!([queue.pop(&links), queue.pop(&links), queue.pop(&links)], [Some(0), Some(2), Some(3)]);
        assert!(queue.is_empty() && queue.pop(&links).is_none());
    }

    proptest! {
        #[test]
        fn behaves_as_a_deque(steps in prop::collection::vec(0u32..24, 1..200)) {
            let links = Links::new(16);
            let mut queue = RunQueue::default();
            let mut model = VecDeque::new();
            for step in steps {
                if step < 16 {
                    if !model.contains(&step) {
                        queue.push(&links, step);
                        model.push_back(step);
                    }
                } else if step < 20 {
                    prop_assert_eq!(queue.pop(&links), model.pop_front());
                } else {
                    let odd = model.iter().position(|index| index % 2 == 1).and_then(|at| model.remove(at));
                    prop_assert_eq!(queue.take_first(&links, |index| index % 2 == 1), odd);
                }
                prop_assert_eq!(queue.len() as usize, model.len());
            }
        }
    }
}
