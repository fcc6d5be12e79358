//! What virtio devices need of the machine, on the machine.

use super::access::Access;
use super::layout;
use crate::arch;
use crate::device::virtio::net::Switch;
use crate::device::virtio::{Devices, Machine};
use crate::ids::VmId;
use crate::memory::address::{PAGE_SIZE, Pa};
use crate::memory::phys::Identity;
use crate::scheduler::{self, Cpu};
use crate::vm::Vm;

/// This CPU, as the machine around devices.
#[derive(Clone, Copy)]
pub struct Host(&'static Cpu);

impl Host {
    /// The CPU that runs this.
    #[inline]
    pub fn here() -> Host {
        Host(arch::this_cpu())
    }

    fn vm(&self, vm: VmId) -> Option<&'static Vm> {
        self.0.system.vms().get(usize::from(vm.0)).copied()
    }
}

impl Machine for Host {
    type Memory<'a> = Access<'a>;
    type Phys = Identity;

    fn memory(&self, vm: VmId) -> Option<Access<'_>> {
        self.vm(vm).map(Access)
    }

    fn interrupt(&self, vm: VmId, window: u32) {
        if let Some(vm) = self.vm(vm) {
            let notify = &mut |index| scheduler::notify_index(self.0, vm, index);
            vm.vgic.post_spi(layout::virtio_intid(window), notify);
        }
    }

    fn vms(&self) -> usize {
        self.0.system.vms().len()
    }

    fn devices(&self, vm: VmId) -> Option<&Devices> {
        self.vm(vm).map(|vm| &vm.devices)
    }

    fn switch(&self) -> &Switch {
        &self.0.system.switch
    }

    fn console_output(&self, vm: VmId, bytes: &[u8]) -> usize {
        self.0.system.console.put_output(vm, bytes)
    }

    fn console_input(&self, vm: VmId, bytes: &mut [u8]) -> usize {
        self.0.system.console.take_input(vm, bytes)
    }

    fn console_divert(&self, vm: VmId, diverted: bool) {
        self.0.system.console.divert_input(vm, diverted);
    }

    fn console_service(&self, vm: VmId) {
        self.0.system.console.attend(vm);
    }

    fn take_page(&self) -> Option<Pa> {
        self.0.system.frames.lock().alloc(PAGE_SIZE, PAGE_SIZE)
    }

    fn give_page(&self, page: Pa) {
        // A wrong page is refused and counted by the allocator.
        let _ = self.0.system.frames.lock().free(page, PAGE_SIZE);
    }

    fn phys(&self) -> Identity {
        arch::cached_memory()
    }
}
