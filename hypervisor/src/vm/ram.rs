//! A VM's memory: taken, mapped, filled, and given back.

use super::{BootImages, RamBlock, VmMemory, device_tree, layout};
use crate::memory::address::{BLOCK_1G, BLOCK_2M, Ipa, PAGE_SIZE, Pa};
use crate::memory::frames::Frames;
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::{Attr, Stage2, Stage2Config, Stage2Error, Stage2Tlb};
use alloc::vec::Vec;
use core::fmt;

/// Why a VM gets no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RamError {
    /// There is not enough.
    OutOfMemory {
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// It can't be mapped.
    Map(Stage2Error),
}

impl fmt::Display for RamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RamError::OutOfMemory { needed, free } => write!(
                f,
                "odometer,memory: {} MiB are wanted and {} MiB are free: give the machine more memory, or the VMs less",
                needed >> 20,
                free >> 20
            ),
            RamError::Map(error) => write!(f, "stage 2: {error}"),
        }
    }
}

impl From<Stage2Error> for RamError {
    fn from(error: Stage2Error) -> Self {
        RamError::Map(error)
    }
}

/// Takes `bytes` of memory in as few pieces as there are, each such that stage 2 can map it with large blocks, and maps it
/// from the start of the guest's RAM.
///
/// # Errors
///
/// There is not enough; nothing is taken then.
pub fn take<M: PhysMemory>(
    frames: &mut Frames,
    memory: &M,
    tlb: &impl Stage2Tlb,
    config: &Stage2Config,
    bytes: u64,
) -> Result<VmMemory, RamError> {
    let free = frames.free_bytes();
    let mut vm = VmMemory { stage2: Stage2::new(config, memory, frames)?, ram: Vec::new() };
    let mut done = 0;
    while done < bytes {
        let piece = allocate(frames, bytes - done, done);
        let Some((pa, size)) = piece else {
            give_back(vm, frames, memory);
            return Err(RamError::OutOfMemory { needed: bytes, free });
        };
        let ipa = layout::RAM_BASE.0 + done;
        vm.ram.push(RamBlock { pa, ipa, size });
        if let Err(error) = vm.stage2.edit(memory, tlb, frames).map(Ipa(ipa), pa, size, Attr::RAM) {
            give_back(vm, frames, memory);
            return Err(error.into());
        }
        done += size;
    }
    Ok(vm)
}

/// The largest piece of at most `wanted` bytes that there is, for the guest's RAM at `offset`.
fn allocate(frames: &mut Frames, wanted: u64, offset: u64) -> Option<(Pa, u64)> {
    let mut size = wanted;
    while size >= BLOCK_2M {
        if size >= BLOCK_1G
            && offset.is_multiple_of(BLOCK_1G)
            && let Some(pa) = frames.alloc(size, BLOCK_1G)
        {
            return Some((pa, size));
        }
        if let Some(pa) = frames.alloc(size, BLOCK_2M) {
            return Some((pa, size));
        }
        size = (size / 2).next_multiple_of(BLOCK_2M).min(size - BLOCK_2M.min(size));
        size -= size % BLOCK_2M;
    }
    let mut size = wanted.min(BLOCK_2M);
    while size >= PAGE_SIZE {
        if let Some(pa) = frames.alloc(size, PAGE_SIZE) {
            return Some((pa, size));
        }
        size = size / 2 / PAGE_SIZE * PAGE_SIZE;
    }
    None
}

/// Gives all of a VM's memory back; how many frames that were. No CPU uses its tables any more.
pub fn give_back<M: PhysMemory>(vm: VmMemory, frames: &mut Frames, memory: &M) -> u64 {
    let before = frames.free_bytes();
    vm.stage2.destroy(memory, frames, |_| {});
    for block in vm.ram {
        // A wrong range is refused and counted by the allocator.
        let _ = frames.free(block.pa, block.size);
    }
    (frames.free_bytes() - before) / PAGE_SIZE
}

/// Zeroes all of the VM's RAM.
pub fn zero<M: PhysMemory>(vm: &VmMemory, memory: &M) {
    for block in &vm.ram {
        memory.zero(block.pa, block.size);
    }
}

/// Puts kernel, ramdisk and device tree where they belong.
///
/// # Errors
///
/// The device tree can't be written, or is larger than was planned for.
pub fn load<M: PhysMemory>(
    vm: &VmMemory,
    memory: &M,
    images: &BootImages,
    vcpus: usize,
    bytes: u64,
) -> Result<(), device_tree::DeviceTreeError> {
    let ramdisk = images.ramdisk.zip(images.placement.ramdisk);
    copy(vm, memory, images.placement.kernel.0, images.kernel);
    if let Some((ramdisk, ipa)) = ramdisk {
        copy(vm, memory, ipa.0, ramdisk);
    }
    match images.fdt {
        Some(fdt) => copy(vm, memory, images.placement.dtb.0, fdt),
        None => {
            let spec = device_tree::DeviceTreeSpec {
                vcpus: vcpus as u32,
                memory: bytes,
                bootargs: images.bootargs,
                ramdisk: ramdisk.map(|(ramdisk, ipa)| (ipa, ramdisk.len() as u64)),
                virtio: images.devices.len() as u32,
            };
            copy(vm, memory, images.placement.dtb.0, &device_tree::build(&spec)?);
        }
    }
    Ok(())
}

/// Copies `bytes` to the guest's address `ipa`; what lies outside of its RAM (which placement rules out) is left out.
fn copy<M: PhysMemory>(vm: &VmMemory, memory: &M, ipa: u64, bytes: &[u8]) {
    for block in &vm.ram {
        let start = ipa.max(block.ipa);
        let end = (ipa + bytes.len() as u64).min(block.ipa + block.size);
        if start < end
            && let Some(part) = bytes.get((start - ipa) as usize..(end - ipa) as usize)
        {
            memory.copy_in(Pa(block.pa.0 + (start - block.ipa)), part);
        }
    }
}
