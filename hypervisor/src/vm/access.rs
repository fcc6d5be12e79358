//! The only door through which devices reach a guest's memory.

use super::Vm;
use crate::arch;
use crate::device::virtio::memory::{GuestAddress, GuestMemory, NoMemory};
use crate::memory::address::Pa;
use crate::memory::phys::PhysMemory;
use crate::vm::pages::Access as Kind;

/// Access to a VM's RAM. Each call takes the lock of the VM's memory, so that it can't be given back meanwhile; what isn't RAM, and all
/// of it once it has been given back, is refused.
#[derive(Clone, Copy)]
pub struct Access<'a>(pub &'a Vm);

impl Access<'_> {
    /// Calls `each` with the places in the machine's memory of the range, in their order, and what they are at in the range. What was
    /// not there, or not to be written, is after this.
    fn places(
        &self,
        kind: Kind,
        at: GuestAddress,
        bytes: u64,
        mut each: impl FnMut(Pa, u64, u64),
    ) -> Result<(), NoMemory> {
        let vm = self.0;
        let system = arch::this_cpu().system;
        let mut guard = vm.memory.lock();
        let memory = guard.as_mut().ok_or(NoMemory)?;
        let before = memory.usage();
        let mut done = 0;
        // At least once, so that the address of an empty range is looked at too.
        loop {
            let at = at.plus(done).0;
            let found =
                memory.reach(system.store(), &arch::memory(), &arch::RunningGuest(&vm.vmid), at, kind);
            let (pa, here) = found.map_err(|_| NoMemory)?;
            let len = here.min(bytes - done);
            each(pa, done, len);
            done += len;
            if done == bytes {
                break;
            }
        }
        if memory.usage() != before {
            vm.usage.store(memory.usage());
        }
        Ok(())
    }
}

impl GuestMemory for Access<'_> {
    fn contains(&self, at: GuestAddress, bytes: u64) -> bool {
        super::layout::in_ram(at.0, bytes, self.0.memory_bytes)
    }

    fn read(&self, at: GuestAddress, bytes: &mut [u8]) -> Result<(), NoMemory> {
        let memory = arch::cached_memory();
        self.places(Kind::Read, at, bytes.len() as u64, |pa, start, len| {
            if let Some(bytes) = bytes.get_mut(start as usize..(start + len) as usize) {
                memory.copy_out(pa, bytes);
            }
        })
    }

    fn write(&self, at: GuestAddress, bytes: &[u8]) -> Result<(), NoMemory> {
        let memory = arch::cached_memory();
        self.places(Kind::Write, at, bytes.len() as u64, |pa, start, len| {
            if let Some(bytes) = bytes.get(start as usize..(start + len) as usize) {
                memory.copy_in(pa, bytes);
            }
        })
    }

    fn read16(&self, at: GuestAddress) -> Result<u16, NoMemory> {
        let mut value = 0;
        if !at.is_aligned(2) {
            return Err(NoMemory);
        }
        self.places(Kind::Read, at, 2, |pa, _, _| value = arch::cached_memory().read16(pa))?;
        Ok(value)
    }

    fn write16(&self, at: GuestAddress, value: u16) -> Result<(), NoMemory> {
        if !at.is_aligned(2) {
            return Err(NoMemory);
        }
        self.places(Kind::Write, at, 2, |pa, _, _| arch::cached_memory().write16(pa, value))
    }
}
