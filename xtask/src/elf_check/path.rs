//! The longest way through a function that makes no call: how many instructions it takes, and of what kind.
//!
//! A function's fast path is the part that returns without having called anything. What leaves it by a branch or a call to another
//! function is the slow path, and doesn't count. A loop's instructions count once: in an exclusive access it is left
//! after one turn unless somebody else interferes. Encodings: Arm ARM DDI 0487, C4.1.

use std::collections::BTreeSet;

/// What is met on a way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Path {
    /// Instructions, the `ret` among them, but not the frame's.
    pub instructions: usize,
    /// Instructions that make the function's frame record and take it away: the price of backtraces, not of what it does.
    pub frame: usize,
    /// Atomic read-modify-writes: exclusive pairs, and those of FEAT_LSE.
    pub atomics: usize,
    /// DSB, DMB and ISB.
    pub barriers: usize,
}

/// Where an instruction leads to.
enum Next {
    On,
    Branch(u64),
    Either(u64),
    Return,
    Away,
}

/// The longest way from the first of `words` (address and instruction, of one function) to a `ret`; `None` if there is none.
pub fn longest(words: &[(u64, u32)]) -> Option<Path> {
    walk(words, 0, &mut BTreeSet::new())
}

fn walk(words: &[(u64, u32)], at: usize, seen: &mut BTreeSet<usize>) -> Option<Path> {
    let &(address, word) = words.get(at)?;
    if !seen.insert(at) {
        return None;
    }
    let mut to = |target: u64| {
        let index = words.binary_search_by_key(&target, |&(address, _)| address).ok()?;
        walk(words, index, seen)
    };
    let rest = match next(address, word) {
        Next::On => to(address + 4),
        Next::Branch(target) => to(target),
        Next::Either(target) => {
            [to(address + 4), to(target)].into_iter().flatten().max_by_key(|path| path.instructions)
        }
        Next::Return => Some(Path::default()),
        Next::Away => None,
    };
    seen.remove(&at);
    rest.map(|rest| Path {
        instructions: rest.instructions + usize::from(!is_frame(word)),
        frame: rest.frame + usize::from(is_frame(word)),
        atomics: rest.atomics + usize::from(is_atomic(word)),
        barriers: rest.barriers + usize::from(is_barrier(word)),
    })
}

/// Where a branch or a call goes to that names its target.
pub(super) fn target(address: u64, word: u32) -> Option<u64> {
    // A signed offset in words, of `bits` bits from bit `low` on.
    let offset = |low: u32, bits: u32| {
        let words = (word << (32 - low - bits)) as i32 >> (32 - bits);
        Some(address.wrapping_add_signed(i64::from(words) * 4))
    };
    match word {
        w if w >> 26 & 0x1f == 0b00_0101 => offset(0, 26), // B, BL
        w if w >> 24 == 0x54 => offset(5, 19),             // B.cond
        w if w >> 25 & 0x3f == 0b01_1010 => offset(5, 19), // CBZ, CBNZ
        w if w >> 25 & 0x3f == 0b01_1011 => offset(5, 14), // TBZ, TBNZ
        _ => None,
    }
}

fn next(address: u64, word: u32) -> Next {
    match (word, target(address, word)) {
        (w, _) if w >> 26 == 0b10_0101 => Next::Away, // BL
        (w, Some(target)) if w >> 26 == 0b00_0101 => Next::Branch(target),
        (_, Some(target)) => Next::Either(target),
        (w, None) => straight(w),
    }
}

/// What an instruction without a target leads to.
fn straight(word: u32) -> Next {
    match word {
        w if w & 0xffff_fc1f == 0xd65f_0000 => Next::Return,
        w if w >> 25 == 0b110_1011 => Next::Away, // BR, BLR, ERET
        w if w & 0xffe0_0000 == 0xd420_0000 => Next::Away, // BRK
        _ => Next::On,
    }
}

/// `stp x29, x30, [sp, #-16]!`, `mov x29, sp`, `ldp x29, x30, [sp], #16`.
fn is_frame(word: u32) -> bool {
    matches!(word, 0xa9bf_7bfd | 0x9100_03fd | 0xa8c1_7bfd)
}

fn is_barrier(word: u32) -> bool {
    word & 0xffff_f01f == 0xd503_301f && matches!(word >> 5 & 7, 4..=6)
}

fn is_atomic(word: u32) -> bool {
    // Bits 29:24, 23 (o2), 22 (L), 21 (o1).
    let exclusive_load = word & 0x3fe0_0000 == 0x0840_0000;
    let compare_and_swap = word & 0x3fa0_0000 == 0x08a0_0000;
    let operation = word & 0x3f20_0c00 == 0x3820_0000;
    exclusive_load || compare_and_swap || operation
}

#[cfg(test)]
mod tests {
    use super::*;

    const RET: u32 = 0xd65f_03c0;
    const NOP: u32 = 0xd503_201f;
    const LDXR: u32 = 0xc85f_7c2a; // ldxr x10, [x1]
    const STXR: u32 = 0xc80a_7c28; // stxr w10, x8, [x1]

    fn function(words: &[u32]) -> Vec<(u64, u32)> {
        words.iter().enumerate().map(|(n, &word)| (0x1000 + 4 * n as u64, word)).collect()
    }

    #[test]
    fn a_straight_line_ends_at_its_ret() {
        let path = longest(&function(&[NOP, NOP, RET, NOP])).unwrap();
        assert_eq!(path, Path { instructions: 3, ..Path::default() });
    }

    #[test]
    fn an_exclusive_pair_is_one_atomic_and_its_loop_counts_once() {
        let cbnz_back = 0x35ff_ffca; // cbnz w10, .-8
        let path = longest(&function(&[LDXR, STXR, cbnz_back, RET])).unwrap();
        assert_eq!(path, Path { instructions: 4, atomics: 1, ..Path::default() });
    }

    #[test]
    fn of_two_ways_the_longer_one_counts_and_one_with_a_call_does_not() {
        let cbz_3 = 0xb400_0069; // cbz x9, .+12
        let bl = 0x9400_0100;
        assert_eq!(longest(&function(&[cbz_3, NOP, RET, NOP, NOP, RET])).unwrap().instructions, 4);
        assert_eq!(longest(&function(&[cbz_3, NOP, RET, bl, NOP, RET])).unwrap().instructions, 3);
        let away = 0x1400_1000; // b to another function
        assert_eq!(longest(&function(&[cbz_3, NOP, RET, away])).unwrap().instructions, 3);
        assert_eq!(longest(&function(&[NOP, away])), None);
    }

    #[test]
    fn a_frame_is_counted_apart() {
        let path = longest(&function(&[0xa9bf_7bfd, 0x9100_03fd, NOP, 0xa8c1_7bfd, RET])).unwrap();
        assert_eq!(path, Path { instructions: 2, frame: 3, ..Path::default() });
    }

    #[test]
    fn barriers_and_the_atomics_of_lse_are_seen() {
        for barrier in [0xd503_3b9f, 0xd503_3bbf, 0xd503_3fdf] {
            assert_eq!(longest(&function(&[barrier, RET])).unwrap().barriers, 1);
        }
        let clrex = 0xd503_3f5f;
        assert_eq!(longest(&function(&[clrex, RET])).unwrap().barriers, 0);
        // cas x8, x9, [x1]; ldclr x8, x9, [x1]; swp x8, x9, [x1]
        for atomic in [0xc8a8_7c29, 0xf828_1029, 0xf828_8029] {
            assert!(longest(&function(&[atomic, RET])).unwrap().atomics == 1, "{atomic:#x}");
        }
        // ldr x8, [x1, x2]; ldar x8, [x1]; stlr x8, [x1]
        for plain in [0xf862_6828, 0xc8df_fc28, 0xc89f_fc28] {
            assert!(longest(&function(&[plain, RET])).unwrap().atomics == 0, "{plain:#x}");
        }
    }
}
