//! What page-table walkers and TLBs might have seen of a live stage 2: the most forgetful order of events that the
//! architecture allows.
//!
//! It assumes the worst: each descriptor is cached the moment that it becomes valid, on all CPUs, and stays so until
//! an invalidation that covers it comes after a barrier that comes after the descriptor was cleared. Against that, it
//! panics where a table write breaks a rule:
//!
//! - a valid descriptor changes into another valid one that a TLB may not have forgotten (break-before-make);
//! - a table is linked before its contents were published;
//! - a table's memory is given back while walkers may still use it;
//! - an operation ends with something cleared but not forgotten, or written but not published.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::address::{PAGE_SIZE, align_down};
use crate::memory::tables::{ADDRESS, is_table, is_valid, span};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// As it is in memory.
    Live,
    /// Cleared in memory, by a store that walkers may not see yet.
    Cleared,
    /// Cleared, and all walkers see that.
    Published,
}

#[derive(Clone, Copy, Debug)]
struct Table {
    /// The root of the VM whose table it is.
    root: u64,
    level: u8,
    base: u64,
    bytes: u64,
}

/// The descriptors that may be cached.
#[derive(Debug, Default)]
pub struct Walker {
    tables: BTreeMap<u64, Table>,
    cached: BTreeMap<u64, (u64, State)>,
    /// Those of them that are cleared in memory.
    pending: BTreeSet<u64>,
    unpublished: BTreeSet<u64>,
}

impl Walker {
    /// Starts watching an empty root, as no walker has seen it yet.
    pub fn watch(&mut self, root: u64, level: u8, bytes: u64) {
        self.unpublished.clear();
        self.tables.insert(root, Table { root, level, base: 0, bytes });
    }

    /// Forgets the VM with this root: its VMID has been released, and no CPU has its tables.
    pub fn unwatch(&mut self, root: u64) {
        let gone = |table: &Table| table.root == root;
        let tables = self.tables.clone();
        self.cached.retain(|at, _| {
            let (_, table) = tables.range(..=*at).next_back().expect("descriptor outside of all tables");
            !gone(table)
        });
        self.tables.retain(|_, table| !gone(table));
        self.pending.retain(|at| self.cached.contains_key(at));
    }

    /// Whether no table that is watched is in a range.
    pub fn is_elsewhere(&self, base: u64, bytes: u64) -> bool {
        self.table_of(base).is_none() && self.tables.range(base..base + bytes).next().is_none()
    }

    /// A whole page in which no table is was written.
    pub fn write_page(&mut self, base: u64) {
        self.unpublished.insert(base);
    }

    fn table_of(&self, at: u64) -> Option<(u64, Table)> {
        let (base, table) = self.tables.range(..=at).next_back()?;
        (at < base + table.bytes).then_some((*base, *table))
    }

    /// The level of the descriptor at `at` and the first address that it covers.
    fn place(&self, at: u64) -> Option<(u8, u64)> {
        let (base, table) = self.table_of(at)?;
        Some((table.level, table.base + (at - base) / 8 * span(table.level)))
    }

    /// A store of `value`; `read` gives memory's contents.
    pub fn write(&mut self, at: u64, value: u64, read: &dyn Fn(u64) -> u64) {
        self.unpublished.insert(align_down(at, PAGE_SIZE));
        if let Some((level, base)) = self.place(at) {
            let root = self.table_of(at).expect("it has a place").1.root;
            self.see(at, value, (root, level, base), read);
        }
    }

    fn see(&mut self, at: u64, value: u64, (root, level, base): (u64, u8, u64), read: &dyn Fn(u64) -> u64) {
        if !is_valid(value) {
            if let Some((_, state)) = self.cached.get_mut(&at)
                && *state == State::Live
            {
                *state = State::Cleared;
                self.pending.insert(at);
            }
            return;
        }
        if let Some((old, state)) = self.cached.get(&at) {
            assert!(
                *old == value && *state == State::Live,
                "no break-before-make: {at:#x} (address {base:#x}) from {old:#x} ({state:?}) to {value:#x}"
            );
        }
        self.cached.insert(at, (value, State::Live));
        if is_table(value, level) {
            let table = value & ADDRESS;
            assert!(
                !self.unpublished.contains(&table),
                "table {table:#x} was linked before it was published"
            );
            let known = self.tables.insert(table, Table { root, level: level + 1, base, bytes: PAGE_SIZE });
            assert!(known.is_none(), "table {table:#x} is linked twice");
            for index in 0..512 {
                let entry = table + index * 8;
                let place = (root, level + 1, base + index * span(level + 1));
                self.see(entry, read(entry), place, read);
            }
        }
    }

    /// `dsb ishst`.
    pub fn publish(&mut self) {
        self.unpublished.clear();
        for at in &self.pending {
            if let Some((_, state)) = self.cached.get_mut(at) {
                *state = State::Published;
            }
        }
    }

    /// An invalidation of one address of the VM with this root, or of all.
    pub fn invalidate(&mut self, root: u64, address: Option<u64>) {
        let mut gone = Vec::new();
        for at in &self.pending {
            let Some((descriptor, State::Published)) = self.cached.get(at) else { continue };
            let (level, base) = self.place(*at).expect("descriptor outside of all tables");
            let own = self.table_of(*at).is_some_and(|(_, table)| table.root == root);
            let covered = own && address.is_none_or(|address| address & !(span(level) - 1) == base);
            if covered {
                gone.push((*at, is_table(*descriptor, level).then_some(descriptor & ADDRESS)));
            }
        }
        for (at, _) in &gone {
            self.cached.remove(at);
            self.pending.remove(at);
        }
        for table in gone.into_iter().filter_map(|(_, table)| table) {
            let left = self.cached.range(table..table + PAGE_SIZE).count();
            assert_eq!(left, 0, "table {table:#x} is unreachable but entries of it may be cached");
            self.tables.remove(&table);
        }
    }

    /// A table's memory is given back.
    pub fn release(&self, base: u64) {
        assert!(!self.tables.contains_key(&base), "table {base:#x} is given back while walkers may use it");
    }

    /// Nothing is under way: all that may be cached is what memory holds.
    pub fn assert_settled(&self) {
        let pending: Vec<_> = self.pending.iter().map(|at| (at, self.cached[at].0)).collect();
        assert_eq!(pending, [], "cleared but may still be cached: where, and what");
        for page in &self.unpublished {
            assert!(self.table_of(*page).is_none(), "table {page:#x} has writes that are not published");
        }
    }
}
