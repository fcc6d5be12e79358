//! Looking for words in what a guest says.
//!
//! Linux that panics and is not to restart by itself (`panic=0`) says so in a last line and then spins for ever, its timer still
//! ticking: nothing else tells it from one that works. (Debian's kernels have no driver for a pvpanic device.) The line is
//! the same in all versions: `---[ end Kernel panic - not syncing: REASON ]---`, at the end of the kernel's panic().
//! And a run may be to end when its guest has come somewhere (`vm.until`).

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a kernel says that has given up.
pub(super) const LAST_WORDS: &[u8] = b"[_end_Kernel_panic_-_not_syncing";

/// A search that goes on from piece to piece of one VM's text: how much of the words has come. Only who has the console's lock
/// searches, so there is nothing to order.
#[derive(Debug)]
pub(super) struct Search(AtomicUsize);

impl Search {
    pub(super) const fn new() -> Self {
        Search(AtomicUsize::new(0))
    }

    /// Whether this piece completes the words, which are the same each time. They have `_` for each space, as the machine's command line
    /// has none within a word; the text may have either.
    pub(super) fn complete(&self, words: &[u8], piece: &[u8]) -> bool {
        let mut complete = false;
        let mut matched = self.0.load(Relaxed);
        for byte in piece.iter().map(|&byte| if byte == b' ' { b'_' } else { byte }) {
            while words.get(matched) != Some(&byte) && matched > 0 {
                matched = begun_again(words, matched);
            }
            matched += usize::from(words.get(matched) == Some(&byte));
            if matched == words.len() && matched > 0 {
                complete = true;
                matched = 0;
            }
        }
        self.0.store(matched, Relaxed);
        complete
    }
}

/// Of the first `matched` bytes of the words, how many at their end begin the words again. The words are short, and this is asked where
/// text begins like them and isn't them.
fn begun_again(words: &[u8], matched: usize) -> usize {
    let came = words.get(..matched).unwrap_or_default();
    (0..matched).rev().find(|&length| came.ends_with(words.get(..length).unwrap_or_default())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(words: &[u8], text: &[u8]) -> bool {
        Search::new().complete(words, text)
    }

    #[test]
    fn the_words_are_found_wherever_the_text_is_cut() {
        let text = b"[    9.1] ---[ end Kernel panic - not syncing: sysrq ]---\r\n";
        for cut in 0..text.len() {
            let search = Search::new();
            let (first, second) =
                (search.complete(LAST_WORDS, &text[..cut]), search.complete(LAST_WORDS, &text[cut..]));
            assert!(first != second, "{cut}");
        }
    }

    #[test]
    fn other_words_are_not_taken_for_them() {
        for text in [
            "Kernel panic - not syncing: Attempted to kill init!",
            "---[ end trace 0000000000000000 ]---",
            "[ end Kernel panic - not",
            "[ end [ end Kernel panik",
            "",
        ] {
            assert!(!found(LAST_WORDS, text.as_bytes()), "{text}");
        }
        assert!(found(LAST_WORDS, b"[ end [[ end Kernel panic - not syncing"));
        let search = Search::new();
        assert!(!search.complete(LAST_WORDS, b"[ end Ker"));
        assert!(!search.complete(LAST_WORDS, b"\r\n"), "another line begins");
        assert!(!search.complete(LAST_WORDS, b"nel panic - not syncing"));
        assert!(!found(b"", b"text"), "nothing is never found");
        assert!(found(b"Run_/init", b"[1.0] Run /init as init process") && found(b"a_b", b"a_b"));
    }

    proptest! {
        /// Few letters, so that words begin within themselves.
        #[test]
        fn words_are_found_where_they_are(words in "[ab]{1,5}", text in "[ab]{0,20}", cut in 0usize..20) {
            let (words, text) = (words.as_bytes(), text.as_bytes());
            let there = text.windows(words.len()).any(|window| window == words);
            let search = Search::new();
            let (first, second) = text.split_at(cut.min(text.len()));
            let both = [search.complete(words, first), search.complete(words, second)];
            prop_assert_eq!(both.contains(&true), there);
        }
    }
}
