//! Stage-2 tables: what a guest takes for physical memory, and what it may do with it.
//!
//! A [`Stage2`] belongs to one VM. It is changed through an [`Editor`], which brings together physical
//! memory, the source of tables and the TLB. The order in which tables are written and TLBs invalidated is the point:
//!
//! - A new table is complete and published before a descriptor points to it.
//! - A valid descriptor never changes into another valid one while a TLB may hold the first: it is made
//!   invalid, that is published (`dsb ishst`), the TLBs forget it, only then is the new one written
//!   (break-before-make, Arm ARM D8.17.1). While it is broken, a vCPU of the VM that runs elsewhere may take
//!   a translation fault; whoever handles that fault takes the lock that guards this structure, finds the address
//!   mapped, and lets the vCPU try again.
//! - A table's memory is given back only after the TLBs (which hold walks too) have forgotten it.
//! - The VM's VMID is read by [`Stage2Tlb`]'s implementation when it invalidates, after the change was
//!   published, and not before: VMIDs are reallocated meanwhile.
//!
//! A table with no valid descriptor is never left in place, except the root.

mod config;
mod descriptor;
mod edit;
#[cfg(test)]
mod tests;

use core::fmt;

pub(crate) use config::has_stage1_granule;
pub use config::{
    ConfigError, Stage2Config, has_forced_write_back, ipa_bits_for, physical_bits, vmid_bits, vttbr,
};
pub use descriptor::{Attr, Kind};
pub use edit::Editor;

use super::address::{Ipa, PAGE_SIZE, Pa, is_aligned};
use super::phys::PhysMemory;
use super::tables::{self, ADDRESS, TABLE_BYTES, TableSource, is_table, is_valid, shift, span};

/// Barriers and TLB maintenance for one VM's stage 2.
///
/// An implementation knows where the VM's VMID is kept. In the invalidations it reads that VMID *now*, does the maintenance
/// under it, and restores VTTBR_EL2. On a CPU that doesn't run the VM the VMID goes with an empty root: with the VM's, walks
/// might cache its translations under a VMID that is another VM's by then. `root` only says whose tables they are.
/// A VM whose VMID is of an old generation needs nothing: a rollover emptied the TLBs.
pub trait Stage2Tlb {
    /// Makes all table writes so far visible to the table walkers of all CPUs: `dsb ishst`.
    fn publish(&self);

    /// Makes all CPUs forget what they know about `ipa`: `tlbi ipas2e1is; dsb ish; tlbi vmalle1is; dsb ish; isb`. The second
    /// TLBI is for entries that combine both stages, which have no IPA any more.
    fn invalidate_ipa(&self, root: Pa, ipa: Ipa);

    /// Makes all CPUs forget all about the VM: `tlbi vmalls12e1is; dsb ish; isb`.
    fn invalidate_all(&self, root: Pa);
}

/// Why a change of a VM's memory map was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage2Error {
    /// An address or a size is no multiple of 4 KiB, or the size is 0.
    Misaligned,
    /// The range ends beyond the guest's address bits, or the output beyond the machine's.
    OutOfRange,
    /// The address is mapped already.
    AlreadyMapped(Ipa),
    /// The address is not mapped.
    NotMapped(Ipa),
    /// There is no memory for another table.
    OutOfMemory,
}

impl fmt::Display for Stage2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned => write!(f, "not a range of whole 4 KiB pages"),
            Self::OutOfRange => write!(f, "beyond the address bits of the guest or of the machine"),
            Self::AlreadyMapped(ipa) => write!(f, "guest address {ipa} is mapped already"),
            Self::NotMapped(ipa) => write!(f, "guest address {ipa} is not mapped"),
            Self::OutOfMemory => write!(f, "no memory for translation tables"),
        }
    }
}

/// Where an address leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The output address of the very byte.
    pub pa: Pa,
    /// What the guest may do there.
    pub attr: Attr,
    /// Bytes that the block or page maps: 4 KiB, 2 MiB or 1 GiB.
    pub size: u64,
}

/// A block or page of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// First guest address.
    pub ipa: Ipa,
    /// First physical address.
    pub pa: Pa,
    /// Bytes: 4 KiB, 2 MiB or 1 GiB.
    pub size: u64,
    /// What the guest may do there.
    pub attr: Attr,
}

/// The stage-2 tables of one VM.
///
/// Its memory comes back through [`Stage2::destroy`] only; dropping it leaks the tables.
#[derive(Debug)]
pub struct Stage2 {
    config: Stage2Config,
    root: Pa,
    table_bytes: u64,
}

/// Where a walk ended: a leaf, or a descriptor that is not valid.
#[derive(Clone, Copy)]
struct Step {
    level: u8,
    /// Address of the descriptor.
    entry: Pa,
    descriptor: u64,
    /// First guest address that the descriptor covers.
    base: u64,
}

impl Step {
    fn is_mapped(&self) -> bool {
        is_valid(self.descriptor)
    }

    fn span(&self) -> u64 {
        span(self.level)
    }

    /// First address after what the descriptor covers.
    fn end(&self) -> u64 {
        self.base.saturating_add(self.span())
    }
}

impl Stage2 {
    /// Tables that map nothing: just a root, which the first [`Editor::map`] publishes.
    ///
    /// # Errors
    ///
    /// [`Stage2Error::OutOfMemory`].
    pub fn new<M: PhysMemory, S: TableSource>(
        config: &Stage2Config,
        memory: &M,
        source: &mut S,
    ) -> Result<Self, Stage2Error> {
        let table_bytes = config.root_bytes();
        let root = source.allocate(table_bytes).ok_or(Stage2Error::OutOfMemory)?;
        memory.zero(root, table_bytes);
        Ok(Self { config: *config, root, table_bytes })
    }

    /// The root's address, for VTTBR_EL2.BADDR.
    #[inline]
    pub fn root(&self) -> Pa {
        self.root
    }

    /// The shape of the tables.
    pub fn config(&self) -> &Stage2Config {
        &self.config
    }

    /// Memory that the tables take, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Starts a change of the map.
    pub fn edit<'a, M: PhysMemory, T: Stage2Tlb, S: TableSource>(
        &'a mut self,
        memory: &'a M,
        tlb: &'a T,
        source: &'a mut S,
    ) -> Editor<'a, M, T, S> {
        Editor::new(self, memory, tlb, source)
    }

    /// Where `ipa` leads, as the hardware would find it; `None` where it faults.
    pub fn translate<M: PhysMemory>(&self, memory: &M, ipa: Ipa) -> Option<Translation> {
        if ipa.0 >= self.limit() {
            return None;
        }
        let step = self.walk(memory, ipa.0);
        if !step.is_mapped() {
            return None;
        }
        let pa = Pa((step.descriptor & ADDRESS) | (ipa.0 - step.base));
        Some(Translation { pa, attr: Attr::from_bits(step.descriptor), size: step.span() })
    }

    /// Calls `f` for each block and page, in ascending order of guest addresses.
    pub fn for_each_leaf<M: PhysMemory>(&self, memory: &M, mut f: impl FnMut(Leaf)) {
        let mut at = 0;
        while at < self.limit() {
            let step = self.walk(memory, at);
            if step.is_mapped() {
                f(leaf_of(step.descriptor, step.base, step.level));
            }
            at = step.end();
        }
    }

    /// Bytes of the naturally aligned piece around `ipa` in which nothing is mapped because there is not even a table: 4 KiB
    /// where there are all tables, 0 where `ipa` is mapped or beyond the address space.
    pub fn hole<M: PhysMemory>(&self, memory: &M, ipa: Ipa) -> u64 {
        if ipa.0 >= self.limit() {
            return 0;
        }
        let step = self.walk(memory, ipa.0);
        if step.is_mapped() { 0 } else { step.span() }
    }

    /// Empties the map: gives all tables but the root back to `source`, after calling `f` for each block and page.
    ///
    /// As with [`Stage2::destroy`], no CPU may have these tables in VTTBR_EL2, and the VM's VMID must be released before.
    pub fn clear<M: PhysMemory, S: TableSource>(
        &mut self,
        memory: &M,
        source: &mut S,
        mut f: impl FnMut(&mut S, Leaf),
    ) {
        let (root, level) = (self.root, self.config.start_level());
        destroy_table(memory, source, root, self.config.root_entries(), level, 0, &mut f);
        self.table_bytes = self.config.root_bytes();
        memory.zero(root, self.table_bytes);
    }

    /// Ends the map: gives all tables back to `source`, after calling `f` for each block and page, so that its
    /// owner gets the guest's memory back.
    ///
    /// No CPU may have these tables in VTTBR_EL2 any more, and the VM's VMID must be released (which invalidates the
    /// TLBs for it) before: there is no TLB maintenance in here.
    pub fn destroy<M: PhysMemory, S: TableSource>(self, memory: &M, source: &mut S, mut f: impl FnMut(Leaf)) {
        let (root, level) = (self.root, self.config.start_level());
        destroy_table(memory, source, root, self.config.root_entries(), level, 0, &mut |_: &mut S, leaf| {
            f(leaf)
        });
        source.release(root, self.config.root_bytes());
    }

    /// First address beyond the guest's address space.
    fn limit(&self) -> u64 {
        1 << self.config.ipa_bits()
    }

    /// The address of the descriptor for `address` in `table`, which is of `level`.
    fn entry(&self, table: Pa, level: u8, address: u64) -> Pa {
        // Concatenated roots are one large table, so their index is not cut to 9 bits.
        let index = if level == self.config.start_level() {
            address >> shift(level)
        } else {
            tables::index(address, level)
        };
        Pa(table.0 + index * 8)
    }

    /// Follows tables for `address`, which is below [`Stage2::limit`].
    fn walk<M: PhysMemory>(&self, memory: &M, address: u64) -> Step {
        let mut table = self.root;
        let mut level = self.config.start_level();
        loop {
            let entry = self.entry(table, level, address);
            let descriptor = memory.read(entry);
            if !is_table(descriptor, level) {
                return Step { level, entry, descriptor, base: address & !(span(level) - 1) };
            }
            table = Pa(descriptor & ADDRESS);
            level += 1;
        }
    }

    /// Checks a range of guest addresses; returns its first address and the first one after it.
    fn check(&self, ipa: Ipa, size: u64) -> Result<(u64, u64), Stage2Error> {
        if size == 0 || !is_aligned(ipa.0 | size, PAGE_SIZE) {
            return Err(Stage2Error::Misaligned);
        }
        match ipa.checked_add(size) {
            Some(end) if end.0 <= self.limit() => Ok((ipa.0, end.0)),
            _ => Err(Stage2Error::OutOfRange),
        }
    }
}

fn leaf_of(descriptor: u64, base: u64, level: u8) -> Leaf {
    Leaf {
        ipa: Ipa(base),
        pa: Pa(descriptor & ADDRESS),
        size: span(level),
        attr: Attr::from_bits(descriptor),
    }
}

/// Gives back the tables below `table`; recursion ends at level 3.
fn destroy_table<M: PhysMemory, S: TableSource>(
    memory: &M,
    source: &mut S,
    table: Pa,
    entries: u64,
    level: u8,
    base: u64,
    f: &mut impl FnMut(&mut S, Leaf),
) {
    for index in 0..entries {
        let descriptor = memory.read(Pa(table.0 + index * 8));
        let address = base + index * span(level);
        if is_table(descriptor, level) {
            let next = Pa(descriptor & ADDRESS);
            destroy_table(memory, source, next, tables::TABLE_ENTRIES, level + 1, address, f);
            source.release(next, TABLE_BYTES);
        } else if is_valid(descriptor) {
            f(source, leaf_of(descriptor, address, level));
        }
    }
}
