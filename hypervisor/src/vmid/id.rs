//! A VM's id: a generation, and the index that goes into VTTBR_EL2.VMID.

use crate::ids::Vmid;

/// Bits of the index, the same for every width in use, so that the fast path compares generations with a
/// constant. 48 bits are left for the generation: at one rollover each microsecond, more than any machine's
/// broadcast TLBIs allow, they last for almost nine years of rollovers.
const INDEX_BITS: u32 = 16;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// A generation (bits 63:16) and an index (bits 15:0).
///
/// Index 0 is never given to a VM: VTTBR_EL2 is parked on it. So ids of index 0 are free to mean other things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) u64);

impl Id {
    /// In a VM's cell: it never had an id. In a CPU's active slot: a rollover has been here, so the CPU must
    /// go through the slow path; what it was running then is in its reserved slot.
    pub(super) const NONE: Id = Id(0);

    /// In a CPU's active slot: it runs no VM. Matches no VM's id, and a rollover reserves nothing for it.
    pub(super) const INVALID: Id = Id(1 << INDEX_BITS);

    /// The first generation, as the value of an id with index 0.
    pub(super) const FIRST_GENERATION: u64 = 1 << INDEX_BITS;

    /// The generation after `generation`.
    pub(super) const fn next_generation(generation: u64) -> u64 {
        generation.wrapping_add(1 << INDEX_BITS)
    }

    pub(super) const fn new(generation: u64, index: u16) -> Id {
        Id(generation | index as u64)
    }

    pub(super) const fn index(self) -> u16 {
        (self.0 & INDEX_MASK) as u16
    }

    /// Whether it is an id of that generation.
    #[inline(always)]
    pub(super) const fn is_of(self, generation: u64) -> bool {
        (self.0 ^ generation) & !INDEX_MASK == 0
    }

    #[inline(always)]
    pub(super) const fn vmid(self) -> Vmid {
        Vmid(self.index())
    }
}
