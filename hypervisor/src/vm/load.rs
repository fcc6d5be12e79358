//! Where kernel, ramdisk and device tree go in a guest's RAM.
//!
//! As QEMU places them on `virt`, except that nothing is put below the kernel: an arm64 `Image` (Linux'
//! `Documentation/arch/arm64/booting`) at its `text_offset`, 2 MiB up where that would be the very
//! beginning; anything else 512 KiB into RAM; the ramdisk in the middle of RAM or at 128 MiB, behind the
//! kernel in any case; the device tree behind both. A raw kernel doesn't say how much memory it needs
//! behind its data: the distance is for that.

use core::fmt;

use super::layout::RAM_BASE;
use crate::memory::address::{Ipa, PAGE_SIZE};

/// Where a raw kernel goes, from the beginning of RAM.
const RAW_OFFSET: u64 = 0x8_0000;
/// What an `Image`'s distance to its `text_offset` is a multiple of, and what a device tree mustn't cross.
const BLOCK: u64 = 2 << 20;
/// Alignment of ramdisk and device tree: Linux gives the ramdisk's pages back to itself, and what shares a
/// page with it would go too; its pages may be this large.
const APART: u64 = 64 << 10;
/// The ramdisk isn't put lower than this unless RAM is small.
const RAMDISK_OFFSET: u64 = 128 << 20;

/// What has to be placed. Lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Images<'a> {
    /// The kernel's bytes.
    pub kernel: &'a [u8],
    /// Where the kernel goes, if the bundle says so.
    pub load: Option<u64>,
    /// Where it begins, if the bundle says so.
    pub entry: Option<u64>,
    /// Length of the ramdisk; 0 where there is none.
    pub ramdisk: u64,
    /// Length of the device tree, or more: [`super::device_tree::MAX_SIZE`] for a generated one.
    pub dtb: u64,
    /// The VM's RAM.
    pub memory: u64,
}

/// Where everything goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The kernel.
    pub kernel: Ipa,
    /// Its first instruction.
    pub entry: Ipa,
    /// The ramdisk, where there is one.
    pub ramdisk: Option<Ipa>,
    /// The device tree.
    pub dtb: Ipa,
}

/// Why a guest can't be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementError {
    /// A kernel in a form that has to be converted on the host.
    Format {
        /// Which form.
        what: &'static str,
    },
    /// A field of an arm64 `Image` header that can't be followed.
    Header {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        remedy: &'static str,
    },
    /// Something isn't inside RAM.
    OutsideRam {
        /// What.
        what: &'static str,
        /// First guest physical address.
        start: u64,
        /// Its length in bytes.
        size: u64,
        /// The VM's RAM in bytes.
        memory: u64,
    },
    /// The entry isn't inside the kernel, or isn't aligned to an instruction.
    Entry {
        /// The entry, a guest physical address.
        entry: u64,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PlacementError::Format { what } => {
                write!(f, "kernel is {what}: it must be made raw on the host, where `cargo xtask` does it")
            }
            PlacementError::Header { field, value, remedy } => {
                write!(f, "kernel's Image header: {field} = {value:#x}: {remedy}")
            }
            PlacementError::OutsideRam { what, start, size, memory } => write!(
                f,
                "{what} of {size} bytes at {start:#x} doesn't fit into RAM, {memory} bytes from {RAM_BASE}: \
                 give the VM more memory"
            ),
            PlacementError::Entry { entry } => {
                write!(f, "entry = {entry:#x}: an address inside the kernel, a multiple of 4, is needed")
            }
        }
    }
}

impl core::error::Error for PlacementError {}

/// The fields of an arm64 `Image` header that say where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ImageHeader {
    text_offset: u64,
    /// Memory that the kernel takes, its data and what is behind it; 0 in kernels before Linux 3.17.
    image_size: u64,
    flags: u64,
}

impl ImageHeader {
    /// The header, where `kernel` has one.
    fn read(kernel: &[u8]) -> Option<ImageHeader> {
        let field = |offset: usize| Some(u64::from_le_bytes(*kernel.get(offset..)?.first_chunk::<8>()?));
        (kernel.get(56..60)? == b"ARM\x64").then_some(())?;
        Some(ImageHeader { text_offset: field(8)?, image_size: field(16)?, flags: field(24)? })
    }
}

/// Finds a place for everything.
///
/// # Errors
/// The kernel's form or header can't be followed, or RAM is too small.
pub fn place(images: &Images<'_>) -> Result<Placement, PlacementError> {
    let ram = Ram { memory: images.memory };
    let (offset, size) = kernel_extent(images)?;
    let kernel = images.load.unwrap_or(RAM_BASE.0.saturating_add(offset));
    let kernel_end = ram.end_of("kernel", kernel, size)?;
    let entry = images.entry.unwrap_or(kernel);
    if !(kernel..kernel_end).contains(&entry) || !entry.is_multiple_of(4) {
        return Err(PlacementError::Entry { entry });
    }

    let ideal = (RAM_BASE.0 + (images.memory / 2).min(RAMDISK_OFFSET)).max(kernel_end);
    let behind = |start: u64| -> Result<(Option<Ipa>, Ipa), PlacementError> {
        let (ramdisk, end) = match images.ramdisk {
            0 => (None, start),
            size => {
                let start = ram.aligned("ramdisk", start, APART, size)?;
                (Some(Ipa(start)), ram.end_of("ramdisk", start, size)?)
            }
        };
        Ok((ramdisk, Ipa(ram.dtb(end, images.dtb)?)))
    };
    // Where the ideal distance doesn't leave enough room, everything goes right behind the kernel.
    let (ramdisk, dtb) = behind(ideal).or_else(|_| behind(kernel_end))?;
    Ok(Placement { kernel: Ipa(kernel), entry: Ipa(entry), ramdisk, dtb })
}

/// Offset of a kernel from the beginning of RAM, where it isn't told, and the memory that it takes.
fn kernel_extent(images: &Images<'_>) -> Result<(u64, u64), PlacementError> {
    let kernel = images.kernel;
    let length = kernel.len() as u64;
    for (magic, what) in [(&b"\x7fELF"[..], "an ELF file"), (&[0x1f, 0x8b], "gzip data")] {
        // One with an address has been made flat: what was the file's header may still be its beginning.
        if images.load.is_none() && kernel.starts_with(magic) {
            return Err(PlacementError::Format { what });
        }
    }
    let Some(header) = ImageHeader::read(kernel).filter(|header| header.image_size != 0) else {
        return Ok((RAW_OFFSET, length));
    };
    if header.flags & 1 != 0 {
        let remedy = "a big-endian kernel isn't supported";
        return Err(PlacementError::Header { field: "flags", value: header.flags, remedy });
    }
    // As QEMU, which has its own code at the beginning of RAM and wants 4 KiB for it.
    let offset = if header.text_offset < PAGE_SIZE { header.text_offset + BLOCK } else { header.text_offset };
    Ok((offset, header.image_size.max(length)))
}

/// A VM's RAM.
struct Ram {
    memory: u64,
}

impl Ram {
    /// The end of `size` bytes from `start`, if all of them are RAM.
    fn end_of(&self, what: &'static str, start: u64, size: u64) -> Result<u64, PlacementError> {
        let outside = PlacementError::OutsideRam { what, start, size, memory: self.memory };
        let end = start.checked_add(size).ok_or(outside)?;
        let ram_end = RAM_BASE.0.saturating_add(self.memory);
        if start < RAM_BASE.0 || end > ram_end { Err(outside) } else { Ok(end) }
    }

    /// `start` rounded up to a multiple of `align`.
    fn aligned(&self, what: &'static str, start: u64, align: u64, size: u64) -> Result<u64, PlacementError> {
        let outside = PlacementError::OutsideRam { what, start, size, memory: self.memory };
        start.checked_next_multiple_of(align).ok_or(outside)
    }

    /// A place for a device tree at or behind `start`: in one 2 MiB block, as the boot protocol asks.
    fn dtb(&self, start: u64, size: u64) -> Result<u64, PlacementError> {
        const WHAT: &str = "device tree";
        let mut at = self.aligned(WHAT, start, APART, size)?;
        let end = self.end_of(WHAT, at, size)?;
        if at / BLOCK != end.saturating_sub(1) / BLOCK {
            at = self.aligned(WHAT, at, BLOCK, size)?;
            self.end_of(WHAT, at, size)?;
        }
        Ok(at)
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
