//! virtio-blk (Virtio 1.2, 5.2): a disk that is an image of the bundle.
//!
//! A request is a header (type, sector), the data, and a byte of status. It is done when the bell rings: the data are copied between
//! the guest's memory and the image. A flush has nothing to do.
//!
//! What one request may ask for is bounded, and the driver is told the bounds (`size_max`, `seg_max`): a guest must not keep the
//! hypervisor copying for long.

mod disk;

use super::queue::{Broken, Chain, Part};
use super::{Machine, Window, registers};
use crate::ids::VmId;
use crate::sync::Mutex;
use core::fmt::Write;
use disk::Disk;

/// The only queue.
pub const REQUESTS: u32 = 0;
/// Most descriptors of the queue.
pub const QUEUE: u16 = 128;

/// A sector, the unit of addresses, in bytes.
const SECTOR: u64 = 512;
/// Most bytes of a data segment.
const SIZE_MAX: u32 = 16 << 10;
/// Most data segments of a request.
const SEG_MAX: u32 = 32;

/// VIRTIO_BLK_F_SIZE_MAX, _SEG_MAX, _BLK_SIZE, _FLUSH.
const FEATURES: u64 = 1 << 1 | 1 << 2 | 1 << 6 | 1 << 9;
/// VIRTIO_BLK_F_RO.
const READ_ONLY: u64 = 1 << 5;

const HEADER: usize = 16;
const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;
/// Bytes of the answer to GET_ID.
const ID: usize = 20;

/// What stands in the status byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// Heap of a disk in bytes.
pub fn heap_bytes(disk: &super::Disk) -> usize {
    if disk.read_only { 0 } else { disk::table_entries(disk.image.len()) * size_of::<u64>() }
}

/// The disk of a VM.
#[derive(Debug)]
pub struct Block {
    read_only: bool,
    /// Length in sectors.
    capacity: u64,
    id: [u8; ID],
    disk: Mutex<Disk>,
}

impl Block {
    /// The disk of `vm`. Allocates the table of pages of a disk that can be written.
    pub fn new(vm: VmId, disk: super::Disk) -> Block {
        Block {
            read_only: disk.read_only,
            capacity: (disk.image.len() as u64).div_ceil(SECTOR),
            id: id(vm),
            disk: Mutex::new(Disk::new(disk.image, !disk.read_only)),
        }
    }

    /// What it offers.
    pub(super) fn features(&self) -> u64 {
        FEATURES | if self.read_only { READ_ONLY } else { 0 }
    }

    /// `struct virtio_blk_config`: capacity, size_max, seg_max, geometry (none), blk_size.
    pub(super) fn config(&self) -> [u8; registers::CONFIG] {
        let mut config = [0; registers::CONFIG];
        let fields = u128::from(self.capacity) | u128::from(SIZE_MAX) << 64 | u128::from(SEG_MAX) << 96;
        let (fixed, rest) = config.split_at_mut(16);
        fixed.copy_from_slice(&fields.to_le_bytes());
        if let Some(block_size) = rest.get_mut(4..8) {
            block_size.copy_from_slice(&(SECTOR as u32).to_le_bytes());
        }
        config
    }

    /// The VM has ended: gives the pages of what was written back; how many that were.
    pub(super) fn give_back(&self, machine: &impl Machine) -> u64 {
        self.disk.lock().clear(|page| machine.give_page(page))
    }

    /// The driver has requests.
    pub(super) fn requests(&self, window: &Window, machine: &impl Machine) {
        let Some(queue) = window.queue(REQUESTS) else { return };
        window.with_queue(machine, queue.lock(), |queue, memory| {
            let disk = &mut *self.disk.lock();
            let mut used = false;
            // What comes meanwhile rings the bell again.
            for _ in 0..queue.take_notice(memory)? {
                let Some(chain) = queue.pop(memory)? else { break };
                let head = chain.head();
                let written = self.request(machine, disk, chain, memory)?;
                queue.push(memory, head, written)?;
                used = true;
            }
            if used {
                window.signal_used(machine, queue, memory)?;
            }
            Ok(())
        });
    }

    /// One request; how many bytes were written, the status included.
    fn request<M: Machine>(
        &self,
        machine: &M,
        disk: &mut Disk,
        chain: &Chain,
        memory: &M::Memory<'_>,
    ) -> Result<u32, Broken> {
        let mut header = [0; HEADER];
        let to_guest = chain.writable();
        let Some(room) = to_guest.len().checked_sub(1) else { return Err(Broken::Protocol) };
        if chain.readable().read(memory, &mut header)? < HEADER {
            return Err(Broken::Protocol);
        }
        let header = u128::from_le_bytes(header);
        let (kind, sector) = (header as u32, (header >> 64) as u64);
        let data_out = chain.readable().skip(HEADER as u32);
        let data_in = to_guest.take(room);
        let (status, written) = match kind {
            TYPE_IN => match self.range(sector, data_in) {
                None => (Status::IoError, 0),
                Some(offset) => {
                    disk.read(&machine.phys(), memory, data_in, offset)?;
                    (Status::Ok, room)
                }
            },
            TYPE_OUT if self.read_only => (Status::IoError, 0),
            TYPE_OUT => match self.range(sector, data_out) {
                None => (Status::IoError, 0),
                Some(offset) => {
                    let stored =
                        disk.write(&machine.phys(), || machine.take_page(), memory, data_out, offset)?;
                    (if stored { Status::Ok } else { Status::IoError }, 0)
                }
            },
            TYPE_FLUSH => (Status::Ok, 0),
            TYPE_GET_ID => (Status::Ok, data_in.write(memory, &self.id)? as u32),
            _ => (Status::Unsupported, 0),
        };
        to_guest.skip(room).write(memory, &[status as u8])?;
        Ok(written + 1)
    }

    /// The byte where a request's data begin on the disk, if all of them are on it and they are no more than may be asked for.
    fn range(&self, sector: u64, data: Part<'_>) -> Option<u64> {
        let len = u64::from(data.len());
        let end = sector.checked_add(len / SECTOR)?;
        let fits = len.is_multiple_of(SECTOR) && len <= u64::from(SIZE_MAX * SEG_MAX) && end <= self.capacity;
        fits.then_some(sector.checked_mul(SECTOR)?)
    }
}

/// What the disk is called: /sys/block/vda/serial on Linux.
fn id(vm: VmId) -> [u8; ID] {
    struct Text([u8; ID], usize);
    impl Write for Text {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            for byte in text.bytes() {
                *self.0.get_mut(self.1).ok_or(core::fmt::Error)? = byte;
                self.1 += 1;
            }
            Ok(())
        }
    }
    let mut text = Text([0; ID], 0);
    // It fits: a number has at most three digits.
    let _ = write!(text, "odometer-disk-{}", vm.0);
    text.0
}

const _: () = {
    // A request of the greatest length fits the queue: header and status beside the data.
    assert!(SEG_MAX + 2 <= QUEUE as u32);
};
