//! What memory there is, and the final map of EL2.
//!
//! One region is taken for the hypervisor itself: tables, the frame allocator's bits, each CPU's stacks, the heap.
//! Stacks have a page that is not mapped below them, so that one which overflows faults and does not write over something.

use super::early::Early;
use crate::arch;
use crate::memory::address::{BLOCK_2M, PAGE_SIZE, Pa, PaRange};
use crate::memory::el2_map::{El2Map, El2MapError, Kind};
use crate::memory::frames::{Frames, FramesError, MemoryPlan, PlanError};
use crate::memory::heap::HEAP;
use crate::memory::tables::{Bump, TableSource};
use crate::platform::machine::Machine;
use core::fmt;

/// Length of a CPU's stack in bytes, without its guard page.
pub const STACK: u64 = 28 << 10;
/// The stack on which a fault is reported.
const EMERGENCY: u64 = 12 << 10;
/// Guard, stack, guard, emergency stack.
const STACKS: u64 = PAGE_SIZE + STACK + PAGE_SIZE + EMERGENCY;
/// For EL2's own tables.
const TABLES: u64 = 512 << 10;

/// What can go wrong.
#[derive(Debug)]
pub enum MemoryError {
    /// Too many ranges.
    Plan(PlanError),
    /// Tables.
    Map(El2MapError),
    /// The frame allocator.
    Frames(FramesError),
    /// Not enough memory in one piece for the hypervisor itself.
    TooLittle {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are free in all.
        free: u64,
    },
}

impl From<PlanError> for MemoryError {
    fn from(error: PlanError) -> Self {
        MemoryError::Plan(error)
    }
}

impl From<El2MapError> for MemoryError {
    fn from(error: El2MapError) -> Self {
        MemoryError::Map(error)
    }
}

impl From<FramesError> for MemoryError {
    fn from(error: FramesError) -> Self {
        MemoryError::Frames(error)
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Plan(error) => write!(f, "memory: {error}"),
            MemoryError::Map(error) => write!(f, "memory: {error}"),
            MemoryError::Frames(error) => write!(f, "memory: {error}"),
            MemoryError::TooLittle { needed, free } => write!(
                f,
                "memory: the hypervisor needs {} KiB in one piece, and {} KiB are free: give the machine more memory, or fewer VMs",
                needed >> 10,
                free >> 10
            ),
        }
    }
}

/// Where the CPUs' stacks are.
#[derive(Clone, Copy)]
pub struct Stacks(PaRange);

impl Stacks {
    /// Tops of the stack and of the emergency stack of CPU number `cpu`.
    pub fn of(&self, cpu: usize) -> (u64, u64) {
        let base = self.0.base.0 + cpu as u64 * STACKS;
        (base + PAGE_SIZE + STACK, base + STACKS)
    }
}

/// Takes the hypervisor's memory, of which `heap` bytes are heap, goes over to the final map, and opens the heap. What is left
/// is for guests.
///
/// # Errors
///
/// There is not enough, or it is in too many pieces.
pub fn take(machine: &Machine<'_>, early: &mut Early, heap: u64) -> Result<(Stacks, Frames), MemoryError> {
    let image = arch::image_layout();
    let mut plan = MemoryPlan::new();
    for &bank in &machine.memory {
        plan.add(bank)?;
    }
    for reserved in &machine.reserved {
        plan.reserve(reserved.region)?;
    }
    for range in [Some(image.whole), Some(machine.dtb), machine.initrd].into_iter().flatten() {
        plan.reserve(range)?;
    }

    let metadata = plan.metadata_words() as u64 * 8;
    let pages = |bytes: u64| bytes.next_multiple_of(PAGE_SIZE);
    let stacks = STACKS * machine.cpus.len() as u64;
    let needed = TABLES + pages(metadata) + stacks + pages(heap);
    let free = plan.free_bytes();
    let base = plan.carve(needed, BLOCK_2M).ok_or(MemoryError::TooLittle { needed, free })?;
    let region = PaRange::new(base, needed);
    early.map(region, Kind::Data)?;

    let mut parts = Bump::new(region);
    let mut part = |bytes: u64| {
        let rest = parts.rest();
        parts = Bump::new(PaRange::new(Pa(rest.base.0 + bytes), rest.size - bytes));
        PaRange::new(rest.base, bytes)
    };
    let mut tables = Bump::new(part(TABLES));
    let metadata = part(pages(metadata));
    let stacks = part(stacks);
    let heap = part(pages(heap));

    let root = final_map(machine, stacks, &mut tables)?;
    // SAFETY: the map holds the image, with this stack in it, and all memory.
    unsafe { arch::replace_map(root) };

    // SAFETY: the words are part of the region just taken from the plan, mapped as data, and used for this alone.
    let metadata = unsafe {
        core::slice::from_raw_parts_mut(
            core::ptr::with_exposed_provenance_mut(metadata.base.0 as usize),
            metadata.size as usize / 8,
        )
    };
    // SAFETY: likewise; the heap is opened here alone.
    unsafe { HEAP.init(core::ptr::with_exposed_provenance_mut(heap.base.0 as usize), heap.size as usize) };
    Ok((Stacks(stacks), Frames::new(&plan, metadata)?))
}

/// The map that EL2 keeps: code, constants, data; all other memory as data; devices; guard pages and what must not be mapped
/// left out.
fn final_map(
    machine: &Machine<'_>,
    stacks: PaRange,
    tables: &mut impl TableSource,
) -> Result<Pa, MemoryError> {
    let memory = arch::memory();
    let image = arch::image_layout();
    let mut map = El2Map::new(&memory, tables)?;
    let mut data = MemoryPlan::new();
    for &bank in &machine.memory {
        data.add(bank)?;
    }
    for reserved in machine.reserved.iter().filter(|reserved| reserved.no_map) {
        data.reserve(reserved.region)?;
    }
    data.reserve(image.whole)?;
    for &range in data.ranges() {
        map.map(&memory, tables, range, Kind::Data)?;
    }
    map.map(&memory, tables, image.text, Kind::Code)?;
    map.map(&memory, tables, image.rodata, Kind::ReadOnly)?;
    map.map(&memory, tables, image.data, Kind::Data)?;
    for base in (stacks.base.0..stacks.base.0 + stacks.size).step_by(STACKS as usize) {
        for guard in [base, base + PAGE_SIZE + STACK] {
            map.unmap(&memory, tables, PaRange::new(Pa(guard), PAGE_SIZE))?;
        }
    }
    let uart = machine.uart.map(|uart| PaRange::new(uart.base, uart.size));
    for device in [Some(machine.gic.dist), uart, machine.rtc]
        .into_iter()
        .flatten()
        .chain(machine.gic.redist.iter().copied())
    {
        map.map(&memory, tables, device.to_pages().unwrap_or(device), Kind::Device)?;
    }
    Ok(map.root())
}
