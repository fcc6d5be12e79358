//! Stage-2 block and page descriptors (Arm ARM D8.3.2, D8.4.2, D8.6.5, D8.6.6).
//!
//! MemAttr is encoded in one of two ways, by HCR_EL2.FWB. Without it, the more restrictive of both stages wins, so a guest with its
//! MMU or caches off goes past the caches. With it (FEAT_S2FWB), RAM is write-back whatever the guest says.

use crate::memory::address::Pa;
use crate::memory::tables::{ADDRESS, leaf_kind};

/// What kind of memory a range is, before the guest's own stage 1 says what it makes of it. The stricter of
/// both holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// RAM: write-back cacheable, inner shareable.
    Normal,
    /// A device's registers: Device-nGnRE.
    Device,
}

/// What a guest may do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// RAM or device.
    pub kind: Kind,
    /// Writes are allowed; reads always are.
    pub write: bool,
    /// Instruction fetches are allowed, at EL1 and EL0 alike.
    pub execute: bool,
}

impl Attr {
    /// A guest's RAM.
    pub const RAM: Attr = Attr { kind: Kind::Normal, write: true, execute: true };
    /// RAM of which a fetch of instructions faults.
    pub const RAM_DATA: Attr = Attr { kind: Kind::Normal, write: true, execute: false };
    /// RAM that is shared with others until written: a write faults.
    pub const RAM_READ_ONLY: Attr = Attr { kind: Kind::Normal, write: false, execute: true };
    /// What the hypervisor tells a guest: neither written to nor run.
    pub const READ_ONLY_DATA: Attr = Attr { kind: Kind::Normal, write: false, execute: false };
    /// A device that the guest drives itself.
    pub const DEVICE: Attr = Attr { kind: Kind::Device, write: true, execute: false };

    /// The attribute bits of a descriptor, for HCR_EL2.FWB = `forced`.
    pub(super) const fn bits(self, forced: bool) -> u64 {
        let (memory, shareability) = match self.kind {
            Kind::Normal if forced => (MEMATTR_FORCED, SH_INNER),
            Kind::Normal => (MEMATTR_NORMAL, SH_INNER),
            Kind::Device => (MEMATTR_DEVICE, 0),
        };
        let write = if self.write { S2AP_WRITE } else { 0 };
        let execute = if self.execute { 0 } else { XN };
        memory | shareability | S2AP_READ | write | AF | execute
    }

    /// Reads the attribute bits of a descriptor back.
    pub(super) const fn from_bits(descriptor: u64) -> Self {
        let kind = if descriptor & MEMATTR_NOT_DEVICE != 0 { Kind::Normal } else { Kind::Device };
        Self { kind, write: descriptor & S2AP_WRITE != 0, execute: descriptor & XN == 0 }
    }
}

/// MemAttr, bits 5:2: Normal, outer and inner write-back.
const MEMATTR_NORMAL: u64 = 0b1111 << 2;
/// MemAttr with HCR_EL2.FWB: Normal, write-back, whatever stage 1 says.
const MEMATTR_FORCED: u64 = 0b0110 << 2;
/// In either encoding, Device memory has none of these bits, and Normal memory has one.
const MEMATTR_NOT_DEVICE: u64 = 0b1100 << 2;
/// MemAttr: Device-nGnRE, in either encoding.
const MEMATTR_DEVICE: u64 = 0b0001 << 2;
/// S2AP, bits 7:6.
const S2AP_READ: u64 = 1 << 6;
const S2AP_WRITE: u64 = 1 << 7;
/// SH, bits 9:8: inner shareable. Device memory is outer shareable whatever this says.
const SH_INNER: u64 = 0b11 << 8;
/// Access flag: set, so that no access faults for want of it.
const AF: u64 = 1 << 10;
/// XN, bit 54. With FEAT_XNX this is XN\[1\] with XN\[0\] = 0, which means the same: never execute.
const XN: u64 = 1 << 54;

/// A valid descriptor of `level` (1 to 3) that maps to `pa`, which is aligned to the level's span, for HCR_EL2.FWB = `forced`.
#[inline]
pub(super) const fn leaf(pa: Pa, attr: Attr, level: u8, forced: bool) -> u64 {
    (pa.0 & ADDRESS) | attr.bits(forced) | leaf_kind(level)
}
