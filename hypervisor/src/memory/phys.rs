//! How software reaches physical memory.
//!
//! Code that builds tables or loads guests names memory by its [`Pa`] and reaches it through
//! [`PhysMemory`], so that the same code runs on the host against a fake. On the machine the
//! implementation is [`Identity`], or one that wraps it and zeroes with `DC ZVA` once caches are on: `DC ZVA`
//! faults on memory that is treated as Device, which is all memory while the MMU is off (Arm ARM D8.2.12).

use super::address::Pa;

/// Access to physical memory.
///
/// Callers pass addresses of memory that they own: frames that they allocated, or ranges that the device
/// tree and the bundle gave them. An implementation may rely on that.
pub trait PhysMemory {
    /// Reads the 64-bit word at `at` (a multiple of 8) in one access, as a table walk would.
    fn read(&self, at: Pa) -> u64;

    /// Writes the 64-bit word at `at` (a multiple of 8) in one access, so that a table walker on any CPU
    /// sees the old or the new value and nothing between (Arm ARM B2.2.1).
    fn write(&self, at: Pa, value: u64);

    /// Reads the 16-bit word at `at` (a multiple of 2) in one access: a ring's index that a guest may be writing.
    fn read16(&self, at: Pa) -> u16;

    /// Writes the 16-bit word at `at` (a multiple of 2) in one access.
    fn write16(&self, at: Pa, value: u16);

    /// Fills `bytes` from `base` on with zeros; both are multiples of 8. Whole pages may be done faster.
    fn zero(&self, base: Pa, bytes: u64);

    /// Copies `bytes` to physical memory from `to` on. Any alignment.
    fn copy_in(&self, to: Pa, bytes: &[u8]);

    /// Copies physical memory from `from` on into `bytes`. Any alignment.
    fn copy_out(&self, from: Pa, bytes: &mut [u8]);

    /// Lets guests find what was written in a range, even those that go past the caches, as one does that has its MMU off:
    /// cache maintenance as far as the CPU needs it. `code`: guests execute what was written there, and did not write it themselves.
    fn settle(&self, base: Pa, bytes: u64, code: bool);
}

/// Physical memory at the virtual address of the same value: EL2 with its identity map, or with its MMU off.
///
/// Accesses are naturally aligned (the target is compiled with `strict-align`, `memcpy` and `memset` included) and never
/// exclusive, so all of this works before the MMU is on, when memory is treated as Device and an unaligned access faults.
#[derive(Clone, Copy, Debug)]
pub struct Identity(());

impl Identity {
    /// # Safety
    ///
    /// From now on, each physical address that is passed to a method of the value must be accessible at the
    /// virtual address of the same value, and must not be memory that Rust references point into: frames,
    /// tables under construction, guests' memory.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// Words that are copied at a time.
const LINE_WORDS: usize = 8;

fn pointer<T>(at: Pa) -> *mut T {
    core::ptr::with_exposed_provenance_mut(at.0 as usize)
}

impl PhysMemory for Identity {
    #[inline]
    fn read(&self, at: Pa) -> u64 {
        // SAFETY: `Identity::new`'s caller promised that `at` is accessible here and not aliased by a reference. Volatile,
        // so that it is one access.
        unsafe { pointer::<u64>(at).read_volatile() }
    }

    #[inline]
    fn write(&self, at: Pa, value: u64) {
        // SAFETY: as in `read`.
        unsafe { pointer::<u64>(at).write_volatile(value) }
    }

    #[inline]
    fn read16(&self, at: Pa) -> u16 {
        // SAFETY: as in `read`.
        unsafe { pointer::<u16>(at).read_volatile() }
    }

    #[inline]
    fn write16(&self, at: Pa, value: u16) {
        // SAFETY: as in `read`.
        unsafe { pointer::<u16>(at).write_volatile(value) }
    }

    fn zero(&self, base: Pa, bytes: u64) {
        // SAFETY: as in `read`, for all of the range.
        unsafe { pointer::<u8>(base).write_bytes(0, bytes as usize) }
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        // SAFETY: any bytes make integers.
        let (head, lines, tail) = unsafe { bytes.align_to::<[u64; LINE_WORDS]>() };
        let plain = |to: Pa, bytes: &[u8]| {
            // SAFETY: as in `read`; `bytes` is a reference, so the range doesn't overlap it.
            unsafe { pointer::<u8>(to).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        };
        let mut at = Pa(to.0.wrapping_add(head.len() as u64));
        if !at.is_aligned(size_of::<u64>() as u64) {
            return plain(to, bytes);
        }
        // Source and destination are aligned alike, as images in a bundle should be. A line at a time takes half of the
        // instructions of `memcpy`, for images of tens of MiB. (Not as an array: that becomes a call of `memcpy`.)
        plain(to, head);
        for line in lines {
            for &word in line {
                self.write(at, word);
                at = Pa(at.0.wrapping_add(size_of::<u64>() as u64));
            }
        }
        plain(at, tail);
    }

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        // SAFETY: as in `copy_in`.
        unsafe { pointer::<u8>(from).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Nothing: it knows of no guests.
    fn settle(&self, _base: Pa, _bytes: u64, _code: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_copies_and_zeroes_at_any_alignment() {
        const BYTES: usize = 256;
        let mut buffer = vec![u64::MAX; BYTES / 8].into_boxed_slice();
        let base = Pa(buffer.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: only `buffer`'s memory is reached, and its reference isn't used until the end.
        let memory = unsafe { Identity::new() };
        let source: Vec<u64> = (1..=32).map(|n: u64| n.wrapping_mul(0x0123_4567_89ab_cdef)).collect();
        let source: Vec<u8> = source.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for skip in 0..9 {
            for start in 0..9 {
                for length in (0..40).chain(60..80).chain(120..150).chain([200]) {
                    memory.zero(base, BYTES as u64);
                    let data = &source[skip..][..length];
                    memory.copy_in(Pa(base.0 + start as u64), data);
                    let mut all = [0xff; BYTES];
                    memory.copy_out(base, &mut all);
                    let mut expected = [0; BYTES];
                    expected[start..][..length].copy_from_slice(data);
                    assert_eq!(all, expected, "from {skip}, to {start}, length {length}");
                }
            }
        }
        memory.write(Pa(base.0 + 8), 0x0123_4567_89ab_cdef);
        assert_eq!(memory.read(Pa(base.0 + 8)), 0x0123_4567_89ab_cdef);
        memory.write16(Pa(base.0 + 10), 0xabcd);
        assert_eq!(memory.read(Pa(base.0 + 8)), 0x0123_4567_abcd_cdef);
        assert_eq!(memory.read16(Pa(base.0 + 14)), 0x0123);
        memory.zero(base, 64);
        assert_eq!(memory.read(Pa(base.0 + 8)), 0);
        drop(buffer);
    }
}
