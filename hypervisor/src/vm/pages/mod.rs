//! A VM's pages: what its RAM holds before the guest has touched it, and what becomes of each page when it does.
//!
//! Nothing of a VM's RAM is there when it starts. The first access to a page takes a stage-2 translation fault, and only then is
//! the page's memory found:
//!
//! - Where an image of the bundle lies ([`Segment`]), the page is *shared*: the bundle's own memory, read-only, the same for all
//!   VMs. A write takes a permission fault, and the VM gets a *private* copy.
//! - Everywhere else it is private, and zero.
//! - So is a page of which an image covers a part, or for which the image doesn't begin at a page of the bundle: it can't be shared.
//!
//! A fault costs far more than a page, so each makes more than one page present: all of the 2 MiB around it that is untouched
//! RAM, as one block where no image lies in it; all of a shared image in those 2 MiB; and of copies as many as
//! have proved useful ([`window`]). (Linux with 96 MiB touches 24 of them outside of its images in pieces of 64 KiB, and 30 in pieces of
//! 2 MiB: little is lost, 15 faults do instead of 390, and blocks need no table and few TLB entries.)
//!
//! A copied page of an image that is then executed may be the same in all VMs that boot the image ([`common`]): where there are several, copies
//! are mapped so that a fetch of instructions faults; the page then becomes *common*, executable and read-only, as one of the bundle is. So a page
//! of an image can be written or executed and not both, until it has changed so often between the two that it isn't worth its exits any more.
//!
//! What is mapped read-only is shared and what is mapped writable is private: the map itself is the record of who owns what.
//! No page is ever both. Memory is private before it is mapped: frames are taken, filled, made visible, then mapped; and a page
//! that is replaced is forgotten by all TLBs before the copy takes its place (break-before-make, by [`Stage2`]'s editor).

pub mod common;
mod fill;
mod merge;
mod segment;
#[cfg(test)]
mod tests;
mod window;

use super::layout::RAM_BASE;
use crate::memory::address::{BLOCK_1G, BLOCK_2M, Ipa, PAGE_SIZE, Pa, align_down};
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::{Attr, Stage2, Stage2Config, Stage2Error, Stage2Tlb};
use crate::memory::tables::{TABLE_BYTES, TableSource};
use arrayvec::ArrayVec;
use core::fmt;
use merge::Merges;
pub use segment::Segment;
use segment::{Content, Span};
use window::Window;

/// Images that lie in a VM's RAM at most: kernel, ramdisk, device tree.
pub const MAX_SEGMENTS: usize = 3;

/// How a page is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load, a walk of the guest's own tables.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

/// Why a page can't be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageError {
    /// The address is not in the VM's RAM.
    NotRam,
    /// There is no memory: not on the VM's own account, so this is a fault of the hypervisor's.
    OutOfMemory,
    /// Stage 2 refuses.
    Map(Stage2Error),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRam => write!(f, "not the VM's memory"),
            Self::OutOfMemory => write!(f, "no memory left for the VM's pages"),
            Self::Map(error) => write!(f, "stage 2: {error}"),
        }
    }
}

impl From<Stage2Error> for PageError {
    fn from(error: Stage2Error) -> Self {
        match error {
            Stage2Error::OutOfMemory => Self::OutOfMemory,
            other => Self::Map(other),
        }
    }
}

/// Where frames for pages come from, beside those for tables.
pub trait PageSource: TableSource {
    /// `bytes` (whole frames) of memory in one piece, aligned to `align`. A single frame is always there.
    fn take(&mut self, bytes: u64, align: u64) -> Option<Pa>;

    /// Takes back what [`PageSource::take`] gave, or a part of it.
    fn give(&mut self, base: Pa, bytes: u64);

    /// The common frame with what is in the frame `page`, which nobody writes to meanwhile; see [`common::CommonPages::join`].
    fn join(&mut self, memory: &impl PhysMemory, page: Pa) -> Option<Pa>;

    /// The VM has one mapping of `page` less, if that is a common frame.
    fn leave(&mut self, page: Pa);
}

/// What pages are changed with.
#[derive(Debug)]
pub struct Means<'a, M, T, S> {
    /// Physical memory.
    pub memory: &'a M,
    /// The VM's translations.
    pub tlb: &'a T,
    /// The VM's account of frames.
    pub source: &'a mut S,
}

/// How much memory a VM has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// RAM of its own, in bytes.
    pub private_bytes: u64,
    /// RAM that it shares, in bytes.
    pub shared_bytes: u64,
    /// Tables of stage 2, in bytes.
    pub table_bytes: u64,
    /// Pages that it was given as copies of an image's, since it was made.
    pub copied_pages: u64,
}

/// The pages of one VM.
///
/// Its memory comes back through [`Pages::end`] only.
#[derive(Debug)]
pub struct Pages {
    stage2: Stage2,
    /// Bytes of RAM.
    size: u64,
    segments: ArrayVec<Segment, MAX_SEGMENTS>,
    window: Window,
    /// How often copies that are executed became common ones, if they may.
    merges: Option<Merges>,
    private_bytes: u64,
    shared_bytes: u64,
    copied_pages: u64,
}

impl Pages {
    /// The most memory that a VM with `size` bytes of RAM can need: each page its own, with tables that map single pages; and one page
    /// to [`Pages::show`], with its tables.
    pub const fn most_bytes(config: &Stage2Config, size: u64) -> u64 {
        // RAM begins at a multiple of 1 GiB. One more for a table of level 1, where the root is of level 0.
        let tables = size.div_ceil(BLOCK_2M) + size.div_ceil(BLOCK_1G) + 1;
        let shown = PAGE_SIZE + 2 * TABLE_BYTES;
        size.saturating_add(tables * TABLE_BYTES + shown).saturating_add(config.root_bytes())
    }

    /// A VM's pages, none of them present. `merges`: others boot its kernel, too, so that copies may be alike.
    ///
    /// # Errors
    ///
    /// [`PageError::OutOfMemory`].
    pub fn new<M: PhysMemory, S: PageSource>(
        config: &Stage2Config,
        size: u64,
        segments: ArrayVec<Segment, MAX_SEGMENTS>,
        merges: bool,
        memory: &M,
        source: &mut S,
    ) -> Result<Pages, PageError> {
        let stage2 = Stage2::new(config, memory, source)?;
        Ok(Pages {
            stage2,
            size,
            segments,
            window: Window::new(if merges { window::AMONG_OTHERS } else { window::ALONE }),
            merges: merges.then(Merges::default),
            private_bytes: 0,
            shared_bytes: 0,
            copied_pages: 0,
        })
    }

    /// The root of stage 2.
    pub fn root(&self) -> Pa {
        self.stage2.root()
    }

    /// How much memory it has.
    pub fn usage(&self) -> Usage {
        Usage {
            private_bytes: self.private_bytes,
            shared_bytes: self.shared_bytes,
            table_bytes: self.stage2.table_bytes(),
            copied_pages: self.copied_pages,
        }
    }

    /// Makes the page at `ipa` present for `access`. If it is already (another vCPU was quicker), nothing happens, and the
    /// access that faulted need only be tried again.
    ///
    /// # Errors
    ///
    /// [`PageError`]; the map is as it was then, but for what a failed copy left unmapped, which the next access brings back.
    pub fn resolve<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        ipa: u64,
        access: Access,
    ) -> Result<(), PageError> {
        if ipa.checked_sub(RAM_BASE.0).is_none_or(|offset| offset >= self.size) {
            return Err(PageError::NotRam);
        }
        let page = align_down(ipa, PAGE_SIZE);
        match self.stage2.translate(means.memory, Ipa(page)) {
            Some(there) if there.attr.write && access != Access::Execute => Ok(()),
            Some(there) if there.attr.execute && access != Access::Write => Ok(()),
            Some(_) if access == Access::Read => Ok(()),
            Some(_) if access == Access::Execute => self.merge(means, page),
            // Read-only is what is shared.
            Some(_) => self.copy(means, page),
            None => match (self.content(page), access) {
                (Content::Zero, _) => self.zero(means, page),
                (Content::Shared(_), Access::Write) | (Content::Mixed, _) => self.copy(means, page),
                (Content::Shared(segment), _) => self.share(means, page, segment),
            },
        }
    }

    /// Makes the byte at `ipa` present, writable if `access` writes: where it is, and how many bytes follow it in its page. For what
    /// the hypervisor itself reads or writes of the VM's memory. Good as long as the VM's pages are locked.
    ///
    /// # Errors
    ///
    /// As [`Pages::resolve`].
    pub fn reach<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        ipa: u64,
        access: Access,
    ) -> Result<(Pa, u64), PageError> {
        self.resolve(means, ipa, access)?;
        match self.stage2.translate(means.memory, Ipa(ipa)) {
            Some(there) => Ok((there.pa, PAGE_SIZE - (ipa & (PAGE_SIZE - 1)))),
            None => Err(PageError::NotRam),
        }
    }

    /// Writes `bytes` into the VM's RAM, only the pages of which become present: before it runs.
    ///
    /// # Errors
    ///
    /// As [`Pages::resolve`].
    pub fn load<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        ipa: u64,
        bytes: &[u8],
    ) -> Result<(), PageError> {
        let (mut at, mut rest) = (ipa, bytes);
        while !rest.is_empty() {
            let page = align_down(at, PAGE_SIZE);
            if self.stage2.translate(means.memory, Ipa(page)).is_none() && self.content(page) == Content::Zero
            {
                self.zero_run(means, Span::page(page), page)?;
            }
            let (pa, room) = self.reach(means, at, Access::Write)?;
            let (now, later) = rest.split_at(rest.len().min(room as usize));
            means.memory.copy_in(pa, now);
            means.memory.settle(pa, now.len() as u64, false);
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Lets the guest read the hypervisor's page `page` at `ipa`, below its RAM: until [`Pages::reset`]. The page stays the caller's.
    ///
    /// # Errors
    ///
    /// As [`Pages::resolve`]; [`PageError::Map`] if something is there already.
    pub fn show<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        ipa: Ipa,
        page: Pa,
    ) -> Result<(), PageError> {
        let mut edit = self.stage2.edit(means.memory, means.tlb, means.source);
        Ok(edit.map(ipa, page, PAGE_SIZE, Attr::READ_ONLY_DATA)?)
    }

    /// Forgets all that the guest has done: no page is present, as when it was made. What was private goes back to `source`. No CPU
    /// uses the VM's tables, and its VMID has been released.
    pub fn reset<M: PhysMemory, S: PageSource>(&mut self, memory: &M, source: &mut S) {
        let mut private = Run::default();
        self.stage2.clear(memory, source, |source, leaf| {
            if leaf.attr.write {
                private.add(source, leaf.pa, leaf.size);
            } else {
                source.leave(leaf.pa);
            }
        });
        private.give(source);
        self.private_bytes = 0;
        self.shared_bytes = 0;
        self.window = Window::new(self.window.sizes());
        self.merges = self.merges.take().map(|_| Merges::default());
    }

    /// Gives everything back. As [`Pages::reset`], and the root too.
    pub fn end<M: PhysMemory, S: PageSource>(mut self, memory: &M, source: &mut S) {
        self.reset(memory, source);
        self.stage2.destroy(memory, source, |_| {});
    }
}

/// Frames that lie beside each other, given back together: their allocator looks at pieces.
#[derive(Default)]
struct Run {
    base: u64,
    size: u64,
}

impl Run {
    fn add<S: PageSource>(&mut self, source: &mut S, base: Pa, size: u64) {
        if self.size != 0 && self.base + self.size == base.0 {
            self.size += size;
        } else {
            core::mem::replace(self, Run { base: base.0, size }).give(source);
        }
    }

    fn give<S: PageSource>(self, source: &mut S) {
        if self.size != 0 {
            source.give(Pa(self.base), self.size);
        }
    }
}
