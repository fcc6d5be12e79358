//! Stage 1 (Arm ARM D8): an identity map of devices (0 to 1 GiB) and RAM (1 to 2 GiB), global, shared by all
//! address spaces; and for each process a third gigabyte, its own, under its ASID.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::cpu::{isb, write_register};
use crate::kernel::memory::Arena;
use crate::machine::{RAM_BASE, Region};

/// Where a process' own pages begin.
pub const PRIVATE_BASE: usize = 0x8000_0000;
/// Bytes in a page.
pub const PAGE: usize = 4096;
const BLOCK: u64 = 2 << 20;

const TABLE: u64 = 3;
const NO_EXECUTE: u64 = 3 << 53;
const USER_NO_EXECUTE: u64 = 1 << 54;
const READ_ONLY: u64 = 1 << 7;
/// Device nGnRE, accessed, read-write.
const DEVICE_BLOCK: u64 = 0x405 | NO_EXECUTE;
/// Write-back, inner shareable, accessed, read-write.
const PAGE_NORMAL: u64 = 0x703;
const NOT_GLOBAL: u64 = 1 << 11;
const USER: u64 = 1 << 6;
const KERNEL_NO_EXECUTE: u64 = 1 << 53;

unsafe extern "C" {
    static kernel_device_table: [AtomicU64; 512];
    static kernel_ram_table: [AtomicU64; 512];
    static kernel_image_table: [AtomicU64; 512];
    static kernel_root: [AtomicU64; 4];
    static __image_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
}

/// The first address behind the image, page aligned.
pub fn image_end() -> usize {
    &raw const __image_end as usize
}

fn device_table() -> &'static [AtomicU64; 512] {
    // SAFETY: defined in boot.S, and only accessed as atomics.
    unsafe { &kernel_device_table }
}

/// Makes changed entries of tables visible to the walker of this CPU.
pub fn publish() {
    // SAFETY: barriers: the table walker sees the entries.
    unsafe { asm!("dsb ishst", "isb", options(nostack)) };
}

/// Maps a device's region. False if it doesn't lie below 1 GiB.
#[must_use]
pub fn map_device(region: Region) -> bool {
    let Some(end) = region.base.checked_add(region.size).filter(|end| *end <= RAM_BASE) else { return false };
    for block in region.base / BLOCK..end.div_ceil(BLOCK) {
        device_table()[block as usize].store((block * BLOCK) | DEVICE_BLOCK, Ordering::Relaxed);
    }
    publish();
    true
}

/// Maps 2 MiB at an address from 1 to 2 GiB as memory, whether or not there is any.
pub fn map_memory(address: u64) {
    let block = (address - RAM_BASE) / BLOCK;
    // SAFETY: as in `device_table`.
    let table = unsafe { &kernel_ram_table };
    let entry = (RAM_BASE + block * BLOCK) | (PAGE_NORMAL & !2) | NO_EXECUTE;
    if let Some(slot) = table.get(block as usize) {
        slot.store(entry, Ordering::Relaxed);
    }
    publish();
}

/// Makes code read-only and executable, constants read-only, all else not executable, and takes away what is
/// mapped beyond `memory_end`. No entry changes its address or size, so break-before-make isn't called for.
pub fn protect(memory_end: u64) {
    let address = |symbol: &u8| core::ptr::from_ref(symbol) as u64;
    // SAFETY: symbols of the linker script: only their addresses are taken. Tables as in `device_table`.
    let (start, rodata, data, image, ram) = unsafe {
        (
            address(&__image_start),
            address(&__rodata_start),
            address(&__data_start),
            &kernel_image_table,
            &kernel_ram_table,
        )
    };
    for (i, entry) in image.iter().enumerate() {
        let page = RAM_BASE + (i * PAGE) as u64;
        let attributes = if (start..rodata).contains(&page) {
            READ_ONLY | USER_NO_EXECUTE
        } else if (rodata..data).contains(&page) {
            READ_ONLY | NO_EXECUTE
        } else {
            NO_EXECUTE
        };
        entry.store(page | PAGE_NORMAL | attributes, Ordering::Relaxed);
    }
    for (i, entry) in ram.iter().enumerate().skip(1) {
        if RAM_BASE + i as u64 * BLOCK >= memory_end {
            entry.store(0, Ordering::Relaxed);
        }
    }
    forget_all();
}

/// Drops all translations, global ones too, on all CPUs.
pub fn forget_all() {
    // SAFETY: tables keep what is in use mapped; no Rust code loses a right that it needs.
    unsafe { asm!("dsb ishst", "tlbi vmalle1is", "dsb ish", "isb", options(nostack)) };
}

/// The value of TTBR0_EL1 for kernel threads: no pages of a process.
pub fn kernel_space() -> u64 {
    &raw const kernel_root as u64
}

/// The root of an address space: four entries, in a cache line of its own.
pub type Root = [u64; 8];

/// Bytes that [`new_space`] takes for a process with `private` bytes, its root apart.
pub const fn space_bytes(private: usize) -> usize {
    2 * PAGE + private.div_ceil(PAGE) * PAGE
}

/// Makes an address space with its own zeroed pages at [`PRIVATE_BASE`]; returns the value for TTBR0_EL1.
pub fn new_space(arena: &mut Arena, root: &'static mut Root, asid: u16, private: usize) -> Option<u64> {
    let middle = arena.take::<u64>(512, PAGE, 0)?;
    let leaves = arena.take::<u64>(512, PAGE, 0)?;
    for leaf in leaves.iter_mut().take(private.div_ceil(PAGE)) {
        let page = arena.take::<u8>(PAGE, PAGE, 0)?;
        *leaf = page.as_ptr() as u64 | PAGE_NORMAL | NOT_GLOBAL | NO_EXECUTE;
    }
    middle[0] = leaves.as_ptr() as u64 | TABLE;
    root[..2].copy_from_slice(&shared_kernel());
    root[2] = middle.as_ptr() as u64 | TABLE;
    publish();
    Some(root.as_ptr() as u64 | (u64::from(asid) << 48))
}

/// Goes over to another address space. Everything that Rust code uses is mapped alike in all of them, but for
/// the pages at [`PRIVATE_BASE`], which only their own task uses.
#[inline(always)]
pub fn switch_space(space: u64) {
    write_register!("ttbr0_el1", space);
    isb();
}

/// A table for one process, empty.
pub fn table(arena: &mut Arena) -> Option<&'static mut [u64]> {
    arena.take(512, PAGE, 0)
}

/// Which of a table's pages an address is in.
pub const fn page_index(address: usize) -> usize {
    (address / PAGE) % 512
}

/// A root's entry for the gigabyte that `address` lies in, of which only the 2 MiB around it are mapped, by `pages`.
pub fn gigabyte(arena: &mut Arena, address: usize, pages: &[u64]) -> Option<u64> {
    let middle = table(arena)?;
    middle[(address / BLOCK as usize) % 512] = pages.as_ptr() as u64 | TABLE;
    publish();
    Some(middle.as_ptr() as u64 | TABLE)
}

/// A page of a process that EL0 executes.
pub const fn user_code(page: u64) -> u64 {
    page | PAGE_NORMAL | NOT_GLOBAL | READ_ONLY | USER | KERNEL_NO_EXECUTE
}

/// A page of a process that the kernel executes.
pub const fn own_code(page: u64) -> u64 {
    page | PAGE_NORMAL | NOT_GLOBAL | READ_ONLY | USER_NO_EXECUTE
}

/// A page of a process that the kernel uses.
pub const fn own_data(page: u64) -> u64 {
    page | PAGE_NORMAL | NOT_GLOBAL | NO_EXECUTE
}

/// The kernel's two entries of a root: those that all address spaces share.
pub fn shared_kernel() -> [u64; 2] {
    // SAFETY: as in `device_table`.
    let root = unsafe { &kernel_root };
    [root[0].load(Ordering::Relaxed), root[1].load(Ordering::Relaxed)]
}

/// The kernel's two entries of a root, for the same map under an ASID, so that no other address space finds its entries in the
/// TLB. `None`: not enough memory.
pub fn own_kernel(arena: &mut Arena) -> Option<[u64; 2]> {
    // SAFETY: as in `device_table`.
    let sources = unsafe { [&kernel_device_table, &kernel_ram_table, &kernel_image_table] };
    let mut copies = [0; 3];
    for (copy, source) in copies.iter_mut().zip(sources) {
        let table = table(arena)?;
        for (to, from) in table.iter_mut().zip(source) {
            let entry = from.load(Ordering::Relaxed);
            *to = if entry == 0 { 0 } else { entry | NOT_GLOBAL };
        }
        *copy = table.as_mut_ptr() as u64;
    }
    // SAFETY: the copy of the table of RAM, which nobody else knows yet; its first entry leads to the image's pages.
    unsafe { *(copies[1] as *mut u64) = copies[2] | TABLE };
    publish();
    Some([copies[0] | TABLE, copies[1] | TABLE])
}
