//! Seeing on the console that a guest has given itself up.
//!
//! Linux that panics and is not to restart by itself (`panic=0`) says so in a last line and then spins for ever, its timer still
//! ticking: nothing else tells it from one that works. (Debian's kernels have no driver for a pvpanic device.) The line is
//! the same in all versions: `---[ end Kernel panic - not syncing: REASON ]---`, at the end of the kernel's panic().

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is looked for. Its first byte occurs in it once, so that a mismatch begins anew at most at that byte.
const LAST_WORDS: &[u8] = b"[ end Kernel panic - not syncing";

/// A search that goes on from piece to piece of one VM's text: how much of the words has come. Only who has the console's lock
/// searches, so there is nothing to order.
#[derive(Debug)]
pub(super) struct LastWords(AtomicUsize);

impl LastWords {
    pub(super) const fn new() -> Self {
        LastWords(AtomicUsize::new(0))
    }

    /// Whether this piece completes the words.
    pub(super) fn complete(&self, piece: &[u8]) -> bool {
        let mut complete = false;
        let mut matched = self.0.load(Relaxed);
        for &byte in piece {
            if LAST_WORDS.get(matched) != Some(&byte) {
                matched = usize::from(byte == LAST_WORDS[0]);
                continue;
            }
            matched += 1;
            if matched == LAST_WORDS.len() {
                complete = true;
                matched = 0;
            }
        }
        self.0.store(matched, Relaxed);
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_found_wherever_the_text_is_cut() {
        let text = b"[    9.1] ---[ end Kernel panic - not syncing: sysrq ]---\r\n";
        for cut in 0..text.len() {
            let words = LastWords::new();
            let (first, second) = (words.complete(&text[..cut]), words.complete(&text[cut..]));
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
            assert!(!LastWords::new().complete(text.as_bytes()), "{text}");
        }
        assert!(LastWords::new().complete(b"[ end [[ end Kernel panic - not syncing"));
        let words = LastWords::new();
        assert!(!words.complete(&LAST_WORDS[..9]));
        assert!(!words.complete(b"\r\n"), "another line begins");
        assert!(!words.complete(&LAST_WORDS[9..]));
    }
}
