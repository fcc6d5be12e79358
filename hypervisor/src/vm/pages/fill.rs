//! Finding the memory of pages: zeroed, shared, copied.

use super::segment::{Content, Span};
use super::window::AMONG_OTHERS;
use super::{Means, PageError, PageSource, Pages, common};
use crate::memory::address::{BLOCK_2M, Ipa, PAGE_SIZE, Pa};
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::{Attr, Stage2Tlb};
use crate::vm::layout::RAM_BASE;
use arrayvec::ArrayVec;

/// Pages that are copied at a time at most where there are common ones.
const LARGEST_PAGES: usize = (AMONG_OTHERS.largest / PAGE_SIZE) as usize;

/// How many bytes of untouched memory a guest that has `private` bytes of its own gets beside those that it asks for.
///
/// As with the copies: in proportion to what has proved useful, so that a guest that goes through all of its memory takes a number of
/// faults that grows with the logarithm, and one that uses little has little. No more than is zeroed in a fraction of a time slice.
fn ahead(private: u64) -> u64 {
    (private / 4).min(AHEAD_MOST)
}

/// Most of it in bytes.
const AHEAD_MOST: u64 = 16 << 20;

impl Pages {
    /// What the page at `page` holds before it is touched.
    pub(super) fn content(&self, page: u64) -> Content {
        let mut content = Content::Zero;
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.shareable().contains(page) {
                return Content::Shared(index);
            }
            if segment.touched().contains(page) {
                content = Content::Mixed;
            }
        }
        content
    }

    /// The VM's RAM.
    pub(super) fn ram(&self) -> Span {
        Span { start: RAM_BASE.0, end: RAM_BASE.0.saturating_add(self.size) }
    }

    /// The pages of `within` around `page` that are as absent as `page` is, without a gap.
    fn absent<M: PhysMemory>(&self, memory: &M, within: Span, page: u64) -> Span {
        if within.size() <= self.stage2.hole(memory, Ipa(page)) {
            // There isn't even a table: `within` lies in one aligned piece of its own size or more, all of which is absent.
            return within;
        }
        self.run(within, page, |at| self.stage2.translate(memory, Ipa(at)).is_none())
    }

    /// The pages of `within` around `page` that `belong`, without a gap; `page` does.
    pub(super) fn run(&self, within: Span, page: u64, belong: impl Fn(u64) -> bool) -> Span {
        let mut run = Span::page(page);
        while run.end < within.end && belong(run.end) {
            run.end += PAGE_SIZE;
        }
        while run.start > within.start && belong(run.start - PAGE_SIZE) {
            run.start -= PAGE_SIZE;
        }
        run
    }

    /// Frames for as much of `run` around `page` as there is in one piece: for which part, and where.
    fn take<S: PageSource>(source: &mut S, mut run: Span, page: u64) -> Result<(Span, Pa), PageError> {
        loop {
            let align = if run.size() == BLOCK_2M { BLOCK_2M } else { PAGE_SIZE };
            if let Some(pa) = source.take(run.size(), align) {
                return Ok((run, pa));
            }
            if run.size() <= PAGE_SIZE {
                return Err(PageError::OutOfMemory);
            }
            // Half of it, where `page` is.
            let half = run.size().next_power_of_two() / 2;
            run = run.clip(Span::around(page, half));
        }
    }

    /// Gives the guest zeros: all around `page` in its 2 MiB where nothing is.
    pub(super) fn zero<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        page: u64,
    ) -> Result<(), PageError> {
        let mut within = Span::around(page, BLOCK_2M).clip(self.ram());
        for segment in &self.segments {
            within = within.beside(segment.touched(), page);
        }
        let run = self.absent(means.memory, within, page);
        self.zero_run(means, run, page)?;
        self.zero_beyond(means, Span::around(page, BLOCK_2M));
        Ok(())
    }

    /// Gives the guest zeros that it has not asked for yet: whole blocks beside `block`, first those above it. None where something
    /// else is, or if there is no memory.
    fn zero_beyond<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        block: Span,
    ) {
        let mut budget = ahead(self.private_bytes);
        let mut go = |pages: &mut Pages, next: &dyn Fn(Span) -> Option<Span>| {
            let mut at = next(block);
            while budget >= BLOCK_2M
                && let Some(span) = at.filter(|&span| pages.is_untouched(means.memory, span))
                && pages.zero_run(means, span, span.start).is_ok()
            {
                budget -= BLOCK_2M;
                at = next(span);
            }
        };
        go(self, &|span| Some(Span { start: span.end, end: span.end.checked_add(BLOCK_2M)? }));
        go(self, &|span| Some(Span { start: span.start.checked_sub(BLOCK_2M)?, end: span.start }));
    }

    /// Whether `block`, 2 MiB, is RAM of which nothing is there, and where no image lies.
    fn is_untouched<M: PhysMemory>(&self, memory: &M, block: Span) -> bool {
        block.clip(self.ram()) == block
            && self.segments.iter().all(|segment| segment.touched().clip(block).size() == 0)
            && self.stage2.hole(memory, Ipa(block.start)) >= BLOCK_2M
    }

    /// Gives the guest zeros in as much of `run` around `page` as there is memory for in one piece. Nothing of it is mapped.
    pub(super) fn zero_run<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        run: Span,
        page: u64,
    ) -> Result<(), PageError> {
        let (run, pa) = Self::take(means.source, run, page)?;
        means.memory.zero(pa, run.size());
        means.memory.settle(pa, run.size(), false);
        self.map_private(means, run, pa, Attr::RAM)
    }

    /// Lets the guest see the segment's own pages: all around `page` in its 2 MiB that are not there yet.
    pub(super) fn share<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        page: u64,
        segment: usize,
    ) -> Result<(), PageError> {
        let Some(segment) = self.segments.get(segment) else { return Err(PageError::NotRam) };
        let within = Span::around(page, BLOCK_2M).clip(self.ram()).clip(segment.shareable());
        let run = self.absent(means.memory, within, page);
        let pa = segment.pa_of(run.start);
        let mut edit = self.stage2.edit(means.memory, means.tlb, means.source);
        edit.map(Ipa(run.start), pa, run.size(), Attr::RAM_READ_ONLY)?;
        self.shared_bytes += run.size();
        Ok(())
    }

    /// Gives the guest copies: of `page`, and of what lies around it and is not its own yet.
    pub(super) fn copy<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        page: u64,
    ) -> Result<(), PageError> {
        let again = self.common(means.memory, page).is_some();
        let within = self.window.around(page, again).clip(self.ram());
        let run = self.run(within, page, |at| {
            let own = self.stage2.translate(means.memory, Ipa(at)).is_some_and(|there| there.attr.write);
            !own && self.content(at) != Content::Zero
        });
        let (run, pa) = Self::take(means.source, run, page)?;
        self.fill(means.memory, run, pa);
        // What was common is not as the image has it.
        let mut common: ArrayVec<Pa, LARGEST_PAGES> = ArrayVec::new();
        for (at, to) in run.pages().zip(Span { start: pa.0, end: pa.0 + run.size() }.pages()) {
            if let Some(from) = self.common(means.memory, at) {
                common::copy(means.memory, Pa(to), from);
                // A run is no longer than a window.
                let _ = common.try_push(from);
            }
        }
        means.memory.settle(pa, run.size(), true);
        let mut edit = self.stage2.edit(means.memory, means.tlb, means.source);
        match edit.unmap(Ipa(run.start), run.size()) {
            Ok(bytes) => self.shared_bytes -= bytes,
            Err(error) => {
                means.source.give(pa, run.size());
                return Err(error.into());
            }
        }
        common.into_iter().for_each(|frame| means.source.leave(frame));
        let attr = self.copies();
        self.map_private(means, run, pa, attr)?;
        self.copied_pages += run.size() / PAGE_SIZE;
        Ok(())
    }

    /// Puts into the frames from `pa` on what `run` holds before it is touched.
    fn fill<M: PhysMemory>(&self, memory: &M, run: Span, pa: Pa) {
        // What no image covers: in the first and the last page of one.
        for page in run.pages() {
            if !self.segments.iter().any(|segment| segment.covers(page)) {
                memory.zero(Pa(pa.0 + (page - run.start)), PAGE_SIZE);
            }
        }
        for segment in &self.segments {
            if let Some((at, bytes)) = segment.part(run) {
                memory.copy_in(Pa(pa.0 + (at - run.start)), bytes);
            }
        }
    }

    /// Maps the frames from `pa` on, which hold what `run` is to hold, and of which nothing is mapped.
    fn map_private<M: PhysMemory, T: Stage2Tlb, S: PageSource>(
        &mut self,
        means: &mut Means<'_, M, T, S>,
        run: Span,
        pa: Pa,
        attr: Attr,
    ) -> Result<(), PageError> {
        let mut edit = self.stage2.edit(means.memory, means.tlb, means.source);
        if let Err(error) = edit.map(Ipa(run.start), pa, run.size(), attr) {
            means.source.give(pa, run.size());
            return Err(error.into());
        }
        self.private_bytes += run.size();
        Ok(())
    }
}
