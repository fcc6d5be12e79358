//! The memory of the trace.

use super::BootError;
use crate::arch;
use crate::memory::address::BLOCK_2M;
use crate::memory::frames::Frames;
use crate::memory::phys::PhysMemory;
use crate::platform::options::{Options, Tracing};
use crate::stats::TickRate;
use crate::trace::{Area, Layout};
use core::sync::atomic::AtomicU64;

/// Takes memory for the trace of a machine of `cpus` CPUs, if `options` ask for one.
///
/// # Errors
///
/// There is not enough memory in one piece.
pub fn make(
    options: &Options,
    cpus: usize,
    rate: TickRate,
    frames: &mut Frames,
) -> Result<Option<Area<'static>>, BootError> {
    if options.trace == Tracing::Off {
        return Ok(None);
    }
    let kib = options.trace_kib;
    let entries = (u64::from(kib) << 10) / Layout::ENTRY_BYTES;
    let layout = Layout::new(cpus as u64, entries).map_err(BootError::Trace)?;
    let bytes = layout.words() * size_of::<AtomicU64>();
    let base = frames.alloc(bytes as u64, BLOCK_2M).ok_or(BootError::TraceMemory {
        kib,
        needed: bytes as u64,
        free: frames.available_bytes(),
    })?;
    arch::memory().zero(base, bytes as u64);
    // SAFETY: the frames are this trace's for good, mapped as data, zeroed, and accessed through these words alone.
    let words = unsafe {
        core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance::<AtomicU64>(base.0 as usize),
            layout.words(),
        )
    };
    Ok(Area::new(layout, rate.hz(), words))
}
