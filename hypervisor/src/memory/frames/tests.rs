use super::*;

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

fn frames(plan: &MemoryPlan) -> Frames {
    let metadata = vec![0x5555_5555_5555_5555; plan.metadata_words()];
    Frames::new(plan, Vec::leak(metadata)).unwrap()
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

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
