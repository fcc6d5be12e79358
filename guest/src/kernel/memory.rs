//! RAM behind the image, handed out once and never given back: each boot runs one load.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::mmu;
use crate::machine::{RAM_BASE, Region};

/// Memory that is still free.
pub struct Arena {
    next: usize,
    end: usize,
}

static END: AtomicU64 = AtomicU64::new(RAM_BASE);

/// The end of the RAM that is mapped.
pub fn end() -> u64 {
    END.load(Ordering::Relaxed)
}

impl Arena {
    /// What lies between the image and the end of `memory`, at most up to 2 GiB.
    ///
    /// # Safety
    /// To be made once; nothing else may use that memory (the device tree lies in it: it must not be read
    /// any more).
    pub unsafe fn new(memory: Region) -> Arena {
        let end = (memory.base + memory.size).min(2 * RAM_BASE);
        END.store(end, Ordering::Relaxed);
        Arena { next: mmu::image_end(), end: end as usize }
    }

    /// Bytes that are free.
    pub const fn free(&self) -> usize {
        self.end.saturating_sub(self.next)
    }

    /// Takes `n` values, each a copy of `value`, aligned to `align` bytes at least. `None`: not enough memory.
    pub fn take<T: Copy>(&mut self, n: usize, align: usize, value: T) -> Option<&'static mut [T]> {
        self.take_with(n, align, |_| value)
    }

    /// Keeps a value for good. `None`: not enough memory.
    pub fn keep<T>(&mut self, value: T) -> Option<&'static T> {
        let mut value = Some(value);
        self.take_with(1, 64, |_| value.take())?[0].as_ref()
    }

    /// Takes `n` values, made by `make` from their index.
    pub fn take_with<T>(
        &mut self,
        n: usize,
        align: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Option<&'static mut [T]> {
        let start = self.next.checked_next_multiple_of(align.max(align_of::<T>()))?;
        let end = start.checked_add(n.checked_mul(size_of::<T>())?).filter(|end| *end <= self.end)?;
        self.next = end;
        let at = start as *mut T;
        for i in 0..n {
            // SAFETY: `start..end` is mapped RAM that `new` gave to this arena alone, and was handed to nobody
            // before; it is aligned for T.
            unsafe { at.add(i).write(make(i)) };
        }
        // SAFETY: as above, and initialized now. It is never taken back.
        Some(unsafe { core::slice::from_raw_parts_mut(at, n) })
    }
}
