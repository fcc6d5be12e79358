//! A queue of bytes of fixed size.

/// A queue of at most `N` bytes; `N` is a power of two.
#[derive(Debug)]
pub(super) struct Ring<const N: usize> {
    bytes: [u8; N],
    /// Bytes ever put in and taken out, modulo 2^32: the difference is what is inside.
    put: u32,
    taken: u32,
}

impl<const N: usize> Ring<N> {
    const MASK: usize = {
        assert!(N.is_power_of_two() && N <= 1 << 16);
        N - 1
    };

    pub(super) const fn new() -> Self {
        Ring { bytes: [0; N], put: 0, taken: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.put.wrapping_sub(self.taken) as usize
    }

    pub(super) const fn room(&self) -> usize {
        N - self.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.put == self.taken
    }

    /// Puts a byte at the end; `false`: it is full.
    pub(super) fn push(&mut self, byte: u8) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.bytes[self.put as usize & Self::MASK] = byte;
        self.put = self.put.wrapping_add(1);
        true
    }

    /// Takes the byte at the front.
    pub(super) fn pop(&mut self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let byte = self.bytes[self.taken as usize & Self::MASK];
        self.taken = self.taken.wrapping_add(1);
        Some(byte)
    }

    /// Throws away what is inside.
    pub(super) fn clear(&mut self) {
        self.taken = self.put;
    }

    /// How many bytes were ever put in, modulo 2^32: the position behind the last one.
    pub(super) const fn position(&self) -> u32 {
        self.put
    }

    /// How many bytes inside lie before `position`, which was the end at some time; none when it has passed.
    pub(super) const fn len_before(&self, position: u32) -> usize {
        let distance = position.wrapping_sub(self.taken) as usize;
        if distance <= self.len() { distance } else { 0 }
    }
}
