//! Pages of 16 and 64 KiB (Arm ARM D8.2): a window in the upper half of the address space, through which RAM is seen by a table of
//! that granule, while the kernel itself goes on with 4 KiB in the lower half.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::cpu::{isb, read_register, write_register};
use crate::machine::RAM_BASE;
use crate::sync::Masked;

/// A granule of stage 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// 16 KiB.
    Kib16,
    /// 64 KiB.
    Kib64,
}

impl Granule {
    /// Its size as a power of two.
    const fn shift(self) -> u32 {
        match self {
            Granule::Kib16 => 14,
            Granule::Kib64 => 16,
        }
    }

    /// TCR_EL1.TG1.
    const fn tg1(self) -> u64 {
        match self {
            Granule::Kib16 => 1,
            Granule::Kib64 => 3,
        }
    }

    /// Whether this CPU has it: ID_AA64MMFR0_EL1.TGran16, TGran64.
    pub fn is_there(self) -> bool {
        let mmfr0 = read_register!("id_aa64mmfr0_el1");
        match self {
            Granule::Kib16 => (mmfr0 >> 20) & 0xf != 0,
            Granule::Kib64 => (mmfr0 >> 24) & 0xf != 0xf,
        }
    }
}

/// Bits of an address in the window: the fewest that the architecture allows, so that one table of the last level is enough.
const WINDOW_BITS: u32 = 25;
/// Bytes of the window.
pub const WINDOW: u64 = 1 << WINDOW_BITS;
/// Entries for the smaller granule.
const ENTRIES: usize = 1 << (WINDOW_BITS - 14);
/// Write-back, inner shareable, accessed, read-write, not executable; a page.
const PAGE: u64 = 0x703 | (3 << 53);
/// TCR_EL1's fields of the upper half: T1SZ, EPD1, IRGN1, ORGN1, SH1, TG1.
const UPPER: u64 = 0xffff_0000 & !(1 << 22);

#[repr(C, align(16384))]
struct Table([AtomicU64; ENTRIES]);

static TABLE: Table = Table([const { AtomicU64::new(0) }; ENTRIES]);

/// Exchanges the 64-bit value at `address`, in the first [`WINDOW`] bytes of RAM, for `value`, through pages of `granule`, which must be
/// there. Returns what was there.
///
/// # Safety
/// It is memory that nothing else uses at the same time.
pub unsafe fn exchange(granule: Granule, address: u64, value: u64) -> u64 {
    let _masked = Masked::new();
    let pages = TABLE.0.iter().take(1 << (WINDOW_BITS - granule.shift()));
    for (index, entry) in pages.enumerate() {
        let page = RAM_BASE + ((index as u64) << granule.shift());
        entry.store(page | PAGE, Ordering::Relaxed);
    }
    let tcr = read_register!("tcr_el1");
    let cacheable = (1 << 24) | (1 << 26) | (3 << 28);
    let upper = (u64::from(64 - WINDOW_BITS) << 16) | cacheable | (granule.tg1() << 30);
    write_register!("ttbr1_el1", &raw const TABLE as u64);
    write_register!("tcr_el1", (tcr & !UPPER) | upper);
    // SAFETY: barriers, and an invalidation of translations.
    unsafe { asm!("dsb ishst", "isb", "tlbi vmalle1", "dsb nsh", "isb", options(nostack)) };
    let at = ((u64::MAX << WINDOW_BITS) | address.wrapping_sub(RAM_BASE)) as *mut u64;
    // SAFETY: mapped to the caller's memory by the table above.
    let before = unsafe { at.read_volatile() };
    // SAFETY: as above.
    unsafe { at.write_volatile(value) };
    write_register!("tcr_el1", tcr);
    isb();
    // SAFETY: as above.
    unsafe { asm!("dsb ish", "tlbi vmalle1", "dsb nsh", "isb", options(nostack)) };
    before
}
