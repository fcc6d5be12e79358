//! Shadow memory: a byte for each eight bytes of RAM, in full, or in the third gigabyte by pages that are mapped at the first access, or with one
//! page that forbids everything for all memory but some.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::mmu::{self, PAGE, PRIVATE_BASE, Root};
use crate::kernel::memory::{self, Arena};
use crate::machine::RAM_BASE;
use crate::shadow::allows;
use crate::sync::Lock;

/// Bytes of RAM that a page of shadow covers.
pub const SPAN: usize = 8 * PAGE;
/// Pages of RAM whose shadow a table of pages covers.
const COVERED: usize = 512 * 8;

const POISON: u8 = 0xff;
/// Pages that can be mapped: one covers 32 KiB of RAM.
const POOL: usize = 64;

/// Where the shadow of [`RAM_BASE`] is.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// The table of the shadow's first 2 MiB, the pages that are left for it, and how many are mapped.
static TABLE: AtomicUsize = AtomicUsize::new(0);
static PAGES: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Held while a page is mapped: several vCPUs may miss one at once.
static MAPPING: Lock<()> = Lock::new(());
/// A byte for each page of RAM: whether it may be used though its shadow forbids it ([`common`]).
static WHOLE: AtomicUsize = AtomicUsize::new(0);

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
    PAGES.store(pages.as_mut_ptr().addr(), Ordering::Relaxed);
    TABLE.store(table.as_mut_ptr().addr(), Ordering::Relaxed);
    space(arena, table)
}

/// Makes a shadow of the first 16 MiB of RAM of which only `own` has pages of its own, everything allowed; that of all other memory is
/// one page that forbids everything, so that [`check_common`] has to look up whether the page of RAM may be used. Returns an address space
/// as [`by_page`] does. `None`: not enough memory, or `own` isn't there.
pub fn common(arena: &mut Arena, own: Range<usize>) -> Option<u64> {
    let table = mmu::table(arena)?;
    let poisoned = arena.take::<u8>(PAGE, PAGE, POISON)?;
    table.fill(mmu::own_data(poisoned.as_ptr().addr() as u64));
    let base = RAM_BASE as usize;
    let spans = (own.start - base) / SPAN..(own.end - base).div_ceil(SPAN);
    for entry in table.get_mut(spans.clone())? {
        *entry = mmu::own_data(arena.take::<u8>(PAGE, PAGE, 0)?.as_mut_ptr().addr() as u64);
    }
    let whole = arena.take_with(COVERED, PAGE, |page| u8::from(!spans.contains(&(page / 8))))?;
    WHOLE.store(whole.as_mut_ptr().addr(), Ordering::Relaxed);
    MAPPED.store(spans.len() + 1 + COVERED / PAGE, Ordering::Relaxed);
    space(arena, table)
}

/// An address space that has the shadow whose pages are in `table`.
fn space(arena: &mut Arena, table: &[u64]) -> Option<u64> {
    let root = &mut arena.take::<Root>(1, 64, [0; 8])?[0];
    root[..2].copy_from_slice(&mmu::shared_kernel());
    root[2] = mmu::gigabyte(arena, PRIVATE_BASE, table)?;
    BASE.store(PRIVATE_BASE, Ordering::Relaxed);
    Some(root.as_ptr().addr() as u64)
}

/// Bytes of shadow that have been mapped, on demand or by [`common`], whose table of pages is counted too.
pub fn mapped() -> usize {
    MAPPED.load(Ordering::Relaxed) * PAGE
}

/// Whether a fault at `address` was the shadow's, and a page is there now.
pub fn fault(address: usize) -> bool {
    let table = TABLE.load(Ordering::Relaxed);
    let index = address.wrapping_sub(PRIVATE_BASE) / PAGE;
    if table == 0 || index >= 512 {
        return false;
    }
    let _guard = MAPPING.lock();
    // SAFETY: an entry of the table that `by_page` made; it is used as an atomic alone.
    let entry = unsafe { &*((table + index * 8) as *const AtomicU64) };
    if entry.load(Ordering::Relaxed) != 0 {
        // Another vCPU was first.
        return true;
    }
    let n = MAPPED.load(Ordering::Relaxed);
    if n >= POOL {
        return false;
    }
    MAPPED.store(n + 1, Ordering::Relaxed);
    let page = PAGES.load(Ordering::Relaxed) + n * PAGE;
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

/// As [`check`], for a shadow of [`common`].
#[inline(never)]
pub fn check_common(address: usize, bytes: usize) -> bool {
    // SAFETY: as in `check`.
    allows(unsafe { shadow_of(address).read_volatile() }, address, bytes) || whole_page(address)
}

/// The slow check: whether the page may be used though its shadow forbids it.
#[cold]
#[inline(never)]
fn whole_page(address: usize) -> bool {
    // SAFETY: `common` made the table, which covers all memory that it has shadow of.
    unsafe { state_of(address).read_volatile() != 0 }
}

fn state_of(address: usize) -> *mut u8 {
    (WHOLE.load(Ordering::Relaxed) + (address - RAM_BASE as usize) / PAGE) as *mut u8
}

/// Forbids pages of RAM whose shadow is the common page.
pub fn forbid_pages(memory: Range<usize>) {
    for page in memory.step_by(PAGE) {
        // SAFETY: as in `whole_page`.
        unsafe { state_of(page).write_volatile(0) };
    }
}

/// Allows so many words of eight bytes from an aligned address on. They have shadow of their own.
pub fn allow_words(address: usize, words: usize) {
    // SAFETY: as in `check`; no Rust object is there.
    unsafe { shadow_of(address).write_bytes(0, words) };
}

/// Forbids them.
pub fn forbid_words(address: usize, words: usize) {
    // SAFETY: as in `allow_words`.
    unsafe { shadow_of(address).write_bytes(POISON, words) };
}
