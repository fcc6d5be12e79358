//! A chain of descriptors, copied out of the guest's memory: what the device reads, and what it writes.

use crate::device::virtio::memory::{GuestAddress, GuestMemory, NoMemory};
use alloc::vec::Vec;

/// A piece of a chain, within RAM when it was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) at: GuestAddress,
    pub(super) len: u32,
}

/// A chain of descriptors: what the device reads, then what it writes.
#[derive(Debug)]
pub struct Chain {
    pub(super) head: u16,
    pub(super) segments: Vec<Segment>,
    /// Segments that the device reads; those behind are for writing.
    pub(super) readable: usize,
    /// Bytes in each half.
    pub(super) len: [u32; 2],
}

/// A part of a chain: what the device reads, or what it writes, as one row of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    segments: &'a [Segment],
    /// Bytes of the first segment that are not in it.
    skip: u32,
    len: u32,
}

impl Chain {
    /// Its number, by which the driver knows it.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// What the device reads.
    pub fn readable(&self) -> Part<'_> {
        let (segments, _) = self.segments.split_at(self.readable.min(self.segments.len()));
        Part { segments, skip: 0, len: self.len[0] }
    }

    /// What the device writes.
    pub fn writable(&self) -> Part<'_> {
        let (_, segments) = self.segments.split_at(self.readable.min(self.segments.len()));
        Part { segments, skip: 0, len: self.len[1] }
    }
}

impl<'a> Part<'a> {
    /// Its bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many pieces it is in.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The part behind the first `bytes`; empty if there are not so many.
    pub fn skip(mut self, bytes: u32) -> Part<'a> {
        let mut left = bytes.min(self.len);
        self.len -= left;
        while let Some((first, rest)) = self.segments.split_first() {
            let here = first.len.saturating_sub(self.skip);
            if left < here {
                self.skip += left;
                break;
            }
            left -= here;
            self.skip = 0;
            self.segments = rest;
        }
        self
    }

    /// The first `bytes` of it, or all if there are not so many.
    pub fn take(mut self, bytes: u32) -> Part<'a> {
        self.len = self.len.min(bytes);
        self
    }

    /// Its pieces of contiguous guest memory: addresses and lengths in bytes, none of them empty.
    pub fn pieces(self) -> impl Iterator<Item = (GuestAddress, u32)> + use<'a> {
        let mut left = self.len;
        let mut skip = self.skip;
        self.segments.iter().filter_map(move |segment| {
            let skipped = core::mem::take(&mut skip);
            let len = segment.len.saturating_sub(skipped).min(left);
            left -= len;
            (len != 0).then(|| (segment.at.plus(u64::from(skipped)), len))
        })
    }

    /// Copies its beginning into `bytes`; how many that were.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn read(self, memory: &impl GuestMemory, bytes: &mut [u8]) -> Result<usize, NoMemory> {
        let mut rest = bytes;
        let mut done = 0;
        for (at, len) in self.pieces() {
            let count = rest.len().min(len as usize);
            let Some((here, behind)) = core::mem::take(&mut rest).split_at_mut_checked(count) else { break };
            memory.read(at, here)?;
            done += count;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        Ok(done)
    }

    /// Copies `bytes` to its beginning; how many fitted.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn write(self, memory: &impl GuestMemory, bytes: &[u8]) -> Result<usize, NoMemory> {
        let mut rest = bytes;
        for (at, len) in self.pieces() {
            let count = rest.len().min(len as usize);
            let Some((here, behind)) = rest.split_at_checked(count) else { break };
            memory.write(at, here)?;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        Ok(bytes.len() - rest.len())
    }
}
