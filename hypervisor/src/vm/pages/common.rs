//! Pages that several VMs have alike: one frame for all of them, found by what is in it.
//!
//! Linux rewrites nearly all of its own text while it boots (alternatives for the CPU's features, static keys), each VM the same:
//! what began as a shared image ends as a copy for each VM. So a copied page that is *executed* is looked up here by its
//! content ([`super::Pages`] says when): what other VMs execute, too, is theirs together, read-only, until one writes to it again. That saves
//! memory, and translations of the same instructions in whatever keeps some by physical address.
//!
//! The frames are taken once, in one piece, so that joining and leaving allocate nothing. One lock guards them; it is taken where a guest's
//! memory fault takes the frame allocator's, and held for a page at a time. A guest that runs many pages that nobody else has can fill
//! it up; others' pages stay their own then. A chain of frames with like hashes is never longer than a few, and what finds no place in it stays a VM's
//! own: so joining and leaving cost little even with pages that were made to collide.

use crate::memory::address::{PAGE_SIZE, Pa, PaRange};
use crate::memory::phys::PhysMemory;
use alloc::vec;
use alloc::vec::Vec;

/// "No page" in a link.
const NONE: u32 = u32::MAX;
/// Frames of one chain at most.
const CANDIDATES: usize = 8;
/// Words of a page.
const WORDS: u64 = PAGE_SIZE / 8;

/// One frame.
#[derive(Clone, Copy)]
struct Slot {
    hash: u64,
    /// Mappings of it; 0: it is free.
    users: u32,
    /// The next frame with a like hash, or the next free one.
    next: u32,
}

/// What has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonCounters {
    /// Frames that there are.
    pub frames: u64,
    /// Frames in use.
    pub used: u64,
    /// The most that were in use at a time.
    pub most_used: u64,
    /// Mappings of them.
    pub users: u64,
    /// The most mappings at a time.
    pub most_users: u64,
    /// Pages that were found here.
    pub joined: u64,
    /// Pages that were the first of their kind.
    pub first: u64,
    /// Pages for which there was no room.
    pub refused: u64,
}

/// All common pages.
pub struct CommonPages {
    base: Pa,
    slots: Vec<Slot>,
    /// The first slot of each chain, by the hash's low bits.
    heads: Vec<u32>,
    free: u32,
    counters: CommonCounters,
}

impl CommonPages {
    /// Common pages in the frames of `range`, which are theirs from now on; an empty range: nothing is ever common.
    pub fn new(range: PaRange) -> CommonPages {
        let frames = (range.size / PAGE_SIZE).min(u64::from(NONE) - 1) as u32;
        let slots: Vec<Slot> = (0..frames)
            .map(|index| Slot { hash: 0, users: 0, next: if index + 1 < frames { index + 1 } else { NONE } })
            .collect();
        CommonPages {
            base: range.base,
            slots,
            heads: vec![NONE; frames.next_power_of_two() as usize],
            free: if frames == 0 { NONE } else { 0 },
            counters: CommonCounters { frames: u64::from(frames), ..CommonCounters::default() },
        }
    }

    /// Heap that the bookkeeping of `bytes` of frames takes, in bytes.
    pub const fn heap_bytes(bytes: u64) -> usize {
        let frames = bytes.div_ceil(PAGE_SIZE) as usize;
        frames * size_of::<Slot>() + frames.next_power_of_two() * size_of::<u32>()
    }

    /// What has become of them.
    pub fn counters(&self) -> CommonCounters {
        self.counters
    }

    /// The common frame with what is in the frame `page`, with one user more; made if there is none yet. Nobody can write to `page`
    /// meanwhile. `None`: there is no room.
    pub fn join(&mut self, memory: &impl PhysMemory, page: Pa) -> Option<Pa> {
        let hash = hash(memory, page);
        let mut at = self.head(hash);
        let mut candidates = 0;
        while let Some(&slot) = self.slots.get(at as usize) {
            if slot.hash == hash && same(memory, self.frame(at), page) {
                self.counters.joined += 1;
                return Some(self.enter(at));
            }
            candidates += 1;
            at = slot.next;
        }
        let free = self.slots.get_mut(self.free as usize).filter(|_| candidates < CANDIDATES);
        let Some(slot) = free else {
            self.counters.refused += 1;
            return None;
        };
        let index = core::mem::replace(&mut self.free, slot.next);
        let frame = self.frame(index);
        copy(memory, frame, page);
        memory.settle(frame, PAGE_SIZE, true);
        let next = self.head(hash);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            *slot = Slot { hash, users: 0, next };
        }
        self.set_head(hash, index);
        self.counters.first += 1;
        self.counters.used += 1;
        self.counters.most_used = self.counters.most_used.max(self.counters.used);
        Some(self.enter(index))
    }

    /// A user of the frame at `page` less: no TLB has its mapping any more. Nothing happens if `page` is no common frame.
    pub fn leave(&mut self, page: Pa) {
        let Some(index) = page.0.checked_sub(self.base.0).map(|offset| offset / PAGE_SIZE) else { return };
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.users != 0) else { return };
        self.counters.users -= 1;
        slot.users -= 1;
        if slot.users != 0 {
            return;
        }
        let Slot { hash, next, .. } = *slot;
        slot.next = self.free;
        let index = index as u32;
        self.free = index;
        self.counters.used -= 1;
        if self.head(hash) == index {
            self.set_head(hash, next);
            return;
        }
        let mut at = self.head(hash);
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.next == index {
                slot.next = next;
                return;
            }
            at = slot.next;
        }
    }

    fn enter(&mut self, index: u32) -> Pa {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.users += 1;
        }
        self.counters.users += 1;
        self.counters.most_users = self.counters.most_users.max(self.counters.users);
        self.frame(index)
    }

    fn frame(&self, index: u32) -> Pa {
        Pa(self.base.0 + u64::from(index) * PAGE_SIZE)
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    fn head(&self, hash: u64) -> u32 {
        self.heads.get(self.chain(hash)).copied().unwrap_or(NONE)
    }

    fn set_head(&mut self, hash: u64, index: u32) {
        let chain = self.chain(hash);
        if let Some(head) = self.heads.get_mut(chain) {
            *head = index;
        }
    }
}

/// A number that differs for different contents, mostly. Four sums side by side, so that a CPU need not wait for each
/// multiplication; the multiplier is odd, so that no bit of a word is lost.
fn hash(memory: &impl PhysMemory, page: Pa) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sums = [1u64, 2, 3, 4];
    for group in 0..WORDS / 4 {
        for (lane, sum) in (0..).zip(&mut sums) {
            *sum =
                (*sum ^ memory.read(Pa(page.0 + (group * 4 + lane) * 8))).wrapping_mul(ODD).rotate_left(23);
        }
    }
    let mixed = sums.iter().fold(0, |all: u64, sum| (all ^ sum).wrapping_mul(ODD).rotate_left(31));
    mixed ^ mixed >> 32
}

/// Whether both frames hold the same.
fn same(memory: &impl PhysMemory, one: Pa, other: Pa) -> bool {
    (0..WORDS).all(|word| memory.read(Pa(one.0 + word * 8)) == memory.read(Pa(other.0 + word * 8)))
}

/// Copies a frame.
pub(super) fn copy(memory: &impl PhysMemory, to: Pa, from: Pa) {
    let mut piece = [0; 512];
    for at in (0..PAGE_SIZE).step_by(piece.len()) {
        memory.copy_out(Pa(from.0 + at), &mut piece);
        memory.copy_in(Pa(to.0 + at), &piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::FakeMemory;

    const FRAMES: Pa = Pa(0x10_0000);

    fn page(memory: &FakeMemory, number: u64, content: u64) -> Pa {
        let at = Pa(0x80_0000 + number * PAGE_SIZE);
        memory.copy_in(at, &content.to_le_bytes().repeat(WORDS as usize));
        at
    }

    fn frames(count: u64) -> CommonPages {
        CommonPages::new(PaRange::new(FRAMES, count * PAGE_SIZE))
    }

    #[test]
    fn equal_pages_get_one_frame_with_their_content_and_different_ones_do_not() {
        let memory = FakeMemory::new();
        let mut common = frames(3);
        let first = common.join(&memory, page(&memory, 0, 7)).unwrap();
        let other = common.join(&memory, page(&memory, 1, 8)).unwrap();
        let again = common.join(&memory, page(&memory, 2, 7)).unwrap();
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert!(same(&memory, first, Pa(0x80_0000)));
        let counters = common.counters();
        assert_eq!((counters.used, counters.users, counters.joined, counters.first), (2, 3, 1, 2));
    }

    #[test]
    fn a_frame_is_free_again_when_its_last_user_has_left() {
        let memory = FakeMemory::new();
        let mut common = frames(1);
        let source = page(&memory, 0, 7);
        let frame = common.join(&memory, source).unwrap();
        assert_eq!(common.join(&memory, source), Some(frame));
        let another = page(&memory, 1, 8);
        assert_eq!(common.join(&memory, another), None);
        common.leave(frame);
        assert_eq!(common.join(&memory, another), None, "still in use");
        common.leave(frame);
        assert_eq!(common.join(&memory, another), Some(frame));
        assert!(same(&memory, frame, another));
        assert_eq!((common.counters().refused, common.counters().users), (2, 1));
    }

    #[test]
    fn what_is_no_common_frame_can_not_leave() {
        let memory = FakeMemory::new();
        let mut common = frames(2);
        let frame = common.join(&memory, page(&memory, 0, 7)).unwrap();
        for other in [Pa(0), Pa(FRAMES.0 - PAGE_SIZE), Pa(FRAMES.0 + PAGE_SIZE), Pa(FRAMES.0 + 2 * PAGE_SIZE)]
        {
            common.leave(other);
        }
        assert_eq!(common.counters().users, 1);
        common.leave(frame);
        common.leave(frame);
        assert_eq!(common.counters().users, 0);
        let mut none = frames(0);
        assert_eq!(none.join(&memory, Pa(0x80_0000)), None);
        none.leave(Pa(0));
    }

    #[test]
    fn chains_stay_whole_whoever_leaves_first() {
        let memory = FakeMemory::new();
        // Many in few chains.
        let mut common = frames(64);
        let pages: Vec<Pa> = (0..64).map(|number| page(&memory, number, number * 3)).collect();
        let frames: Vec<Pa> = pages.iter().map(|&page| common.join(&memory, page).unwrap()).collect();
        for step in [5, 3, 1] {
            for index in (0..64).step_by(step) {
                common.leave(frames[index]);
                let back = common.join(&memory, pages[index]).unwrap();
                assert!(same(&memory, back, pages[index]));
            }
        }
        assert_eq!((common.counters().used, common.counters().users), (64, 64));
    }

    #[test]
    fn pages_made_to_collide_make_no_long_chain() {
        let memory = FakeMemory::new();
        let mut common = frames(64);
        let chain = |common: &CommonPages, content| common.chain(hash(&memory, page(&memory, 0, content)));
        let wanted = chain(&common, 0);
        let (alike, others): (Vec<u64>, Vec<u64>) =
            (0..2000).partition(|&content| chain(&common, content) == wanted);
        assert!(alike.len() > 2 * CANDIDATES);
        let joined: Vec<Option<Pa>> =
            alike.iter().map(|&content| common.join(&memory, page(&memory, 0, content))).collect();
        assert!(joined[..CANDIDATES].iter().all(Option::is_some));
        assert!(joined[CANDIDATES..].iter().all(Option::is_none), "though there are free frames");
        assert!(common.join(&memory, page(&memory, 0, others[0])).is_some(), "another chain has room");
        assert_eq!(common.join(&memory, page(&memory, 0, alike[0])), joined[0], "what is there is found");
        common.leave(joined[1].unwrap());
        assert!(common.join(&memory, page(&memory, 0, alike[CANDIDATES])).is_some());
    }

    #[test]
    fn the_heap_that_is_planned_is_enough() {
        let common = frames(100);
        let taken = common.slots.capacity() * size_of::<Slot>() + common.heads.capacity() * size_of::<u32>();
        assert!(taken <= CommonPages::heap_bytes(100 * PAGE_SIZE), "{taken}");
    }
}
