//! Runs of bits in slices of words: the arithmetic below the frame allocator.
//!
//! Bit `n` is bit `n % 64` of word `n / 64`. Ranges outside of a slice read as clear and are not written, so
//! nothing here panics.

/// Calls `f` with each word index and mask of the `count` bits from `from` on, until it returns false.
#[inline]
fn for_each_mask(from: usize, count: usize, mut f: impl FnMut(usize, u64) -> bool) -> bool {
    let mut bit = from;
    let mut left = count;
    while left > 0 {
        let low = bit % 64;
        let n = left.min(64 - low);
        if !f(bit / 64, (u64::MAX >> (64 - n)) << low) {
            return false;
        }
        bit += n;
        left -= n;
    }
    true
}

/// Sets `count` bits from `from` on.
pub fn set(words: &mut [u64], from: usize, count: usize) {
    for_each_mask(from, count, |index, mask| {
        if let Some(word) = words.get_mut(index) {
            *word |= mask;
        }
        true
    });
}

/// Clears `count` bits from `from` on.
pub fn clear(words: &mut [u64], from: usize, count: usize) {
    for_each_mask(from, count, |index, mask| {
        if let Some(word) = words.get_mut(index) {
            *word &= !mask;
        }
        true
    });
}

/// Whether bit `at` is set.
#[inline]
pub fn get(words: &[u64], at: usize) -> bool {
    words.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
}

/// Whether all `count` bits from `from` on are set.
pub fn all_set(words: &[u64], from: usize, count: usize) -> bool {
    for_each_mask(from, count, |index, mask| words.get(index).is_some_and(|word| word & mask == mask))
}

/// Whether all `count` bits from `from` on are clear.
pub fn all_clear(words: &[u64], from: usize, count: usize) -> bool {
    for_each_mask(from, count, |index, mask| words.get(index).is_none_or(|word| word & mask == 0))
}

/// The first bit in `from..to` that is set (`wanted`) or clear (not `wanted`). Long empty stretches are common, so this
/// takes few instructions for each word.
fn first(words: &[u64], from: usize, to: usize, wanted: bool) -> Option<usize> {
    let flip = if wanted { 0 } else { u64::MAX };
    let mut mask = u64::MAX << (from % 64);
    for index in from / 64..to.div_ceil(64) {
        let hits = (words.get(index).copied().unwrap_or(0) ^ flip) & mask;
        if hits != 0 {
            let bit = index * 64 + hits.trailing_zeros() as usize;
            return (bit < to).then_some(bit);
        }
        mask = u64::MAX;
    }
    None
}

/// The first set bit in `from..to`.
pub fn first_set(words: &[u64], from: usize, to: usize) -> Option<usize> {
    first(words, from, to, true)
}

/// The first run of `count` set bits below `len` that starts where `phase + bit` is a multiple of `align` (a
/// power of two).
pub fn find_run(words: &[u64], len: usize, count: usize, align: u64, phase: u64) -> Option<usize> {
    let mut at = 0;
    loop {
        at = first_set(words, at, len)?;
        let aligned = super::super::address::align_up(phase.checked_add(at as u64)?, align)?;
        let start = usize::try_from(aligned - phase).ok()?;
        let end = start.checked_add(count)?;
        if end > len {
            return None;
        }
        match first(words, start, end, false) {
            None => return Some(start),
            Some(obstacle) => at = obstacle + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_agree_with_a_vector_of_flags(
            ops in prop::collection::vec((any::<bool>(), 0usize..200, 0usize..150), 0..12),
            count in 1usize..70, align in 0u32..8, phase in 0u64..300,
        ) {
            let mut words = [0u64; 4];
            let mut model = [false; 256];
            for (on, from, n) in ops {
                if on { set(&mut words, from, n) } else { clear(&mut words, from, n) }
                for flag in model.iter_mut().skip(from).take(n) { *flag = on; }
            }
            let align = 1u64 << align;
            for (at, flag) in model.iter().enumerate() {
                prop_assert_eq!(get(&words, at), *flag);
                let end = (at + count).min(256);
                prop_assert_eq!(all_set(&words, at, end - at), model[at..end].iter().all(|f| *f));
                prop_assert_eq!(all_clear(&words, at, end - at), model[at..end].iter().all(|f| !*f));
            }
            for from in [0, 1, 63, 64, 100] {
                for to in [0, 1, 64, 127, 128, 200, 256] {
                    let expected = (from..to).find(|at| model[*at]);
                    prop_assert_eq!(first_set(&words, from, to), expected, "{} {}", from, to);
                }
            }
            let expected = (0..=256 - count)
                .find(|start| (phase + *start as u64).is_multiple_of(align) && model[*start..][..count].iter().all(|f| *f));
            prop_assert_eq!(find_run(&words, 256, count, align, phase), expected);
        }
    }

    #[test]
    fn bits_outside_of_the_slice_are_clear_and_stay_unwritten() {
        let mut words = [0u64; 1];
        set(&mut words, 60, 100);
        assert_eq!(words, [0xf << 60]);
        assert!(!get(&words, 64) && !all_set(&words, 60, 5) && all_clear(&words, 64, 5));
        clear(&mut words, 62, 100);
        assert_eq!(words, [0x3 << 60]);
        assert_eq!(find_run(&words, 1000, 3, 1, 0), None);
    }
}
