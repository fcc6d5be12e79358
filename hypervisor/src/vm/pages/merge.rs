//! Making pages common: copies of an image's pages that are executed.

use super::segment::{Content, Span};
use super::{Means, PageError, PageSource, Pages, Run};
use crate::memory::address::{Ipa, PAGE_SIZE, Pa};
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::{Attr, Stage2Tlb};
use crate::vm::layout::RAM_BASE;
use arrayvec::ArrayVec;

/// How far around a page that is executed others are looked at, in bytes: a few thousand instructions of the hypervisor's for each page.
const CHUNK: u64 = 64 << 10;
const CHUNK_PAGES: usize = (CHUNK / PAGE_SIZE) as usize;
/// How often pages of a chunk are made common. Where data lies beside instructions, or a guest rewrites what it executes again and again, each
/// change from one to the other is an exit.
pub(super) const MOST: u8 = 8;
/// Chunks that are looked after, from the beginning of RAM on: 64 MiB.
const CHUNKS: usize = 1024;

/// How often pages of each chunk were made common.
#[derive(Debug)]
pub(super) struct Merges([u8; CHUNKS]);

impl Default for Merges {
    fn default() -> Self {
        Merges([0; CHUNKS])
    }
}

impl Merges {
    fn of(&mut self, page: u64) -> Option<&mut u8> {
        self.0.get_mut((page.checked_sub(RAM_BASE.0)? / CHUNK) as usize)
    }

    /// Counts one more in the chunk of `page`, unless there were enough.
    fn count(&mut self, page: u64) -> bool {
        let count = self.of(page).filter(|count| **count < MOST);
        count.map(|count| *count += 1).is_some()
    }
}

impl Pages {
    /// What the guest may do with copies of an image's pages: not execute them before they have been looked up.
    pub(super) fn copies(&self) -> Attr {
        if self.merges.is_some() { Attr::RAM_DATA } else { Attr::RAM }
    }

    /// The common frame that is mapped at `page`, if one is.
    pub(super) fn common<M: PhysMemory>(&self, memory: &M, page: u64) -> Option<Pa> {
        // Where nothing is made common there is no need to look.
        self.merges.as_ref()?;
        let there = self.stage2.translate(memory, Ipa(page)).filter(|there| !there.attr.write)?;
        match self.content(page) {
            Content::Shared(index) => {
                let image = self.segments.get(index).is_some_and(|segment| segment.pa_of(page) == there.pa);
                (!image).then_some(there.pa)
            }
            // Neither can be mapped read-only for another reason.
            Content::Mixed | Content::Zero => Some(there.pa),
        }
    }

    /// Makes `page`, of which the guest has a copy that it may not execute, executable: common, where there is room. With it such copies
    /// around it, which the guest will execute, too, unless they are data.
    pub(super) fn merge<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        page: u64,
    ) -> Result<(), PageError> {
        if !self.merges.as_mut().is_some_and(|merges| merges.count(page)) {
            let mut edit = self.stage2.edit(means.memory, means.tlb, means.source);
            return Ok(edit.protect(Ipa(page), PAGE_SIZE, Attr::RAM)?);
        }
        // Beside a kernel's instructions lie others. A ramdisk's memory becomes anything once it has been read.
        let kernel = self.segments.first().is_some_and(|segment| segment.touched().contains(page));
        let within = if kernel { Span::around(page, CHUNK) } else { Span::page(page) }.clip(self.ram());
        let is_copy = |at| {
            let there = self.stage2.translate(means.memory, Ipa(at));
            there.is_some_and(|there| there.attr == Attr::RAM_DATA)
        };
        let run = self.run(within, page, is_copy);
        let own: ArrayVec<Pa, CHUNK_PAGES> = run
            .pages()
            .filter_map(|at| self.stage2.translate(means.memory, Ipa(at)))
            .map(|there| there.pa)
            .take(CHUNK_PAGES)
            .collect();
        // Nobody writes to them from here on, whatever other vCPUs do: their contents are final.
        self.stage2.edit(means.memory, means.tlb, means.source).unmap(Ipa(run.start), run.size())?;
        self.private_bytes -= run.size();
        let mut result = Ok(());
        let mut unused = Run::default();
        for (at, own) in run.pages().zip(own) {
            let common = if result.is_ok() { means.source.join(means.memory, own) } else { None };
            let (pa, attr) = common.map_or((own, Attr::RAM), |frame| (frame, Attr::RAM_READ_ONLY));
            // Tables are promised to the VM, so this does not fail; the VM would be stopped, as its pages are lost.
            let mapped = result.and_then(|()| {
                let mut edit = self.stage2.edit(means.memory, means.tlb, means.source);
                Ok(edit.map(Ipa(at), pa, PAGE_SIZE, attr)?)
            });
            match (&mapped, common) {
                (Ok(()), None) => self.private_bytes += PAGE_SIZE,
                (Ok(()), Some(_)) => {
                    self.shared_bytes += PAGE_SIZE;
                    unused.add(means.source, own, PAGE_SIZE);
                }
                (Err(_), _) => {
                    common.into_iter().for_each(|frame| means.source.leave(frame));
                    unused.add(means.source, own, PAGE_SIZE);
                }
            }
            result = mapped;
        }
        unused.give(means.source);
        result
    }
}
