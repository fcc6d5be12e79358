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

fn publish() {
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
    // SAFETY: drops translations that the new entries replace; nothing in use lost a right that it needs.
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
    // SAFETY: as in `device_table`.
    let kernel = unsafe { &kernel_root };
    root[0] = kernel[0].load(Ordering::Relaxed);
    root[1] = kernel[1].load(Ordering::Relaxed);
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
