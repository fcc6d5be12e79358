//! The content of a disk: an image that all VMs with it share and nobody writes, and pages of what a VM has written.
//!
//! A page is copied when it is written for the first time. So a disk costs a VM only what it changes, and 8 bytes for each page of
//! 4 KiB. Where the machine has no memory left, a write fails, and the guest is told.

use crate::device::virtio::memory::{GuestAddress, GuestMemory, NoMemory};
use crate::device::virtio::queue::Part;
use crate::memory::address::{PAGE_SIZE, Pa};
use crate::memory::phys::PhysMemory;
use alloc::boxed::Box;
use alloc::vec;

/// Bytes that are copied at a time between two places of which neither is ours.
const PIECE: usize = 512;

/// Entries of the table of pages of an image of `bytes`.
pub fn table_entries(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_SIZE as usize)
}

/// A disk.
#[derive(Debug)]
pub struct Disk {
    image: &'static [u8],
    /// A word for each page: where its copy is, or 0 while there is none. Empty if the disk can't be written.
    copies: Box<[u64]>,
}

impl Disk {
    /// A disk as in the image. Allocates the table, if it can be written.
    pub fn new(image: &'static [u8], writable: bool) -> Disk {
        let entries = if writable { table_entries(image.len()) } else { 0 };
        Disk { image, copies: vec![0; entries].into_boxed_slice() }
    }

    /// Forgets what was written; how many pages were given to `give`.
    pub fn clear(&mut self, give: impl Fn(Pa)) -> u64 {
        let mut pages = 0;
        for copy in self.copies.iter_mut().filter(|copy| **copy != 0) {
            give(Pa(core::mem::take(copy)));
            pages += 1;
        }
        pages
    }

    fn copy_of(&self, page: u64) -> Option<Pa> {
        self.copies.get(page as usize).filter(|copy| **copy != 0).map(|copy| Pa(*copy))
    }

    /// Copies from the disk, from byte `offset` on, to the guest.
    ///
    /// # Errors
    /// The guest's memory is gone.
    pub fn read(
        &self,
        phys: &impl PhysMemory,
        memory: &impl GuestMemory,
        to: Part<'_>,
        offset: u64,
    ) -> Result<(), NoMemory> {
        for (at, offset, len) in in_pages(to, offset) {
            match self.copy_of(offset / PAGE_SIZE) {
                Some(page) => {
                    let mut buffer = [0; PIECE];
                    for start in (0..len).step_by(PIECE) {
                        let Some(buffer) = buffer.get_mut(..PIECE.min(len - start)) else { break };
                        phys.copy_out(Pa(page.0 + offset % PAGE_SIZE + start as u64), buffer);
                        memory.write(at.plus(start as u64), buffer)?;
                    }
                }
                None => {
                    let image = self.image.get(offset as usize..).unwrap_or_default();
                    let image = image.get(..len).unwrap_or(image);
                    memory.write(at, image)?;
                    // The rest of the last sector.
                    zero(memory, at.plus(image.len() as u64), len - image.len())?;
                }
            }
        }
        Ok(())
    }

    /// Copies from the guest to the disk, from byte `offset` on, with pages from `take`. Whether there was room for all.
    ///
    /// # Errors
    /// The guest's memory is gone.
    pub fn write(
        &mut self,
        phys: &impl PhysMemory,
        take: impl Fn() -> Option<Pa>,
        memory: &impl GuestMemory,
        from: Part<'_>,
        offset: u64,
    ) -> Result<bool, NoMemory> {
        for (at, offset, len) in in_pages(from, offset) {
            let Some(page) = self.copied(phys, &take, offset / PAGE_SIZE) else { return Ok(false) };
            let mut buffer = [0; PIECE];
            for start in (0..len).step_by(PIECE) {
                let Some(buffer) = buffer.get_mut(..PIECE.min(len - start)) else { break };
                memory.read(at.plus(start as u64), buffer)?;
                phys.copy_in(Pa(page.0 + offset % PAGE_SIZE + start as u64), buffer);
            }
        }
        Ok(true)
    }

    /// The copy of a page, made if there is none yet. `None`: no memory is left.
    fn copied(&mut self, phys: &impl PhysMemory, take: impl Fn() -> Option<Pa>, page: u64) -> Option<Pa> {
        let copy = self.copies.get_mut(page as usize)?;
        if *copy == 0 {
            let new = take()?;
            phys.zero(new, PAGE_SIZE);
            let image = self.image.get((page * PAGE_SIZE) as usize..).unwrap_or_default();
            phys.copy_in(new, image.get(..PAGE_SIZE as usize).unwrap_or(image));
            *copy = new.0;
        }
        Some(Pa(*copy))
    }
}

/// The pieces of a part that begins at byte `offset` of the disk, each within one page of the disk: guest's address, offset on the
/// disk, length.
fn in_pages(part: Part<'_>, offset: u64) -> impl Iterator<Item = (GuestAddress, u64, usize)> {
    let mut offset = offset;
    part.pieces().flat_map(move |(at, len)| {
        let start = offset;
        let end = start + u64::from(len);
        offset = end;
        let mut next = start;
        core::iter::from_fn(move || {
            let here = next;
            let left = end.checked_sub(here).filter(|left| *left != 0)?;
            let len = left.min(PAGE_SIZE - here % PAGE_SIZE);
            next += len;
            Some((at.plus(here - start), here, len as usize))
        })
    })
}

fn zero(memory: &impl GuestMemory, at: GuestAddress, bytes: usize) -> Result<(), NoMemory> {
    const ZEROES: [u8; PIECE] = [0; PIECE];
    for start in (0..bytes).step_by(PIECE) {
        memory.write(at.plus(start as u64), ZEROES.get(..PIECE.min(bytes - start)).unwrap_or_default())?;
    }
    Ok(())
}
