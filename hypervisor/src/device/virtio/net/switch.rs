//! Which VM has which address: a learning switch (IEEE 802.1Q, 8.7 and 8.8, without VLANs and spanning trees).
//!
//! Each VM has an address that says its number; these are known without learning, and nobody else can take them. Other addresses,
//! those that a guest gives itself, are learnt from the frames that come from them, in a table of atomic words: looking one up takes
//! no lock. An entry stays until its VM ends or the address appears elsewhere. Where no entry is free for an address, frames
//! for it go to all: a VM that invents addresses fills the table at most with as many as it may have, and takes nobody's.

use crate::ids::{MAX_VMS, VmId};
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mac(pub [u8; 6]);

/// The first four bytes of the VMs' own addresses: locally administered, for one station.
const OWN: [u8; 4] = [0x02, 0x6f, 0x64, 0x6f];
/// Groups of entries, found by a hash of the address.
const SETS: usize = 256;
/// Entries of a group.
const WAYS: usize = 4;
/// Addresses that are learnt of one VM at most.
const MOST_OF_ONE: u16 = 16;

impl Mac {
    /// The address of `vm`'s card.
    pub const fn of(vm: VmId) -> Mac {
        let [high, low] = vm.0.to_be_bytes();
        Mac([OWN[0], OWN[1], OWN[2], OWN[3], high, low])
    }

    /// The VM whose card has this address.
    fn owner(self) -> Option<VmId> {
        let [a, b, c, d, high, low] = self.0;
        let vm = u16::from_be_bytes([high, low]);
        ([a, b, c, d] == OWN && usize::from(vm) < MAX_VMS).then_some(VmId(vm))
    }

    /// Destination and source of an Ethernet frame.
    pub fn of_frame(frame: &[u8]) -> Option<(Mac, Mac)> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let (from, _) = rest.split_first_chunk::<6>()?;
        Some((Mac(*to), Mac(*from)))
    }

    /// Whether it is for more than one station.
    const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    fn bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    fn set(self) -> usize {
        // The upper bits of a multiplication depend on all bits of the address.
        (self.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SETS
    }
}

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To this VM.
    One(VmId),
    /// To all but the sender: it is for a group, or nobody knows who it is for.
    All,
}

/// The switch. An entry is the address, and above it the VM's number plus 1; 0 is a free entry.
#[derive(Debug)]
pub struct Switch {
    entries: [[AtomicU64; WAYS]; SETS],
    /// Entries of each VM.
    counts: [AtomicU16; MAX_VMS],
}

impl Default for Switch {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch {
    /// A switch that knows nobody.
    pub const fn new() -> Switch {
        Switch {
            entries: [const { [const { AtomicU64::new(0) }; WAYS] }; SETS],
            counts: [const { AtomicU16::new(0) }; MAX_VMS],
        }
    }

    /// A frame has come from `vm` with the source address `mac`.
    pub fn learn(&self, mac: Mac, vm: VmId) {
        if mac.is_group() || mac.owner().is_some() {
            return;
        }
        let (Some(set), Some(count)) = (self.entries.get(mac.set()), self.counts.get(usize::from(vm.0)))
        else {
            return;
        };
        let entry = mac.bits() | (u64::from(vm.0) + 1) << 48;
        if let Some(known) = set.iter().find(|known| address(known.load(Relaxed)) == mac.bits()) {
            let before = known.load(Relaxed);
            // It has moved. (If somebody else was quicker, the next frame tries again.)
            if before != entry
                && address(before) == mac.bits()
                && known.compare_exchange(before, entry, Relaxed, Relaxed).is_ok()
            {
                self.uncount(before);
                count.fetch_add(1, Relaxed);
            }
            return;
        }
        if count.load(Relaxed) >= MOST_OF_ONE {
            return;
        }
        let free = set.iter().find(|free| free.compare_exchange(0, entry, Relaxed, Relaxed).is_ok());
        if free.is_some() {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Where a frame for `mac` goes.
    pub fn find(&self, mac: Mac) -> Destination {
        if mac.is_group() {
            return Destination::All;
        }
        if let Some(vm) = mac.owner() {
            return Destination::One(vm);
        }
        let known = self.entries.get(mac.set()).and_then(|set| {
            let entries = set.iter().map(|entry| entry.load(Relaxed));
            entries.into_iter().find(|entry| address(*entry) == mac.bits()).and_then(owner)
        });
        known.map_or(Destination::All, Destination::One)
    }

    /// `vm` has ended: its addresses are free.
    pub fn forget(&self, vm: VmId) {
        for entry in self.entries.iter().flatten() {
            let before = entry.load(Relaxed);
            if owner(before) == Some(vm) && entry.compare_exchange(before, 0, Relaxed, Relaxed).is_ok() {
                self.uncount(before);
            }
        }
    }

    fn uncount(&self, entry: u64) {
        if let Some(count) = owner(entry).and_then(|vm| self.counts.get(usize::from(vm.0))) {
            count.fetch_sub(1, Relaxed);
        }
    }
}

/// The address of an entry.
const fn address(entry: u64) -> u64 {
    entry & ((1 << 48) - 1)
}

/// The VM of an entry.
fn owner(entry: u64) -> Option<VmId> {
    ((entry >> 48) as u16).checked_sub(1).map(VmId)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: VmId = VmId(0);
    const B: VmId = VmId(1);
    const OTHER: Mac = Mac([0x52, 0x54, 0, 1, 2, 3]);

    #[test]
    fn every_vm_has_its_own_local_address() {
        assert_eq!(Mac::of(VmId(0x102)).0, [0x02, 0x6f, 0x64, 0x6f, 1, 2]);
        assert!(!Mac::of(B).is_group() && Mac::of(B).0[0] & 2 != 0, "for one station, locally administered");
        let switch = Switch::new();
        assert_eq!(switch.find(Mac::of(B)), Destination::One(B), "without a frame from it");
        switch.learn(Mac::of(B), A);
        assert_eq!(switch.find(Mac::of(B)), Destination::One(B), "nobody takes another's");
    }

    #[test]
    fn addresses_are_learnt_move_and_are_forgotten() {
        let switch = Switch::new();
        assert_eq!(switch.find(OTHER), Destination::All);
        switch.learn(OTHER, A);
        assert_eq!(switch.find(OTHER), Destination::One(A));
        switch.learn(OTHER, B);
        assert_eq!(switch.find(OTHER), Destination::One(B));
        assert_eq!(switch.counts[0].load(Relaxed), 0);
        switch.forget(A);
        assert_eq!(switch.find(OTHER), Destination::One(B));
        switch.forget(B);
        assert_eq!(switch.find(OTHER), Destination::All);
        assert_eq!(switch.counts[1].load(Relaxed), 0);
    }

    #[test]
    fn groups_are_for_all_and_never_learnt() {
        let switch = Switch::new();
        for group in [Mac([0xff; 6]), Mac([0x33, 0x33, 0, 0, 0, 1]), Mac([1, 0, 0x5e, 0, 0, 1])] {
            switch.learn(group, A);
            assert_eq!(switch.find(group), Destination::All);
        }
    }

    #[test]
    fn who_invents_addresses_takes_nobody_elses() {
        let switch = Switch::new();
        switch.learn(OTHER, B);
        for n in 0..100_000_u32 {
            let [a, b, c, d] = n.to_be_bytes();
            switch.learn(Mac([2, 0, a, b, c, d]), A);
        }
        let taken = switch.entries.iter().flatten().filter(|entry| entry.load(Relaxed) != 0).count();
        assert_eq!(taken, usize::from(MOST_OF_ONE) + 1);
        assert_eq!(switch.find(OTHER), Destination::One(B));
        switch.forget(A);
        switch.learn(Mac([2, 0, 9, 9, 9, 9]), A);
        assert_eq!(switch.find(Mac([2, 0, 9, 9, 9, 9])), Destination::One(A));
    }

    #[test]
    fn short_frames_have_no_addresses() {
        assert_eq!(Mac::of_frame(&[0; 11]), None);
        assert!(Mac::of_frame(&[0; 12]).is_some());
    }
}
