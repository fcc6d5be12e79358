//! A run queue: the vCPUs that are ready on one CPU, first in, first out.
//!
//! An intrusive list: links live in one table for all vCPUs, as a vCPU is in at most one queue, so nothing is allocated.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// "No vCPU" in a link.
const NONE: u32 = u32::MAX;

/// How many of the first in a queue are looked at for one that is preferred.
const WINDOW: usize = 16;

/// The link of each vCPU of the machine to the next in its queue, and how often it has been passed over there. Touched under the
/// lock of the queue it is in.
pub struct Links(alloc::boxed::Box<[(AtomicU32, AtomicU8)]>);

impl Links {
    /// Links for `vcpus` vCPUs, all of them in no queue.
    pub fn new(vcpus: usize) -> Links {
        Links((0..vcpus).map(|_| (AtomicU32::new(NONE), AtomicU8::new(0))).collect())
    }

    fn get(&self, index: u32) -> u32 {
        self.0.get(index as usize).map_or(NONE, |(link, _)| link.load(Relaxed))
    }

    fn set(&self, index: u32, next: u32) {
        if let Some((link, _)) = self.0.get(index as usize) {
            link.store(next, Relaxed);
        }
    }

    fn passed(&self, index: u32) -> u8 {
        self.0.get(index as usize).map_or(0, |(_, passed)| passed.load(Relaxed))
    }

    fn set_passed(&self, index: u32, passed: u8) {
        if let Some((_, cell)) = self.0.get(index as usize) {
            cell.store(passed, Relaxed);
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
        links.set_passed(index, 0);
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

    /// Takes the first that `preferred` accepts among the first few, unless that would pass over one for more than `most` times;
    /// else the first.
    pub fn pop_preferred(
        &mut self,
        links: &Links,
        most: u8,
        mut preferred: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut index = self.head;
        let mut chosen = NONE;
        for _ in 0..WINDOW {
            if index == NONE {
                break;
            }
            if preferred(index) {
                chosen = index;
                break;
            }
            if links.passed(index) >= most {
                break;
            }
            index = links.get(index);
        }
        if chosen == NONE {
            return self.pop(links);
        }
        self.take_first(links, |index| {
            if index != chosen {
                links.set_passed(index, links.passed(index).saturating_add(1));
            }
            index == chosen
        })
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

    #[test]
    fn one_is_passed_over_so_often_and_no_more() {
        let links = Links::new(8);
        let mut queue = RunQueue::default();
        (0..4).for_each(|index| queue.push(&links, index));
        for _ in 0..3 {
            assert_eq!(queue.pop_preferred(&links, 3, |index| index == 2), Some(2));
            queue.push(&links, 2);
        }
        assert_eq!(queue.pop_preferred(&links, 3, |index| index == 2), Some(0));
        assert_eq!(queue.pop_preferred(&links, 3, |index| index == 2), Some(1));
        // 3 hasn't been in front of a chosen one as often as 0 and 1: it came behind 2 once.
        assert_eq!(queue.pop_preferred(&links, 3, |index| index == 2), Some(2));
    }

    proptest! {
        /// In whatever order they are preferred, one waits for at most `most` of those that came after it, and for those before it.
        #[test]
        fn nobody_waits_for_ever(most in 0u8..5, preferences in prop::collection::vec(any::<u16>(), 200)) {
            let links = Links::new(16);
            let mut queue = RunQueue::default();
            let mut waited = [0u32; 16];
            (0..16).for_each(|index| queue.push(&links, index));
            for preference in preferences {
                let chosen = queue.pop_preferred(&links, most, |index| preference >> index & 1 != 0);
                let chosen = chosen.expect("16 wait");
                waited.iter_mut().for_each(|waited| *waited += 1);
                waited[chosen as usize] = 0;
                prop_assert!(waited.iter().all(|&waited| waited <= 16 * (1 + u32::from(most))));
                queue.push(&links, chosen);
            }
        }

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
