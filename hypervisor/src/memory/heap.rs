//! The heap: memory for what is made at boot. Nothing on the path of an exit allocates.

use crate::sync::Mutex;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use linked_list_allocator::Heap;

/// The allocator behind `alloc`, empty until [`LockedHeap::init`].
pub struct LockedHeap(Mutex<Heap>);

impl LockedHeap {
    /// A heap without memory.
    pub const fn empty() -> LockedHeap {
        LockedHeap(Mutex::new(Heap::empty()))
    }

    /// Gives it `bytes` of memory from `base`.
    ///
    /// # Safety
    ///
    /// The memory is mapped for reading and writing, used by nothing else, and this is called once.
    pub unsafe fn init(&self, base: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.lock().init(base, bytes) }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.0.lock().used()
    }
}

/// The heap of the EL2 image.
#[cfg(target_os = "none")]
#[global_allocator]
pub static HEAP: LockedHeap = LockedHeap::empty();

// SAFETY: `Heap` hands out each piece of its memory once until it is given back, aligned as asked; the lock makes that hold
// for all CPUs.
unsafe impl GlobalAlloc for LockedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.lock().allocate_first_fit(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the caller gives back what `alloc` gave, with the same layout.
            unsafe { self.0.lock().deallocate(pointer, layout) }
        }
    }
}
