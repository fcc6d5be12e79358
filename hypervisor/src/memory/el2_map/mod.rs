//! EL2's own map: stage 1 of the EL2 translation regime, addresses one to one, W^X.
//!
//! HCR_EL2.E2H is 0, so there is one range of addresses, translated by TTBR0_EL2, with permissions of one
//! privilege level (Arm ARM D8.4.1.2, D8.3.1). Boot code builds the map with the MMU off: no heap, no exclusives, no
//! logging; tables come from any [`TableSource`]. What is written with caches off must be invalidated from the caches
//! before they are turned on: that is the caller's duty, as is publishing it (`dsb ishst`).
//!
//! Later calls win over earlier ones, so a bank of RAM is mapped as data first, then the image's sections
//! inside of it get what they need, then guard pages are unmapped. All this is for a map that is not in use yet:
//! there is no break-before-make in here.

#[cfg(test)]
mod tests;

use core::fmt;

use super::address::{MAX_ADDRESS_BITS, PAGE_SIZE, Pa, PaRange, Va, is_aligned};
use super::phys::PhysMemory;
use super::stage2::{ConfigError, has_stage1_granule, physical_bits};
use super::tables::{
    ADDRESS, TABLE_BYTES, TABLE_ENTRIES, TableSource, best_level, index, is_table, is_valid, leaf_kind, span,
    table_descriptor,
};

/// MAIR_EL2: attribute 0 is Device-nGnRE, attribute 1 is Normal, inner and outer write-back, read and write
/// allocate, non-transient (Arm ARM D24.2.122).
pub const MAIR: u64 = 0xff_04;
const ATTR_DEVICE: u64 = 0;
const ATTR_NORMAL: u64 = 1;

/// The level at which walks of 48 bits start.
const START_LEVEL: u8 = 0;

/// TCR_EL2 for E2H = 0 (Arm ARM D24.2.186): 48 bits of address, 4 KiB granule, walks write-back and inner
/// shareable, top byte not ignored, no hardware update of access flag and dirty state.
///
/// # Errors
///
/// [`ConfigError::NoGranule`] where the CPU has no 4 KiB granule at stage 1.
pub const fn tcr(id_aa64mmfr0: u64) -> Result<u64, ConfigError> {
    if !has_stage1_granule(id_aa64mmfr0) {
        return Err(ConfigError::NoGranule);
    }
    let t0sz = 64 - MAX_ADDRESS_BITS as u64;
    let irgn0 = 0b01 << 8;
    let orgn0 = 0b01 << 10;
    let sh0 = 0b11 << 12;
    let (_, ps) = physical_bits(id_aa64mmfr0);
    let res1 = 1 << 31 | 1 << 23;
    Ok(t0sz | irgn0 | orgn0 | sh0 | ps << 16 | res1)
}

/// What a range is to EL2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Instructions: read and execute.
    Code,
    /// Constants: read.
    ReadOnly,
    /// RAM: read and write, never execute.
    Data,
    /// Device registers: Device-nGnRE, read and write, never execute.
    Device,
}

/// AP\[1\]: RES1 in a regime of one privilege level.
const AP1: u64 = 1 << 6;
/// AP\[2\]: no writes.
const READ_ONLY: u64 = 1 << 7;
/// SH: inner shareable.
const SH_INNER: u64 = 0b11 << 8;
/// Access flag.
const AF: u64 = 1 << 10;
/// XN; bit 53 is RES0 in this regime.
const XN: u64 = 1 << 54;
/// AttrIndx, bits 4:2.
const ATTR_SHIFT: u32 = 2;
const ATTR_MASK: u64 = 0b111 << ATTR_SHIFT;

impl Kind {
    const fn bits(self) -> u64 {
        let common = AP1 | AF;
        let normal = ATTR_NORMAL << ATTR_SHIFT | SH_INNER | common;
        match self {
            Self::Code => normal | READ_ONLY,
            Self::ReadOnly => normal | READ_ONLY | XN,
            Self::Data => normal | XN,
            Self::Device => ATTR_DEVICE << ATTR_SHIFT | common | XN,
        }
    }

    const fn from_bits(descriptor: u64) -> Self {
        if descriptor & ATTR_MASK == ATTR_DEVICE << ATTR_SHIFT {
            Self::Device
        } else if descriptor & XN == 0 {
            Self::Code
        } else if descriptor & READ_ONLY != 0 {
            Self::ReadOnly
        } else {
            Self::Data
        }
    }
}

/// Why a range could not be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum El2MapError {
    /// An end of the range is no multiple of 4 KiB.
    Misaligned(PaRange),
    /// The range ends beyond 2^48.
    OutOfRange(PaRange),
    /// There is no memory for another table.
    OutOfMemory,
}

impl fmt::Display for El2MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned(range) => write!(f, "{range} is not a range of whole pages"),
            Self::OutOfRange(range) => write!(f, "{range} lies beyond 48 bits of address"),
            Self::OutOfMemory => write!(f, "no memory for EL2's translation tables"),
        }
    }
}

/// The map under construction.
///
/// Memory for tables: one page for the root, one for each 512 GiB with anything in it, one for each GiB that isn't
/// one block, one for each 2 MiB that isn't.
#[derive(Debug)]
pub struct El2Map {
    root: Pa,
    table_bytes: u64,
}

impl El2Map {
    /// A map of nothing.
    ///
    /// # Errors
    ///
    /// [`El2MapError::OutOfMemory`].
    pub fn new<M: PhysMemory, S: TableSource>(memory: &M, source: &mut S) -> Result<Self, El2MapError> {
        let root = source.allocate(TABLE_BYTES).ok_or(El2MapError::OutOfMemory)?;
        memory.zero(root, TABLE_BYTES);
        Ok(Self { root, table_bytes: TABLE_BYTES })
    }

    /// For TTBR0_EL2.
    pub fn root(&self) -> Pa {
        self.root
    }

    /// Memory that the tables take, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Maps `range` to itself as `kind`, whatever it was before.
    ///
    /// # Errors
    ///
    /// [`El2MapError`]; where memory ran out, a part of the range may be mapped.
    pub fn map<M: PhysMemory, S: TableSource>(
        &mut self,
        memory: &M,
        source: &mut S,
        range: PaRange,
        kind: Kind,
    ) -> Result<(), El2MapError> {
        self.set(memory, source, range, Some(kind))
    }

    /// Takes `range` out of the map: a guard page, a reserved range.
    ///
    /// # Errors
    ///
    /// As [`El2Map::map`]: a block around the range may have to be split.
    pub fn unmap<M: PhysMemory, S: TableSource>(
        &mut self,
        memory: &M,
        source: &mut S,
        range: PaRange,
    ) -> Result<(), El2MapError> {
        self.set(memory, source, range, None)
    }

    /// Where `va` leads and as what; `None` where an access would fault.
    pub fn translate<M: PhysMemory>(&self, memory: &M, va: Va) -> Option<(Pa, Kind)> {
        if va.0 >> MAX_ADDRESS_BITS != 0 {
            return None;
        }
        let mut table = self.root;
        let mut level = START_LEVEL;
        loop {
            let descriptor = memory.read(entry(table, level, va.0));
            if !is_table(descriptor, level) {
                let pa = Pa(descriptor & ADDRESS | va.0 & (span(level) - 1));
                return is_valid(descriptor).then_some((pa, Kind::from_bits(descriptor)));
            }
            table = Pa(descriptor & ADDRESS);
            level += 1;
        }
    }

    fn set<M: PhysMemory, S: TableSource>(
        &mut self,
        memory: &M,
        source: &mut S,
        range: PaRange,
        kind: Option<Kind>,
    ) -> Result<(), El2MapError> {
        if !is_aligned(range.base.0 | range.size, PAGE_SIZE) {
            return Err(El2MapError::Misaligned(range));
        }
        let end = match range.end() {
            Some(end) if end.0 <= 1 << MAX_ADDRESS_BITS => end.0,
            _ => return Err(El2MapError::OutOfRange(range)),
        };
        let mut at = range.base.0;
        while at < end {
            at = self.set_one(memory, source, at, end, kind)?;
        }
        Ok(())
    }

    /// Writes the one descriptor for `at` that is as large as alignment, `end` and existing tables allow; returns the
    /// first address after what it covers.
    fn set_one<M: PhysMemory, S: TableSource>(
        &mut self,
        memory: &M,
        source: &mut S,
        at: u64,
        end: u64,
        kind: Option<Kind>,
    ) -> Result<u64, El2MapError> {
        let target = best_level(at, at, end - at, START_LEVEL);
        let mut table = self.root;
        let mut level = START_LEVEL;
        loop {
            let entry = entry(table, level, at);
            let descriptor = memory.read(entry);
            let next = (at & !(span(level) - 1)).saturating_add(span(level));
            if is_table(descriptor, level) {
                // An existing table is filled, not replaced: its source may be unable to take it back.
                table = Pa(descriptor & ADDRESS);
            } else if level >= target {
                memory.write(entry, kind.map_or(0, |kind| at | kind.bits() | leaf_kind(level)));
                return Ok(next);
            } else if kind.is_none() && !is_valid(descriptor) {
                return Ok(next);
            } else {
                table = self.add_table(memory, source, entry, descriptor, level)?;
            }
            level += 1;
        }
    }

    /// Replaces `descriptor` of `level`, a hole or a block, by a table that maps the same.
    fn add_table<M: PhysMemory, S: TableSource>(
        &mut self,
        memory: &M,
        source: &mut S,
        entry: Pa,
        descriptor: u64,
        level: u8,
    ) -> Result<Pa, El2MapError> {
        let table = source.allocate(TABLE_BYTES).ok_or(El2MapError::OutOfMemory)?;
        if is_valid(descriptor) {
            let mut pa = descriptor & ADDRESS;
            let attributes = Kind::from_bits(descriptor).bits() | leaf_kind(level + 1);
            for index in 0..TABLE_ENTRIES {
                memory.write(Pa(table.0 + index * 8), pa | attributes);
                pa += span(level + 1);
            }
        } else {
            memory.zero(table, TABLE_BYTES);
        }
        memory.write(entry, table_descriptor(table));
        self.table_bytes += TABLE_BYTES;
        Ok(table)
    }
}

fn entry(table: Pa, level: u8, address: u64) -> Pa {
    Pa(table.0 + index(address, level) * 8)
}
