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

    /// Fills `bytes` from `base` on with zeros; both are multiples of 8. Whole pages may be done faster.
    fn zero(&self, base: Pa, bytes: u64);

    /// Copies `bytes` to physical memory from `to` on. Any alignment.
    fn copy_in(&self, to: Pa, bytes: &[u8]);

    /// Copies physical memory from `from` on into `bytes`. Any alignment.
    fn copy_out(&self, from: Pa, bytes: &mut [u8]);
}

/// Physical memory at the virtual address of the same value: EL2 with its identity map, or with its MMU off.
///
/// Accesses are volatile, naturally aligned and never exclusive, so all of this works before the MMU is on,
/// when memory is treated as Device and an unaligned access faults.
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

/// Size of a word in bytes.
const WORD: u64 = 8;

impl PhysMemory for Identity {
    #[inline]
    fn read(&self, at: Pa) -> u64 {
        // SAFETY: `Identity::new`'s caller promised that `at` is accessible here and not aliased by a reference.
        unsafe { core::ptr::with_exposed_provenance::<u64>(at.0 as usize).read_volatile() }
    }

    #[inline]
    fn write(&self, at: Pa, value: u64) {
        // SAFETY: as in `read`.
        unsafe { core::ptr::with_exposed_provenance_mut::<u64>(at.0 as usize).write_volatile(value) }
    }

    fn zero(&self, base: Pa, bytes: u64) {
        let mut at = base.0;
        for _ in 0..bytes / WORD {
            self.write(Pa(at), 0);
            at = at.wrapping_add(WORD);
        }
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        let mut at = to.0;
        let byte = |at: u64, value: u8| {
            // SAFETY: as in `read`.
            unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at as usize).write_volatile(value) }
        };
        // Words where the destination is aligned: an image of tens of MiB is copied at boot.
        let head = (at.wrapping_neg() % WORD) as usize;
        let (head, rest) = bytes.split_at_checked(head).unwrap_or((bytes, &[]));
        let (words, tail) = rest.as_chunks::<{ WORD as usize }>();
        for &value in head {
            byte(at, value);
            at = at.wrapping_add(1);
        }
        for word in words {
            self.write(Pa(at), u64::from_ne_bytes(*word));
            at = at.wrapping_add(WORD);
        }
        for &value in tail {
            byte(at, value);
            at = at.wrapping_add(1);
        }
    }

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        for (offset, value) in (0u64..).zip(bytes) {
            let at = from.0.wrapping_add(offset) as usize;
            // SAFETY: as in `read`.
            *value = unsafe { core::ptr::with_exposed_provenance::<u8>(at).read_volatile() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_copies_and_zeroes_at_any_alignment() {
        let mut buffer = vec![0xffff_ffff_ffff_ffffu64; 8].into_boxed_slice();
        let base = Pa(buffer.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: only `buffer`'s memory is reached, and its reference isn't used until the end.
        let memory = unsafe { Identity::new() };
        for start in 0..9 {
            for length in 0..30 {
                memory.zero(base, 64);
                let data: Vec<u8> = (1..=length).collect();
                memory.copy_in(Pa(base.0 + start), &data);
                let mut all = [0; 64];
                memory.copy_out(base, &mut all);
                let mut expected = [0; 64];
                expected[start as usize..][..length as usize].copy_from_slice(&data);
                assert_eq!(all, expected, "start {start}, length {length}");
            }
        }
        memory.write(Pa(base.0 + 8), 0x0123_4567_89ab_cdef);
        assert_eq!(memory.read(Pa(base.0 + 8)), 0x0123_4567_89ab_cdef);
        memory.zero(base, 64);
        assert_eq!(memory.read(Pa(base.0 + 8)), 0);
        drop(buffer);
    }
}
