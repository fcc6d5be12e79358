//! Shadow memory: a byte for each eight bytes of RAM, in full, or in the third gigabyte by pages that are mapped at the first access.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::mmu::{self, PAGE, PRIVATE_BASE, Root};
use crate::kernel::memory::{self, Arena};
use crate::machine::RAM_BASE;
use crate::shadow::allows;

const POISON: u8 = 0xff;
/// Pages that can be mapped: one covers 32 KiB of RAM.
const POOL: usize = 64;

/// Where the shadow of [`RAM_BASE`] is.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// The table of the shadow's first 2 MiB, the pages that are left for it, and how many are mapped.
static TABLE: AtomicUsize = AtomicUsize::new(0);
static PAGES: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Makes a shadow of all RAM, everything allowed. Returns its bytes; `None`: not enough memory.
pub fn full(arena: &mut Arena) -> Option<usize> {
    let bytes = (memory::end() - RAM_BASE) as usize / 8;
    let shadow = arena.take::<u8>(bytes, PAGE, 0)?;
    BASE.store(shadow.as_mut_ptr().addr(), Ordering::Relaxed);
    Some(bytes)
}

/// Makes a shadow of which nothing is mapped, for the first 16 MiB of RAM, and an address space that has it: to be switched to by
/// the caller. `None`: not enough memory.
pub fn by_page(arena: &mut Arena) -> Option<u64> {
    let pages = arena.take::<u8>(POOL * PAGE, PAGE, 0)?;
    let table = mmu::table(arena)?;
    let root = &mut arena.take::<Root>(1, 64, [0; 8])?[0];
    root[..2].copy_from_slice(&mmu::shared_kernel());
    root[2] = mmu::gigabyte(arena, PRIVATE_BASE, table)?;
    PAGES.store(pages.as_mut_ptr().addr(), Ordering::Relaxed);
    TABLE.store(table.as_mut_ptr().addr(), Ordering::Relaxed);
    BASE.store(PRIVATE_BASE, Ordering::Relaxed);
    Some(root.as_ptr().addr() as u64)
}

/// Bytes of shadow that have been mapped on demand.
pub fn mapped() -> usize {
    MAPPED.load(Ordering::Relaxed) * PAGE
}

/// Whether a fault at `address` was the shadow's, and a page is there now.
pub fn fault(address: usize) -> bool {
    let table = TABLE.load(Ordering::Relaxed);
    let index = address.wrapping_sub(PRIVATE_BASE) / PAGE;
    let n = MAPPED.load(Ordering::Relaxed);
    if table == 0 || index >= 512 || n >= POOL {
        return false;
    }
    MAPPED.store(n + 1, Ordering::Relaxed);
    let page = PAGES.load(Ordering::Relaxed) + n * PAGE;
    // SAFETY: an entry of the table that `by_page` made; it is used as an atomic alone.
    let entry = unsafe { &*((table + index * 8) as *const AtomicU64) };
    entry.store(mmu::own_data(page as u64), Ordering::Relaxed);
    mmu::publish();
    true
}

fn shadow_of(address: usize) -> *mut u8 {
    (BASE.load(Ordering::Relaxed) + (address - RAM_BASE as usize) / 8) as *mut u8
}

/// Whether an access of `bytes`, within eight aligned ones, is allowed.
#[inline(never)]
pub fn check(address: usize, bytes: usize) -> bool {
    // SAFETY: the shadow of RAM: there, or mapped by the fault's handler.
    allows(unsafe { shadow_of(address).read_volatile() }, address, bytes)
}

/// Forbids the eight bytes around an address.
pub fn poison(address: usize) {
    // SAFETY: as in `check`.
    unsafe { shadow_of(address).write_volatile(POISON) };
}
