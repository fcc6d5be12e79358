use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn range(base: u64, size: u64) -> PaRange {
    PaRange::new(Pa(base), size)
}

fn plan(banks: &[(u64, u64)], reserved: &[(u64, u64)]) -> MemoryPlan {
    let mut plan = MemoryPlan::new();
    for &(base, size) in banks {
        plan.add(range(base, size)).unwrap();
    }
    for &(base, size) in reserved {
        plan.reserve(range(base, size)).unwrap();
    }
    plan
}

fn ranges(plan: &MemoryPlan) -> Vec<(u64, u64)> {
    plan.ranges().iter().map(|range| (range.base.0, range.base.0 + range.size)).collect()
}

/// An allocator whose metadata held anything before.
fn frames(plan: &MemoryPlan) -> Frames {
    let metadata = vec![0x5555_5555_5555_5555; plan.metadata_words()];
    Frames::new(plan, Vec::leak(metadata)).unwrap()
}

#[test]
fn one_bank_of_512_mib_gives_all_of_itself() {
    let mut frames = frames(&plan(&[(GIB, 512 * MIB)], &[]));
    assert_eq!(frames.free_bytes(), 512 * MIB);
    let blocks: Vec<Pa> = core::iter::from_fn(|| frames.alloc(2 * MIB, 2 * MIB)).collect();
    assert_eq!(blocks.len(), 256);
    assert_eq!((frames.free_bytes(), frames.used_bytes()), (0, 512 * MIB));
    assert_eq!(frames.alloc(PAGE_SIZE, PAGE_SIZE), None);
    for block in blocks {
        frames.free(block, 2 * MIB).unwrap();
    }
    assert_eq!(frames.free_bytes(), 512 * MIB);
    assert_eq!(frames.alloc(512 * MIB, 512 * MIB), Some(Pa(GIB)));
}

#[test]
fn banks_above_4_gib_are_used_and_the_hole_between_costs_nothing() {
    let plan = plan(&[(0x80_0000_0000, 8 * GIB), (GIB, 2 * GIB)], &[]);
    // 10 GiB in chunks of 2 MiB: a word for each 64 frames, 2 bits for each chunk. The hole has none.
    assert_eq!(plan.exact_metadata_words(), 5120 * 8 + 2 * (1024 + 4096) / 64);
    let mut frames = frames(&plan);
    assert_eq!(frames.total_bytes(), 10 * GIB);
    assert_eq!(frames.alloc(GIB, GIB), Some(Pa(GIB)));
    assert_eq!(frames.alloc(2 * GIB, GIB), Some(Pa(0x80_0000_0000)));
    assert_eq!(frames.alloc(6 * GIB, 2 * MIB), Some(Pa(0x80_8000_0000)));
    assert_eq!(frames.alloc(GIB, GIB), Some(Pa(2 * GIB)));
    assert_eq!(frames.free_bytes(), 0);
}

#[test]
fn banks_that_touch_or_overlap_are_one() {
    let banks = [(2 * GIB, GIB), (GIB, GIB), (2 * GIB + 512 * MIB, GIB), (8 * GIB, GIB)];
    let plan = plan(&banks, &[]);
    assert_eq!(ranges(&plan), [(GIB, 3 * GIB + 512 * MIB), (8 * GIB, 9 * GIB)]);
}

#[test]
fn a_bank_loses_parts_of_pages_and_what_cannot_be_mapped() {
    let banks = [(0x1800, 0x2000), (0x10_0001, 0xffe), (!0xfff, 0xfff), ((1 << 48) - GIB, 2 * GIB), (0, 0)];
    assert_eq!(ranges(&plan(&banks, &[])), [(0x2000, 0x3000), ((1 << 48) - GIB, 1 << 48)]);
}

#[test]
fn reservations_may_lie_anywhere() {
    let bank = (0x10_0000, 0x10_0000);
    for (reserved, left) in [
        // Outside, touching, and of no size.
        ((0, 0x10_0000), vec![(0x10_0000, 0x20_0000)]),
        ((0x20_0000, 0x1000), vec![(0x10_0000, 0x20_0000)]),
        ((0x18_0000, 0), vec![(0x10_0000, 0x20_0000)]),
        // Over the start, the end, the middle, all, and more than all.
        ((0, 0x10_0001), vec![(0x10_1000, 0x20_0000)]),
        ((0x1f_ffff, 0x1000), vec![(0x10_0000, 0x1f_f000)]),
        ((0x18_0800, 0x1000), vec![(0x10_0000, 0x18_0000), (0x18_2000, 0x20_0000)]),
        (bank, vec![]),
        ((0, u64::MAX), vec![]),
        ((0x18_0000, u64::MAX), vec![(0x10_0000, 0x18_0000)]),
    ] {
        assert_eq!(ranges(&plan(&[bank], &[reserved])), left, "{reserved:x?}");
    }
    // Across a hole, twice, overlapping.
    let two = plan(
        &[(0, 0x1_0000), (0x2_0000, 0x1_0000)],
        &[(0x8000, 0x2_0000), (0x8000, 0x2000), (0x7000, 0x2000)],
    );
    assert_eq!(ranges(&two), [(0, 0x7000), (0x2_8000, 0x3_0000)]);
}

#[test]
fn too_many_pieces_are_an_error_and_no_panic() {
    let mut plan = plan(&[(0, GIB)], &[]);
    let result: Result<Vec<()>, PlanError> =
        (0..MAX_RANGES as u64).map(|n| plan.reserve(range(n * 0x4000 + 0x2000, 0x1000))).collect();
    assert_eq!(result, Err(PlanError::TooManyRanges));
    assert!(PlanError::TooManyRanges.to_string().contains("64"));
}

#[test]
fn boot_code_carves_from_the_smallest_range_that_fits() {
    let mut plan = plan(&[(GIB, 512 * MIB)], &[(GIB + MIB, MIB)]);
    let small = plan.carve(100, 1).unwrap();
    assert_eq!(small, Pa(GIB), "the first MiB, and not the large rest");
    assert_eq!(plan.carve(2 * MIB, 2 * MIB), Some(Pa(GIB + 2 * MIB)));
    assert_eq!(plan.free_bytes(), 511 * MIB - PAGE_SIZE - 2 * MIB);
    assert_eq!(plan.carve(512 * MIB, 1), None);
    assert_eq!(plan.carve(u64::MAX, 1), None);
    assert_eq!(plan.carve(1, 1 << 63), None);
}

#[test]
fn metadata_carved_from_the_plan_is_large_enough_for_what_remains() {
    for base in [GIB, GIB + 0x3000, GIB + 2 * MIB - 0x1000] {
        for size in [64 * MIB, 128 * MIB, GIB] {
            for align in [PAGE_SIZE, 64 << 10, 2 * MIB, 4 * MIB] {
                for extra in [0, 0x5000, 2 * MIB] {
                    let mut plan = plan(&[(base, size), (4 * GIB, 8 * GIB)], &[]);
                    let words = plan.metadata_words();
                    let before = plan.free_bytes();
                    let taken = (words as u64 * 8 + extra).next_multiple_of(PAGE_SIZE);
                    let at = plan.carve(taken, align).unwrap();
                    assert!(at.is_aligned(align) && !plan.ranges().iter().any(|range| range.contains(at)));
                    let frames = Frames::new(&plan, Vec::leak(vec![0; words])).unwrap();
                    assert_eq!(frames.total_bytes(), before - taken);
                }
            }
        }
    }
}

#[test]
fn short_metadata_is_refused() {
    let plan = plan(&[(GIB, GIB)], &[]);
    let needed = plan.exact_metadata_words();
    let error = Frames::new(&plan, Vec::leak(vec![0; needed - 1])).unwrap_err();
    assert_eq!(error, FramesError::Metadata { needed, given: needed - 1 });
    assert!(Frames::new(&plan, Vec::leak(vec![0; needed])).is_ok());
}

#[test]
fn double_and_foreign_frees_are_refused_and_counted() {
    let mut frames = frames(&plan(&[(GIB, 64 * MIB)], &[(GIB + 8 * MIB, 0x1000)]));
    let page = frames.alloc(PAGE_SIZE, PAGE_SIZE).unwrap();
    let block = frames.alloc(4 * MIB, 2 * MIB).unwrap();
    let free = frames.free_bytes();
    let reserved = GIB + 8 * MIB;
    for (base, size, error) in [
        (page.0 + 1, PAGE_SIZE, FramesError::Misaligned(range(page.0 + 1, PAGE_SIZE))),
        (page.0, 0, FramesError::Misaligned(range(page.0, 0))),
        (page.0, 2 * PAGE_SIZE, FramesError::NotAllocated(range(page.0, 2 * PAGE_SIZE))),
        (block.0, 6 * MIB, FramesError::NotAllocated(range(block.0, 6 * MIB))),
        (reserved, PAGE_SIZE, FramesError::Foreign(range(reserved, PAGE_SIZE))),
        (
            reserved - PAGE_SIZE,
            2 * PAGE_SIZE,
            FramesError::Foreign(range(reserved - PAGE_SIZE, 2 * PAGE_SIZE)),
        ),
        (0, PAGE_SIZE, FramesError::Foreign(range(0, PAGE_SIZE))),
        (GIB + 64 * MIB, PAGE_SIZE, FramesError::Foreign(range(GIB + 64 * MIB, PAGE_SIZE))),
        (!0xfff, PAGE_SIZE, FramesError::Foreign(range(!0xfff, PAGE_SIZE))),
    ] {
        assert_eq!(frames.free(Pa(base), size), Err(error), "{base:#x} {size:#x}");
        assert!(!error.to_string().is_empty());
    }
    assert!(frames.free(page, u64::MAX).is_err());
    assert_eq!((frames.free_bytes(), frames.refused()), (free, 10));
    frames.free(page, 1).unwrap();
    assert!(frames.free(page, 1).is_err());
    frames.free(block, 4 * MIB).unwrap();
    assert_eq!((frames.used_bytes(), frames.refused()), (0, 11));
}

#[test]
fn a_run_may_be_given_back_in_pieces_and_neighbours_together() {
    let mut frames = frames(&plan(&[(GIB, 8 * MIB)], &[]));
    let run = frames.alloc(8 * MIB, 2 * MIB).unwrap();
    for page in (0..8 * MIB / PAGE_SIZE).rev() {
        frames.free(Pa(run.0 + page * PAGE_SIZE), PAGE_SIZE).unwrap();
    }
    let first = frames.alloc(PAGE_SIZE, PAGE_SIZE).unwrap();
    let second = frames.alloc(PAGE_SIZE, PAGE_SIZE).unwrap();
    assert_eq!(second.0, first.0 + PAGE_SIZE);
    frames.free(first, 2 * PAGE_SIZE).unwrap();
    assert_eq!(frames.alloc(8 * MIB, 2 * MIB), Some(run));
}

#[test]
fn small_runs_leave_whole_blocks_alone() {
    let mut frames = frames(&plan(&[(GIB, 64 * MIB)], &[]));
    let pages: Vec<Pa> = (0..512).map(|_| frames.alloc(PAGE_SIZE, PAGE_SIZE).unwrap()).collect();
    assert!(pages.iter().all(|page| page.0 < GIB + 2 * MIB));
    assert_eq!(frames.alloc(62 * MIB, 2 * MIB), Some(Pa(GIB + 2 * MIB)));
    frames.free(pages[7], PAGE_SIZE).unwrap();
    assert_eq!(frames.alloc(PAGE_SIZE, PAGE_SIZE), Some(pages[7]));
}

#[test]
fn requests_without_an_answer_are_none() {
    let mut frames = frames(&plan(&[(GIB, 64 * MIB)], &[]));
    for (size, align) in
        [(0, 4096), (4096, 0), (4096, 3), (u64::MAX, 4096), (4096, 1 << 63), (65 * MIB, 4096)]
    {
        assert_eq!(frames.alloc(size, align), None, "{size:#x} {align:#x}");
    }
    assert_eq!(frames.alloc(1, 1), Some(Pa(GIB)));
    assert_eq!(frames.alloc(4096, GIB), None, "the only place is taken");
    let mut frames = self::frames(&MemoryPlan::new());
    assert_eq!((frames.alloc(4096, 4096), frames.total_bytes()), (None, 0));
}

/// The model: the set of frames that are free, by frame number, and the zones.
struct Model {
    zones: Vec<(u64, u64)>,
    free: std::collections::BTreeSet<u64>,
}

impl Model {
    fn new(plan: &MemoryPlan) -> Self {
        let zones: Vec<(u64, u64)> =
            ranges(plan).into_iter().map(|(base, end)| (base / PAGE_SIZE, end / PAGE_SIZE)).collect();
        let free = zones.iter().flat_map(|(base, end)| *base..*end).collect();
        Self { zones, free }
    }

    fn within(&self, first: u64, count: u64) -> bool {
        self.zones.iter().any(|(base, end)| *base <= first && first + count <= *end)
    }

    fn is_free(&self, first: u64, count: u64) -> bool {
        self.within(first, count) && (first..first + count).all(|frame| self.free.contains(&frame))
    }

    /// Whether [`Frames::alloc`]'s contract allows a run at `first`.
    fn allows(&self, first: u64, count: u64, align: u64) -> bool {
        let chunk = CHUNK_FRAMES as u64;
        first.is_multiple_of(align.max(1))
            && if count < chunk && align <= chunk {
                first / chunk == (first + count - 1) / chunk && self.is_free(first, count)
            } else {
                first.is_multiple_of(chunk) && self.is_free(first, count.next_multiple_of(chunk))
            }
    }

    fn has_room(&self, count: u64, align: u64) -> bool {
        self.free.iter().any(|first| self.allows(*first, count, align))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        frames: u64,
        align_shift: u32,
    },
    /// Gives back a piece of what the n-th allocation gave: from `skip` frames on.
    Free {
        which: usize,
        skip: u64,
        frames: u64,
    },
    /// Any range, mostly wrong.
    FreeAny {
        frame: u64,
        frames: u64,
    },
    Claim {
        frame: u64,
        frames: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let count = || prop_oneof![Just(1u64), 1u64..20, Just(512), Just(511), Just(513), 1u64..1600];
    prop_oneof![
        5 => (count(), 0u32..12).prop_map(|(frames, align_shift)| Op::Alloc { frames, align_shift }),
        4 => (any::<usize>(), prop_oneof![Just(0u64), 0u64..600], prop_oneof![Just(u64::MAX), 1u64..600])
            .prop_map(|(which, skip, frames)| Op::Free { which, skip, frames }),
        1 => (0u64..8192, count()).prop_map(|(frame, frames)| Op::FreeAny { frame, frames }),
        1 => (0u64..8192, count()).prop_map(|(frame, frames)| Op::Claim { frame, frames }),
    ]
}

proptest! {
    #[test]
    fn frames_agree_with_a_set(
        ops in prop::collection::vec(op(), 1..60),
        banks in prop::collection::vec((0u64..6000, 1u64..3000), 1..4),
        reserved in prop::collection::vec((0u64..8192, 1u64..400), 0..4),
    ) {
        let pages = |list: &[(u64, u64)]| -> Vec<(u64, u64)> {
            list.iter().map(|(first, count)| (first * PAGE_SIZE, count * PAGE_SIZE)).collect()
        };
        let plan = plan(&pages(&banks), &pages(&reserved));
        // The plan itself against the definition: in a bank, and not reserved.
        let hit = |list: &[(u64, u64)], frame: u64| list.iter().any(|(first, count)| (*first..first + count).contains(&frame));
        let mut model = Model::new(&plan);
        for frame in 0..10_000 {
            let expected = hit(&banks, frame) && !hit(&reserved, frame);
            prop_assert_eq!(model.free.contains(&frame), expected, "frame {}", frame);
        }
        let mut frames = frames(&plan);
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut refused = 0;
        for op in ops {
            match op {
                Op::Alloc { frames: count, align_shift } => {
                    let align = 1 << align_shift;
                    match frames.alloc(count * PAGE_SIZE, align * PAGE_SIZE) {
                        Some(base) => {
                            let first = base.0 / PAGE_SIZE;
                            prop_assert!(model.allows(first, count, align), "{base} for {count} frames, align {align}");
                            (first..first + count).for_each(|frame| { model.free.remove(&frame); });
                            live.push((first, count));
                        }
                        None => prop_assert!(!model.has_room(count, align), "{count} frames, align {align}"),
                    }
                }
                Op::Free { which, skip, frames: count } => {
                    if live.is_empty() { continue; }
                    let (first, length) = live.swap_remove(which % live.len());
                    let start = first + skip.min(length - 1);
                    let count = count.min(first + length - start);
                    prop_assert_eq!(frames.free(Pa(start * PAGE_SIZE), count * PAGE_SIZE), Ok(()));
                    model.free.extend(start..start + count);
                    for (rest, end) in [(first, start), (start + count, first + length)] {
                        if rest < end { live.push((rest, end - rest)); }
                    }
                }
                Op::FreeAny { frame, frames: count } => {
                    let used = (frame..frame + count).all(|frame| !model.free.contains(&frame));
                    let allowed = model.within(frame, count) && used;
                    let result = frames.free(Pa(frame * PAGE_SIZE), count * PAGE_SIZE);
                    prop_assert_eq!(result.is_ok(), allowed);
                    refused += u64::from(!allowed);
                    if allowed {
                        model.free.extend(frame..frame + count);
                        // What had it has it no more: keep the rest of each.
                        live = live.iter().flat_map(|(first, length)| {
                            let end = first + length;
                            [(*first, end.min(frame)), (frame.max(*first).max(frame + count), end)]
                        }).filter(|(first, end)| first < end).map(|(first, end)| (first, end - first)).collect();
                    }
                }
                Op::Claim { frame, frames: count } => {
                    let result = frames.claim(range(frame * PAGE_SIZE, count * PAGE_SIZE));
                    prop_assert_eq!(result.is_ok(), model.is_free(frame, count));
                    if result.is_ok() {
                        (frame..frame + count).for_each(|frame| { model.free.remove(&frame); });
                        live.push((frame, count));
                    }
                }
            }
            prop_assert_eq!(frames.free_bytes(), model.free.len() as u64 * PAGE_SIZE);
            prop_assert_eq!(frames.used_bytes(), live.iter().map(|(_, count)| count * PAGE_SIZE).sum::<u64>());
            prop_assert_eq!(frames.refused(), refused);
        }
        for (first, count) in live {
            prop_assert_eq!(frames.free(Pa(first * PAGE_SIZE), count * PAGE_SIZE), Ok(()));
        }
        prop_assert_eq!(frames.used_bytes(), 0);
    }
}

#[test]
fn what_is_promised_goes_to_nobody_else_and_is_always_there_page_by_page() {
    let mut frames = frames(&plan(&[(GIB, 8 * MIB)], &[]));
    // Every second page is used, so that there are single pages alone.
    for at in (0..8 * MIB).step_by(2 * PAGE_SIZE as usize) {
        frames.claim(range(GIB + at, PAGE_SIZE)).unwrap();
    }
    assert_eq!(frames.reserve(4 * MIB + PAGE_SIZE), None, "more than there is");
    let mut mine = frames.reserve(3 * MIB - 1).unwrap();
    assert_eq!((mine.left(), frames.available_bytes(), frames.free_bytes()), (3 * MIB, MIB, 4 * MIB));
    assert_eq!(frames.alloc(2 * MIB, PAGE_SIZE), None);
    let others = core::iter::from_fn(|| frames.alloc(PAGE_SIZE, PAGE_SIZE)).count() as u64;
    assert_eq!(others, MIB / PAGE_SIZE, "no page that is promised");
    assert_eq!(frames.reserve(PAGE_SIZE), None);
    assert_eq!(
        frames.alloc_reserved(&mut mine, 2 * PAGE_SIZE, PAGE_SIZE),
        None,
        "none are beside each other"
    );
    assert_eq!(mine.left(), 3 * MIB, "and nothing was taken");
    let pages: Vec<Pa> =
        core::iter::from_fn(|| frames.alloc_reserved(&mut mine, PAGE_SIZE, PAGE_SIZE)).collect();
    assert_eq!((pages.len() as u64, mine.left()), (3 * MIB / PAGE_SIZE, 0));
    for page in &pages {
        frames.free_reserved(&mut mine, *page, PAGE_SIZE).unwrap();
    }
    assert_eq!((mine.left(), frames.available_bytes()), (3 * MIB, 0));
    assert!(frames.free_reserved(&mut mine, pages[0], PAGE_SIZE).is_err(), "freed twice");
    assert_eq!((mine.left(), frames.refused()), (3 * MIB, 1));
    frames.cancel(mine);
    assert_eq!(frames.available_bytes(), 3 * MIB);
}
