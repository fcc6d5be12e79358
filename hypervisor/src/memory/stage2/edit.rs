//! Changes of a live stage-2 map, in the order that other CPUs' table walkers and TLBs need.

use super::descriptor::{Attr, leaf};
use super::{Stage2, Stage2Error, Stage2Tlb, Step};
use crate::memory::address::{Ipa, PAGE_SIZE, Pa, is_aligned};
use crate::memory::phys::PhysMemory;
use crate::memory::tables::{
    ADDRESS, LAST_LEVEL, TABLE_BYTES, TABLE_ENTRIES, TableSource, VALID, best_level, is_table, is_valid,
    span, table_descriptor,
};

/// What a [`Stage2`] is changed through.
#[derive(Debug)]
pub struct Editor<'a, M, T, S> {
    stage2: &'a mut Stage2,
    memory: &'a M,
    tlb: &'a T,
    source: &'a mut S,
}

/// What has become invalid and is not forgotten by the TLBs yet.
#[derive(Default)]
struct Broken {
    /// How many blocks and pages.
    leaves: u64,
    /// The last one's address.
    at: u64,
    /// Not all detached tables are on the way to that address.
    scattered: bool,
    /// Chain of detached tables: each one's first word holds the address of the next, 0 at the end. An address
    /// has bit 0 clear, so a walker that still sees the table finds an invalid descriptor there.
    tables: u64,
    /// How many tables are in the chain.
    table_count: u64,
}

impl<'a, M: PhysMemory, T: Stage2Tlb, S: TableSource> Editor<'a, M, T, S> {
    pub(super) fn new(stage2: &'a mut Stage2, memory: &'a M, tlb: &'a T, source: &'a mut S) -> Self {
        Self { stage2, memory, tlb, source }
    }

    /// Maps `size` bytes from `ipa` on to physical memory from `pa` on, with the largest blocks that alignment allows.
    ///
    /// # Errors
    ///
    /// [`Stage2Error`] where anything is misaligned or out of range, part of the range is mapped already, or
    /// there is no memory for tables. Nothing is changed then.
    pub fn map(&mut self, ipa: Ipa, pa: Pa, size: u64, attr: Attr) -> Result<(), Stage2Error> {
        let (start, end) = self.stage2.check(ipa, size)?;
        if !pa.is_aligned(PAGE_SIZE) {
            return Err(Stage2Error::Misaligned);
        }
        if pa.checked_add(size).is_none_or(|end| end.0 > 1 << self.stage2.config.pa_bits()) {
            return Err(Stage2Error::OutOfRange);
        }
        if let Some(mapped) = self.first(start, end, Step::is_mapped) {
            return Err(Stage2Error::AlreadyMapped(Ipa(mapped.base.max(start))));
        }
        let mut at = start;
        while at < end {
            match self.map_run(at, pa.0 + (at - start), end - at, attr) {
                Ok(bytes) => at += bytes,
                Err(error) => {
                    let mut broken = Broken::default();
                    self.clear(start, at, &mut broken);
                    self.prune(at, &mut broken);
                    // Leaves and tables of different places: one address is not enough.
                    broken.scattered = true;
                    self.forget(broken);
                    return Err(error);
                }
            }
        }
        self.tlb.publish();
        Ok(())
    }

    /// Unmaps what is mapped of a range; returns how many bytes that was. Blocks that reach beyond the range
    /// are split first. When this returns, no TLB holds anything of it, and its memory may be reused.
    ///
    /// # Errors
    ///
    /// [`Stage2Error`] where the range is misaligned or too long, or there is no memory to split a block; nothing
    /// is unmapped then.
    pub fn unmap(&mut self, ipa: Ipa, size: u64) -> Result<u64, Stage2Error> {
        let (start, end) = self.stage2.check(ipa, size)?;
        self.split_at(start)?;
        self.split_at(end)?;
        let mut broken = Broken::default();
        let bytes = self.clear(start, end, &mut broken);
        self.forget(broken);
        Ok(bytes)
    }

    /// Changes what the guest may do with a range, all of which is mapped. Blocks that reach beyond it are split.
    ///
    /// # Errors
    ///
    /// [`Stage2Error`] where the range is misaligned or too long, part of it is not mapped, or there is no
    /// memory to split a block; no permission is changed then.
    pub fn protect(&mut self, ipa: Ipa, size: u64, attr: Attr) -> Result<(), Stage2Error> {
        let (start, end) = self.stage2.check(ipa, size)?;
        if let Some(hole) = self.first(start, end, |step| !step.is_mapped()) {
            return Err(Stage2Error::NotMapped(Ipa(hole.base.max(start))));
        }
        self.split_at(start)?;
        self.split_at(end)?;
        // Break: drop the valid bit and keep the rest, which hardware ignores then, for the second pass.
        let mut broken = Broken::default();
        self.each(start, end, |editor, step| {
            if Attr::from_bits(step.descriptor) != attr {
                editor.memory.write(step.entry, step.descriptor & !VALID);
                broken.leaves += 1;
                broken.at = step.base;
            }
        });
        if broken.leaves == 0 {
            return Ok(());
        }
        self.forget(broken);
        self.each(start, end, |editor, step| {
            if !step.is_mapped() {
                let pa = Pa(step.descriptor & ADDRESS);
                editor.memory.write(step.entry, editor.leaf(pa, attr, step.level));
            }
        });
        self.tlb.publish();
        Ok(())
    }

    /// Puts another physical page below one mapped guest page (4 KiB; a block around it is split), with new
    /// permissions; returns the page that was there, which no TLB holds any more. This is what copy on write does
    /// once the copy is made.
    ///
    /// # Errors
    ///
    /// [`Stage2Error`] where an address is misaligned or out of range, `ipa` is not mapped, or there is no
    /// memory to split a block; the page is not replaced then.
    pub fn replace(&mut self, ipa: Ipa, pa: Pa, attr: Attr) -> Result<Pa, Stage2Error> {
        let (start, _) = self.stage2.check(ipa, PAGE_SIZE)?;
        if !pa.is_aligned(PAGE_SIZE) {
            return Err(Stage2Error::Misaligned);
        }
        if pa.0 >= 1 << self.stage2.config.pa_bits() {
            return Err(Stage2Error::OutOfRange);
        }
        let step = self.split_to_page(start)?;
        self.memory.write(step.entry, 0);
        self.tlb.publish();
        self.tlb.invalidate_ipa(self.stage2.root, ipa);
        self.memory.write(step.entry, self.leaf(pa, attr, step.level));
        self.tlb.publish();
        Ok(Pa(step.descriptor & ADDRESS))
    }

    /// Splits blocks until `ipa` (a multiple of 4 KiB) is mapped by a page. What is mapped where stays as it is.
    ///
    /// # Errors
    ///
    /// [`Stage2Error`] where `ipa` is misaligned, out of range or not mapped, or there is no memory for a table.
    pub fn split(&mut self, ipa: Ipa) -> Result<(), Stage2Error> {
        let (start, _) = self.stage2.check(ipa, PAGE_SIZE)?;
        self.split_to_page(start).map(|_| ())
    }

    /// A block or page descriptor as this machine has them.
    fn leaf(&self, pa: Pa, attr: Attr, level: u8) -> u64 {
        leaf(pa, attr, level, self.stage2.config.forces_write_back())
    }

    /// The step to the page at `address`, once there is a page.
    fn split_to_page(&mut self, address: u64) -> Result<Step, Stage2Error> {
        loop {
            let step = self.stage2.walk(self.memory, address);
            if !step.is_mapped() {
                return Err(Stage2Error::NotMapped(Ipa(address)));
            }
            if step.level == LAST_LEVEL {
                return Ok(step);
            }
            self.split_block(step)?;
        }
    }

    /// Splits blocks until no block or page has `address` in its midst.
    fn split_at(&mut self, address: u64) -> Result<(), Stage2Error> {
        while address < self.stage2.limit() {
            let step = self.stage2.walk(self.memory, address);
            if !step.is_mapped() || step.base == address {
                break;
            }
            self.split_block(step)?;
        }
        Ok(())
    }

    /// Replaces a block by a table of smaller blocks or of pages, break before make.
    fn split_block(&mut self, block: Step) -> Result<(), Stage2Error> {
        let table = self.source.allocate(TABLE_BYTES).ok_or(Stage2Error::OutOfMemory)?;
        let level = block.level + 1;
        let attr = Attr::from_bits(block.descriptor);
        let mut pa = block.descriptor & ADDRESS;
        for index in 0..TABLE_ENTRIES {
            self.memory.write(Pa(table.0 + index * 8), self.leaf(Pa(pa), attr, level));
            pa += span(level);
        }
        self.memory.write(block.entry, 0);
        self.tlb.publish();
        self.tlb.invalidate_ipa(self.stage2.root, Ipa(block.base));
        self.memory.write(block.entry, table_descriptor(table));
        self.tlb.publish();
        self.stage2.table_bytes += TABLE_BYTES;
        Ok(())
    }

    /// Maps as much as one table takes, with descriptors of one level; returns how many bytes that was. Nothing of the
    /// range is mapped yet.
    fn map_run(&mut self, ipa: u64, pa: u64, size: u64, attr: Attr) -> Result<u64, Stage2Error> {
        let start_level = self.stage2.config.start_level();
        let target = best_level(ipa, pa, size, start_level);
        let mut table = self.stage2.root;
        for level in start_level..target {
            let entry = self.stage2.entry(table, level, ipa);
            let descriptor = self.memory.read(entry);
            table =
                if is_table(descriptor, level) { Pa(descriptor & ADDRESS) } else { self.add_table(entry)? };
        }
        let first = self.stage2.entry(table, target, ipa);
        // The range ends within the address space, so in the root only the table's end may come first elsewhere.
        let room =
            if target == start_level { u64::MAX } else { (TABLE_BYTES - (first.0 & (TABLE_BYTES - 1))) / 8 };
        let count = (size / span(target)).min(room);
        for index in 0..count {
            let descriptor = self.leaf(Pa(pa + index * span(target)), attr, target);
            self.memory.write(Pa(first.0 + index * 8), descriptor);
        }
        Ok(count * span(target))
    }

    /// Puts an empty table where `entry` is, which is not valid.
    fn add_table(&mut self, entry: Pa) -> Result<Pa, Stage2Error> {
        let table = self.source.allocate(TABLE_BYTES).ok_or(Stage2Error::OutOfMemory)?;
        self.memory.zero(table, TABLE_BYTES);
        self.tlb.publish();
        self.memory.write(entry, table_descriptor(table));
        self.stage2.table_bytes += TABLE_BYTES;
        Ok(table)
    }

    /// Makes all blocks and pages of a range invalid, which none crosses the ends of, and detaches tables that have become
    /// empty. Returns how many bytes were mapped.
    fn clear(&mut self, start: u64, end: u64, broken: &mut Broken) -> u64 {
        let mut bytes = 0;
        let mut at = start;
        while at < end {
            let step = self.stage2.walk(self.memory, at);
            if step.is_mapped() {
                self.memory.write(step.entry, 0);
                broken.leaves += 1;
                broken.at = step.base;
                bytes += step.span();
            }
            let last_of_table =
                step.level > 0 && is_aligned(step.end(), span(step.level - 1)) || step.end() >= end;
            if last_of_table {
                self.prune(at, broken);
            }
            at = step.end();
        }
        bytes
    }

    /// Detaches the tables on the way to `address` that hold nothing, from the last one upwards.
    fn prune(&mut self, address: u64, broken: &mut Broken) {
        if address >= self.stage2.limit() {
            return;
        }
        let start_level = self.stage2.config.start_level();
        loop {
            // The deepest table on the way, and the descriptor that points to it.
            let (mut table, mut level) = (self.stage2.root, start_level);
            let mut parent = None;
            loop {
                let entry = self.stage2.entry(table, level, address);
                let descriptor = self.memory.read(entry);
                if !is_table(descriptor, level) {
                    break;
                }
                parent = Some(entry);
                table = Pa(descriptor & ADDRESS);
                level += 1;
            }
            let Some(parent) = parent else { return };
            let empty = (0..TABLE_ENTRIES).all(|index| !is_valid(self.memory.read(Pa(table.0 + index * 8))));
            if !empty {
                return;
            }
            self.memory.write(parent, 0);
            self.memory.write(table, broken.tables);
            broken.tables = table.0;
            broken.table_count += 1;
        }
    }

    /// Makes the TLBs forget what was broken, then gives detached tables back.
    fn forget(&mut self, broken: Broken) {
        if broken.leaves == 0 && broken.table_count == 0 {
            return;
        }
        self.tlb.publish();
        // A single address is enough for one leaf and the tables on the way to it (which held nothing else). For
        // more, forgetting all of stage 2 costs one broadcast instead of two for each; the combined entries
        // go either way.
        if broken.leaves == 1 && !broken.scattered {
            self.tlb.invalidate_ipa(self.stage2.root, Ipa(broken.at));
        } else {
            self.tlb.invalidate_all(self.stage2.root);
        }
        let mut table = broken.tables;
        for _ in 0..broken.table_count {
            let next = self.memory.read(Pa(table));
            self.source.release(Pa(table), TABLE_BYTES);
            self.stage2.table_bytes -= TABLE_BYTES;
            table = next;
        }
    }

    /// Calls `f` for each descriptor that ends a walk in a range.
    fn each(&mut self, start: u64, end: u64, mut f: impl FnMut(&mut Self, Step)) {
        let mut at = start;
        while at < end {
            let step = self.stage2.walk(self.memory, at);
            f(self, step);
            at = step.end();
        }
    }

    /// The first descriptor in a range that `matches`.
    fn first(&self, start: u64, end: u64, matches: impl Fn(&Step) -> bool) -> Option<Step> {
        let mut at = start;
        while at < end {
            let step = self.stage2.walk(self.memory, at);
            if matches(&step) {
                return Some(step);
            }
            at = step.end();
        }
        None
    }
}
