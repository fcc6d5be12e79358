//! A VM's id: a generation, and the index that goes into VTTBR_EL2.VMID.

use crate::ids::Vmid;

/// Bits of the index, the same for every width in use, so that the fast path compares generations with a
/// constant.
const INDEX_BITS: u32 = 16;
/// The index in an id.
pub(super) const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Set in everything that a slot holds while its CPU may take the fast path, and in every generation.
const LIVE: u64 = 1 << INDEX_BITS;
/// From one generation to the next. 47 bits are left for it: at one rollover each microsecond, more than any machine's
/// broadcast TLBIs allow, they last for four years of rollovers.
const STEP: u64 = LIVE << 1;

/// A generation (bits 63:17), a bit that is always set (16), and an index (bits 15:0).
///
/// Index 0 is never given to a VM: VTTBR_EL2 is parked on it. So values of index 0 are free to mean other things:
/// [`Id::NONE`], [`Id::OUT`], and an id without its index in the active slot of a CPU that runs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) u64);

impl Id {
    /// In a VM's cell: it has no id. In a CPU's active slot: a rollover has been here, so the CPU must
    /// go through the slow path; what it was running then is in its reserved slot.
    pub(super) const NONE: Id = Id(0);

    /// In a CPU's active slot: a rollover has been here, and the CPU has left its guest since. It must go through the
    /// slow path, but the next rollover reserves nothing for it.
    pub(super) const OUT: Id = Id(1 << 63);

    /// In a CPU's active slot: it runs no VM. Matches no VM's id, and a rollover reserves nothing for it.
    pub(super) const IDLE: Id = Id(LIVE);

    /// The first generation, as the value of an id with index 0.
    pub(super) const FIRST_GENERATION: u64 = STEP | LIVE;

    /// The generation after `generation`.
    pub(super) const fn next_generation(generation: u64) -> u64 {
        generation.wrapping_add(STEP)
    }

    /// The generation's number.
    pub(super) const fn number(self) -> u64 {
        self.0 / STEP
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

    /// What a CPU's active slot must hold, given that it did hold this, for the fast path to replace it: the same, but
    /// nothing that it can hold if it was [`Id::NONE`] or [`Id::OUT`], as the CPU replaces these under the lock alone.
    #[inline(always)]
    pub(super) const fn replaceable(self) -> u64 {
        self.0 | LIVE
    }

    /// A slot's content after its CPU left a guest, made different from what the CPU may have read, and still idle.
    pub(super) const fn disturbed(self) -> Id {
        Id(self.0.wrapping_add(STEP))
    }

    #[inline(always)]
    pub(super) const fn vmid(self) -> Vmid {
        Vmid(self.index())
    }
}
