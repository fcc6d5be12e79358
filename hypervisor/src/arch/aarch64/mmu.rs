//! EL2's own translation, and where the image lies.

use crate::memory::address::{Pa, PaRange};
use crate::memory::phys::{Identity, PhysMemory};

unsafe extern "C" {
    static __image_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __image_end: u8;
    static early_tables: u8;
    static early_tables_end: u8;
    static secondary: u8;
    static secondary_spin: u8;
    static secondary_table: u8;
    fn mmu_replace(ttbr: u64);
}

/// Entries for 128 CPUs, and one that ends the table: see `head.s`.
const SECONDARY_TABLE_BYTES: u64 = 129 * 16;

fn span(start: *const u8, end: *const u8) -> PaRange {
    PaRange::new(Pa(start as u64), end as u64 - start as u64)
}

/// The image's parts in memory.
pub struct ImageLayout {
    /// Instructions.
    pub text: PaRange,
    /// Constants.
    pub rodata: PaRange,
    /// Variables, zeroed ones too.
    pub data: PaRange,
    /// All of it.
    pub whole: PaRange,
}

/// Where the image lies.
pub fn image_layout() -> ImageLayout {
    let (start, text_end) = (&raw const __image_start, &raw const __text_end);
    let (rodata_end, end) = (&raw const __rodata_end, &raw const __image_end);
    ImageLayout {
        text: span(start, text_end),
        rodata: span(text_end, rodata_end),
        data: span(rodata_end, end),
        whole: span(start, end),
    }
}

/// Memory for the tables of the early map.
pub fn early_table_pool() -> PaRange {
    span(&raw const early_tables, &raw const early_tables_end)
}

/// Entry of a CPU that PSCI starts.
pub fn secondary_entry() -> u64 {
    &raw const secondary as u64
}

/// Entry of a CPU that waits at a spin table.
pub fn secondary_spin_entry() -> u64 {
    &raw const secondary_spin as u64
}

/// Goes over to the final map.
///
/// # Safety
///
/// The tables at `root` map the image, this stack and all that is used from now on, at their physical addresses.
pub unsafe fn replace_map(root: Pa) {
    // SAFETY: see above.
    unsafe { mmu_replace(root.0) }
}

/// Physical memory through the identity map, with pages zeroed the fast way.
#[derive(Clone, Copy)]
pub struct MappedMemory(Identity);

impl MappedMemory {
    /// # Safety
    ///
    /// As [`Identity::new`], and the MMU and caches are on.
    pub const unsafe fn new() -> MappedMemory {
        // SAFETY: the caller's promise.
        MappedMemory(unsafe { Identity::new() })
    }
}

impl PhysMemory for MappedMemory {
    #[inline]
    fn read(&self, at: Pa) -> u64 {
        self.0.read(at)
    }

    #[inline]
    fn write(&self, at: Pa, value: u64) {
        self.0.write(at, value);
    }

    #[inline]
    fn read16(&self, at: Pa) -> u16 {
        self.0.read16(at)
    }

    #[inline]
    fn write16(&self, at: Pa, value: u16) {
        self.0.write16(at, value);
    }

    fn zero(&self, base: Pa, bytes: u64) {
        if (base.0 | bytes) & 0xfff == 0 {
            super::zero_pages(base.0, bytes)
        } else {
            self.0.zero(base, bytes)
        }
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        self.0.copy_in(to, bytes);
    }

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        self.0.copy_out(from, bytes);
    }

    fn settle(&self, base: Pa, bytes: u64, code: bool) {
        super::settle(base.0, bytes, code);
    }
}

/// All memory that EL2's map holds.
pub fn memory() -> MappedMemory {
    // SAFETY: every caller runs with the MMU on. Frames, tables and guests' memory are mapped at their addresses, and no Rust
    // reference points into them.
    unsafe { MappedMemory::new() }
}

/// The same memory, for what is exchanged with guests and CPUs whose caches are on: nothing is cleaned.
pub fn cached_memory() -> Identity {
    // SAFETY: as in `memory`.
    unsafe { Identity::new() }
}

/// The devices that EL2's map holds, or, with the MMU off, all.
pub fn devices() -> super::DeviceRegisters {
    // SAFETY: callers pass addresses that the device tree gave.
    unsafe { super::DeviceRegisters::new() }
}

/// Makes new entries of the live map visible to the table walker.
pub fn publish_map() {
    // SAFETY: barriers: the entries are written before the next access is translated.
    unsafe { core::arch::asm!("dsb ishst", "isb", options(nostack, preserves_flags)) }
}

/// TTBR0_EL2 and TCR_EL2, for a CPU that is to have the same map.
pub fn own_map() -> (u64, u64) {
    (super::read_sysreg!("ttbr0_el2"), super::read_sysreg!("tcr_el2"))
}

/// ID_AA64MMFR0_EL1: the first thing that must be known.
pub fn id_aa64mmfr0() -> u64 {
    super::read_sysreg!("id_aa64mmfr0_el1")
}

/// ID_AA64MMFR1_EL1.
pub fn id_aa64mmfr1() -> u64 {
    super::read_sysreg!("id_aa64mmfr1_el1")
}

/// ID_AA64MMFR2_EL1.
pub fn id_aa64mmfr2() -> u64 {
    super::read_sysreg!("id_aa64mmfr2_el1")
}

/// Lets the CPU with affinities `mpidr`, which polls the word at `release`, begin with `argument`.
pub fn release_from_spin_table(release: Pa, mpidr: u64, argument: u64) {
    let table = &raw const secondary_table as u64;
    let memory = memory();
    // The first free entry: a pair of MPIDR and argument; the last entry stays free.
    for entry in (table..table + SECONDARY_TABLE_BYTES - 16).step_by(16) {
        if memory.read(Pa(entry + 8)) == 0 {
            memory.write(Pa(entry), mpidr);
            memory.write(Pa(entry + 8), argument);
            break;
        }
    }
    // It reads these with its caches off.
    super::clean(table, SECONDARY_TABLE_BYTES);
    memory.write(release, secondary_spin_entry());
    super::clean(release.0, 8);
    // SAFETY: an event for a CPU that waits for one.
    unsafe { core::arch::asm!("sev", options(nostack, preserves_flags)) }
}
