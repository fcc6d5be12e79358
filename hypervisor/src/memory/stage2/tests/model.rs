//! Random changes of a map against a list of intervals; all the while the checker in `fake::walker` watches each write.

use proptest::prelude::*;

use super::*;
use crate::memory::address::{BLOCK_1G, BLOCK_2M};

/// What should be mapped: intervals of guest addresses, ascending, apart.
#[derive(Clone, Debug, Default)]
struct Model {
    parts: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    start: u64,
    end: u64,
    pa: u64,
    attr: Attr,
}

impl Part {
    fn cut(self, start: u64, end: u64) -> Option<Part> {
        let (start, end) = (self.start.max(start), self.end.min(end));
        (start < end).then(|| Part { start, end, pa: self.pa + (start - self.start), ..self })
    }
}

impl Model {
    fn remove(&mut self, start: u64, end: u64) -> u64 {
        let gone =
            self.parts.iter().filter_map(|part| part.cut(start, end)).map(|part| part.end - part.start).sum();
        self.parts = self
            .parts
            .iter()
            .flat_map(|part| [part.cut(0, start), part.cut(end, u64::MAX)])
            .flatten()
            .collect();
        gone
    }

    fn insert(&mut self, part: Part) {
        self.parts.push(part);
        self.parts.sort_by_key(|part| part.start);
    }

    fn mapped(&self, start: u64, end: u64) -> Vec<Part> {
        self.parts.iter().filter_map(|part| part.cut(start, end)).collect()
    }

    fn first_hole(&self, start: u64, end: u64) -> Option<u64> {
        let mut at = start;
        for part in self.mapped(start, end) {
            if part.start > at {
                break;
            }
            at = part.end;
        }
        (at < end).then_some(at)
    }

    /// Neighbours that continue each other made into one.
    fn merged(parts: impl IntoIterator<Item = Part>) -> Vec<Part> {
        let mut merged: Vec<Part> = Vec::new();
        for part in parts {
            match merged.last_mut() {
                Some(last)
                    if last.end == part.start
                        && last.attr == part.attr
                        && last.pa + (last.end - last.start) == part.pa =>
                {
                    last.end = part.end;
                }
                _ => merged.push(part),
            }
        }
        merged
    }
}

#[derive(Clone, Debug)]
enum Op {
    Map { ipa: u64, pa: u64, size: u64, attr: Attr },
    Unmap { ipa: u64, size: u64 },
    Protect { ipa: u64, size: u64, attr: Attr },
    Replace { ipa: u64, pa: u64, attr: Attr },
    Split { ipa: u64 },
}

/// Addresses that lie close to each other and to the ends of tables.
fn address() -> impl Strategy<Value = u64> {
    let giant = prop_oneof![3 => Just(1u64), 1 => Just(2), 1 => Just(0), 1 => Just(3)];
    let block = prop_oneof![3 => Just(0u64), 2 => 0u64..4, 1 => Just(511)];
    let page = prop_oneof![4 => Just(0u64), 1 => 0u64..3, 1 => Just(511)];
    (giant, block, page).prop_map(|(giant, block, page)| giant * BLOCK_1G + block * BLOCK_2M + page * 4096)
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        (1u64..4).prop_map(|pages| pages * 4096),
        (1u64..4).prop_map(|blocks| blocks * BLOCK_2M),
        Just(BLOCK_2M - 4096),
        Just(BLOCK_2M + 4096),
        Just(BLOCK_1G),
        Just(BLOCK_1G + BLOCK_2M + 4096),
    ]
}

fn attr() -> impl Strategy<Value = Attr> {
    prop_oneof![
        Just(Attr::RAM),
        Just(Attr::RAM_READ_ONLY),
        Just(Attr::DEVICE),
        Just(Attr { kind: Kind::Normal, write: true, execute: false }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    // Most mappings have input and output alike, so that large blocks are common; large ones all do, or they would
    // take a quarter of a million pages.
    let map =
        (address(), address(), any::<bool>(), size(), attr()).prop_map(|(ipa, pa, alike, size, attr)| {
            let alike = alike || size >= BLOCK_1G;
            Op::Map { ipa, pa: 0x10_0000_0000 + if alike { ipa } else { pa }, size, attr }
        });
    prop_oneof![
        4 => map,
        2 => (address(), size()).prop_map(|(ipa, size)| Op::Unmap { ipa, size }),
        2 => (address(), size(), attr()).prop_map(|(ipa, size, attr)| Op::Protect { ipa, size, attr }),
        1 => (address(), address(), attr()).prop_map(|(ipa, pa, attr)| Op::Replace { ipa, pa, attr }),
        1 => address().prop_map(|ipa| Op::Split { ipa }),
    ]
}

/// Does `op` on the tables and, where that succeeded, on the model; checks the result.
fn step(world: &mut World, model: &mut Model, op: &Op) {
    let limit = 1 << 32;
    let range = |ipa: u64, size: u64| {
        if ipa + size > limit { Err(Stage2Error::OutOfRange) } else { Ok((ipa, ipa + size)) }
    };
    match *op {
        Op::Map { ipa, pa, size, attr } => {
            let expected = range(ipa, size).and_then(|(start, end)| match model.mapped(start, end).first() {
                Some(part) => Err(Stage2Error::AlreadyMapped(Ipa(part.start))),
                None => Ok(Part { start, end, pa, attr }),
            });
            let result = world.edit().map(Ipa(ipa), Pa(pa), size, attr);
            if result != Err(Stage2Error::OutOfMemory) {
                assert_eq!(result, expected.map(|_| ()));
            }
            if let (Ok(()), Ok(part)) = (result, expected) {
                model.insert(part);
            }
        }
        Op::Unmap { ipa, size } => {
            let result = world.edit().unmap(Ipa(ipa), size);
            if result != Err(Stage2Error::OutOfMemory) {
                assert_eq!(result, range(ipa, size).map(|(start, end)| model.remove(start, end)));
            }
        }
        Op::Protect { ipa, size, attr } => {
            let expected = range(ipa, size).and_then(|(start, end)| match model.first_hole(start, end) {
                Some(hole) => Err(Stage2Error::NotMapped(Ipa(hole))),
                None => Ok((start, end)),
            });
            let result = world.edit().protect(Ipa(ipa), size, attr);
            if result != Err(Stage2Error::OutOfMemory) {
                assert_eq!(result, expected.map(|_| ()));
            }
            if let (Ok(()), Ok((start, end))) = (result, expected) {
                let parts = model.mapped(start, end);
                model.remove(start, end);
                parts.into_iter().for_each(|part| model.insert(Part { attr, ..part }));
            }
        }
        Op::Replace { ipa, pa, attr } => {
            let result = world.edit().replace(Ipa(ipa), Pa(pa), attr);
            if result == Err(Stage2Error::OutOfMemory) {
                return;
            }
            let old = model.mapped(ipa, ipa + 4096).first().copied();
            assert_eq!(result, old.map(|part| Pa(part.pa)).ok_or(Stage2Error::NotMapped(Ipa(ipa))));
            if let Some(part) = old {
                model.remove(ipa, ipa + 4096);
                model.insert(Part { pa, attr, ..part });
            }
        }
        Op::Split { ipa } => {
            let result = world.edit().split(Ipa(ipa));
            if result == Err(Stage2Error::OutOfMemory) {
                return;
            }
            let mapped = !model.mapped(ipa, ipa + 4096).is_empty();
            assert_eq!(result.is_ok(), mapped);
            if mapped {
                assert_eq!(world.translate(ipa).map(|found| found.size), Some(4096));
            }
        }
    }
}

/// The whole map is what the model says, the TLBs hold nothing else, and tables are accounted for.
fn check(world: &World, model: &Model) {
    world.memory.assert_settled();
    let leaves = world.leaves();
    let found = leaves.iter().map(|leaf| {
        assert!(leaf.ipa.is_aligned(leaf.size) && leaf.pa.is_aligned(leaf.size));
        Part { start: leaf.ipa.0, end: leaf.ipa.0 + leaf.size, pa: leaf.pa.0, attr: leaf.attr }
    });
    assert_eq!(Model::merged(found), Model::merged(model.parts.iter().copied()));
    for part in &model.parts {
        for at in [part.start, part.start + 0x123, part.end - 1] {
            let found = world.translate(at).expect("mapped");
            assert_eq!((found.pa.0, found.attr), (part.pa + (at - part.start), part.attr));
        }
        if model.mapped(part.end, part.end + 1).is_empty() {
            assert_eq!(world.translate(part.end), None);
        }
    }
    assert_eq!(world.stage2.table_bytes(), world.source.live.values().sum::<u64>());
    // No table without a leaf: each table is the home of a leaf or on the way to one.
    let mut needed = std::collections::BTreeSet::new();
    for leaf in &leaves {
        if leaf.size < BLOCK_1G {
            needed.insert((2, leaf.ipa.0 / BLOCK_1G));
        }
        if leaf.size < BLOCK_2M {
            needed.insert((3, leaf.ipa.0 / BLOCK_2M));
        }
    }
    assert_eq!(world.stage2.table_bytes(), (1 + needed.len() as u64) * 4096);
}

proptest! {
    #[test]
    fn tables_agree_with_a_list_of_intervals(ops in prop::collection::vec(op(), 1..24), tight in any::<bool>()) {
        let budget = if tight { 5 * 4096 } else { u64::MAX };
        let mut world = World::with_budget(32, budget);
        let mut model = Model::default();
        for op in &ops {
            step(&mut world, &mut model, op);
            check(&world, &model);
        }
        let mapped: u64 = model.parts.iter().map(|part| part.end - part.start).sum();
        prop_assert_eq!(world.destroy(), mapped);
    }

    #[test]
    fn all_unmapped_is_only_the_root_left(ops in prop::collection::vec(op(), 1..16)) {
        let mut world = World::new(32);
        let mut model = Model::default();
        for op in &ops {
            step(&mut world, &mut model, op);
        }
        world.edit().unmap(Ipa(0), 1 << 32).unwrap();
        check(&world, &Model::default());
        prop_assert_eq!(world.stage2.table_bytes(), 4096);
    }
}
