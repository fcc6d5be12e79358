//! Which index was used last, and which has not been for the longest time: a list through an array.

use alloc::boxed::Box;

/// An index's neighbours; of one that isn't in the list, itself.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u16,
    older: u16,
}

/// Indices in the order of their last use. Each operation takes the same few instructions, however many there are.
#[derive(Debug)]
pub(super) struct Recency {
    /// By index. Index 0, which no VM has, is the list's two ends: its `older` is the newest one, its `newer` the oldest.
    links: Box<[Link]>,
}

impl Recency {
    /// None of the indices 1 to `count` - 1 is in the list.
    pub(super) fn new(count: usize) -> Self {
        Recency { links: (0..count.max(1) as u16).map(|index| Link { newer: index, older: index }).collect() }
    }

    /// Used now.
    pub(super) fn touch(&mut self, index: u16) {
        self.remove(index);
        let second = self.links[0].older;
        self.links[index as usize] = Link { newer: 0, older: second };
        self.links[second as usize].newer = index;
        self.links[0].older = index;
    }

    /// Not in the list any more.
    pub(super) fn remove(&mut self, index: u16) {
        let Link { newer, older } = self.links[index as usize];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
        self.links[index as usize] = Link { newer: index, older: index };
    }

    /// The one that has not been used for the longest time; 0 if there is none.
    pub(super) fn oldest(&self) -> u16 {
        self.links[0].newer
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Recency;
    use std::vec::Vec;

    /// From the oldest on, which empties it.
    fn drain(mut list: Recency) -> Vec<u16> {
        let mut order = Vec::new();
        while list.oldest() != 0 {
            order.push(list.oldest());
            list.remove(list.oldest());
        }
        order
    }

    #[test]
    fn the_order_is_that_of_the_last_uses() {
        let mut list = Recency::new(6);
        assert_eq!(list.oldest(), 0);
        for index in [3, 1, 5, 3, 2, 1, 1] {
            list.touch(index);
        }
        assert_eq!(drain(list), [5, 3, 2, 1]);
    }

    #[test]
    fn what_is_removed_from_anywhere_is_gone_until_it_is_used_again() {
        let mut list = Recency::new(6);
        (1..6).for_each(|index| list.touch(index));
        for index in [3, 1, 5, 5] {
            list.remove(index);
        }
        list.touch(3);
        assert_eq!(drain(list), [2, 4, 3]);
    }
}
