//! Virtio devices behind virtio-mmio windows (Virtio 1.2, 4.2, "version 2": no legacy interface).
//!
//! A VM has at most one of each kind, in windows one behind the other ([`Devices`]):
//!
//! | device | queues | what it does |
//! |---|---|---|
//! | [`console`] | receive, transmit | the VM's end of the console, beside its PL011: a block of output costs one notification |
//! | [`block`] | requests | a disk that is an image of the bundle: read-only, or with a private copy of what is written |
//! | [`net`] | receive, transmit | a network card on the [`Switch`] that all VMs with one share |
//!
//! A driver rings a device's bell with a write to QueueNotify, and what it asks for is done in that exit: nothing waits in the
//! hypervisor, so nothing has to be bounded, aged or cleaned up there. What a guest can make the hypervisor do in one exit is bounded by the
//! size of a queue and of a request.
//!
//! Nothing that a guest writes is trusted ([`queue`], [`memory`]). A driver that breaks the rules finds its device with
//! DEVICE_NEEDS_RESET (2.1.2), which does nothing more until it is reset; nobody else notices.
//!
//! Locks, in their order: a window's registers, its transmit or request queue, a receive queue (its own, or with the switch that of
//! *one* other VM), then what is behind [`Machine`]: memory, frames. Nobody holds two receive queues, and who holds one asks for no
//! transmit queue: VMs that send to each other can't wait for each other in a ring. Interrupt status and device status are
//! atomic words. Nobody holds any of them when asking for the console's lock; who comes from the console with its lock
//! held only tries ([`console`]).

pub mod block;
pub mod console;
#[cfg(test)]
mod fake;
pub mod memory;
pub mod net;
pub mod queue;
mod registers;
#[cfg(test)]
mod tests;

use super::AccessSize;
use crate::ids::VmId;
use crate::memory::address::Pa;
use crate::memory::phys::PhysMemory;
use crate::stats::Reason;
use crate::sync::{Mutex, MutexGuard};
use arrayvec::ArrayVec;
use block::Block;
use console::Console;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use memory::GuestMemory;
use net::{Net, Switch};
use queue::{Broken, Queue};
use registers::{Registers, status};

/// Bytes from one window to the next.
pub const STRIDE: u64 = crate::vm::layout::VIRTIO_STRIDE;
/// Kinds of devices, of each of which a VM has one or none.
pub const MOST: usize = 3;
/// Most queues of a device.
const QUEUES: usize = 2;

/// What devices need of the machine around them. All of it may be called by any CPU, under a queue's lock unless it says otherwise.
pub trait Machine {
    /// The RAM of a VM.
    type Memory<'a>: GuestMemory
    where
        Self: 'a;
    /// Memory that is not a guest's.
    type Phys: PhysMemory;

    /// The RAM of `vm`.
    fn memory(&self, vm: VmId) -> Option<Self::Memory<'_>>;
    /// The interrupt of `vm`'s window `window` becomes pending.
    fn interrupt(&self, vm: VmId, window: u32);
    /// How many VMs there are.
    fn vms(&self) -> usize;
    /// The devices of `vm`.
    fn devices(&self, vm: VmId) -> Option<&Devices>;
    /// The switch.
    fn switch(&self) -> &Switch;
    /// Output of `vm` for the console; how many bytes it has taken.
    fn console_output(&self, vm: VmId, bytes: &[u8]) -> usize;
    /// Input of `vm` is to be had by [`console_input`](Self::console_input) from now on, or no more: its PL011 gets it.
    fn console_divert(&self, vm: VmId, diverted: bool);
    /// Takes input of `vm` from the console; how many bytes that are.
    fn console_input(&self, vm: VmId, bytes: &mut [u8]) -> usize;
    /// Output or input was moved: lets the console look. Not under a lock.
    fn console_service(&self, vm: VmId);
    /// Takes a page of 4 KiB for a disk.
    fn take_page(&self) -> Option<Pa>;
    /// Gives it back.
    fn give_page(&self, page: Pa);
    /// Access to such pages.
    fn phys(&self) -> Self::Phys;
}

/// The part of a window that depends on its kind.
#[derive(Debug)]
pub enum Device {
    /// virtio-console.
    Console(Console),
    /// virtio-blk.
    Block(Block),
    /// virtio-net.
    Net(Net),
}

impl Device {
    /// DeviceID (Virtio 1.2, 5).
    const fn id(&self) -> u32 {
        match self {
            Device::Net(_) => 1,
            Device::Block(_) => 2,
            Device::Console(_) => 3,
        }
    }

    /// What it offers, beside what the transport does.
    fn features(&self) -> u64 {
        match self {
            Device::Console(_) => 0,
            Device::Block(block) => block.features(),
            Device::Net(_) => net::FEATURES,
        }
    }

    /// Its configuration space.
    fn config(&self) -> [u8; registers::CONFIG] {
        match self {
            Device::Console(_) => [0; registers::CONFIG],
            Device::Block(block) => block.config(),
            Device::Net(net) => net.config(),
        }
    }

    fn queues(&self) -> ArrayVec<Mutex<Queue>, QUEUES> {
        let queue = |max, quiet| Mutex::new(Queue::new(max, quiet));
        match self {
            Device::Console(_) => [queue(console::QUEUE, false), queue(console::QUEUE, false)].into(),
            Device::Block(_) => core::iter::once(queue(block::QUEUE, false)).collect(),
            // New buffers change nothing at once: a frame is delivered when it is sent, or never.
            Device::Net(_) => [queue(net::QUEUE, true), queue(net::QUEUE, false)].into(),
        }
    }
}

/// A virtio-mmio window and the device behind it.
#[derive(Debug)]
pub struct Window {
    vm: VmId,
    /// Its place among the VM's windows.
    index: u32,
    /// Status: set by the driver, and NEEDS_RESET by whoever finds a rule broken.
    status: AtomicU32,
    /// InterruptStatus.
    interrupts: AtomicU32,
    /// The driver has accepted VIRTIO_F_EVENT_IDX.
    event_index: AtomicBool,
    registers: Mutex<Registers>,
    queues: ArrayVec<Mutex<Queue>, QUEUES>,
    device: Device,
}

/// InterruptStatus: a queue's used ring has grown.
const USED: u32 = 1;
/// InterruptStatus: the configuration, or the status, has changed.
const CONFIGURATION: u32 = 2;

impl Window {
    fn new(vm: VmId, index: u32, device: Device) -> Window {
        Window {
            vm,
            index,
            status: AtomicU32::new(0),
            interrupts: AtomicU32::new(0),
            event_index: AtomicBool::new(false),
            registers: Mutex::new(Registers::default()),
            queues: device.queues(),
            device,
        }
    }

    /// Raises an interrupt for `bit` of InterruptStatus. The line is an edge: one interrupt each time that the status leaves 0, and
    /// one when the driver acknowledges less than there is ([`Window::acknowledge`]).
    fn signal(&self, machine: &impl Machine, bit: u32) {
        if self.interrupts.fetch_or(bit, Ordering::SeqCst) == 0 {
            machine.interrupt(self.vm, self.index);
        }
    }

    fn acknowledge(&self, machine: &impl Machine, bits: u32) {
        let before = self.interrupts.fetch_and(!bits, Ordering::SeqCst);
        if before & bits != 0 && before & !bits != 0 {
            machine.interrupt(self.vm, self.index);
        }
    }

    /// Raises the interrupt for what was given back in `queue`, if the driver wants one.
    fn signal_used<M: Machine>(
        &self,
        machine: &M,
        queue: &mut Queue,
        memory: &M::Memory<'_>,
    ) -> Result<(), Broken> {
        if queue.wants_interrupt(memory)? {
            self.signal(machine, USED);
        }
        Ok(())
    }

    /// A rule was broken: the device does nothing more until its reset. `queue` is the one where it was found.
    fn fail(&self, machine: &impl Machine, queue: &mut Queue) {
        queue.stop();
        let before = self.status.fetch_or(status::NEEDS_RESET, Ordering::SeqCst);
        if before & (status::NEEDS_RESET | status::DRIVER_OK) == status::DRIVER_OK {
            self.signal(machine, CONFIGURATION);
        }
    }

    /// Whether the driver runs and has broken no rule.
    fn is_running(&self) -> bool {
        let status = self.status.load(Ordering::SeqCst);
        status & (status::NEEDS_RESET | status::DRIVER_OK) == status::DRIVER_OK
    }

    fn queue(&self, index: u32) -> Option<&Mutex<Queue>> {
        self.queues.get(index as usize)
    }

    /// Runs `action` on a locked queue; if a rule is found broken there, the device fails.
    fn with_queue<M: Machine>(
        &self,
        machine: &M,
        mut queue: MutexGuard<'_, Queue>,
        action: impl FnOnce(&mut Queue, &M::Memory<'_>) -> Result<(), Broken>,
    ) {
        let Some(memory) = machine.memory(self.vm) else { return };
        if self.is_running() && action(&mut queue, &memory).is_err() {
            self.fail(machine, &mut queue);
        }
    }

    /// The driver rings the bell of queue `index`.
    fn notify(&self, machine: &impl Machine, index: u32) {
        match (&self.device, index) {
            (Device::Console(console), console::RECEIVE) => console.receive(self, machine),
            (Device::Console(console), console::TRANSMIT) => console.transmit(self, machine),
            (Device::Block(block), block::REQUESTS) => block.requests(self, machine),
            (Device::Net(net), net::TRANSMIT) => net.transmit(self, machine),
            _ => {}
        }
    }
}

/// What devices a VM is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceSet {
    /// A virtio-console.
    pub console: bool,
    /// A disk.
    pub disk: Option<Disk>,
    /// A network card.
    pub net: bool,
}

/// A disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Its content.
    pub image: &'static [u8],
    /// Whether it can't be written.
    pub read_only: bool,
}

impl DeviceSet {
    /// How many devices that are.
    pub fn len(&self) -> usize {
        usize::from(self.console) + usize::from(self.disk.is_some()) + usize::from(self.net)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap that they take, in bytes, beside [`Devices`] itself.
    pub fn heap_bytes(&self) -> usize {
        let mut bytes = 0;
        if self.console {
            bytes += 2 * Queue::heap_bytes(console::QUEUE);
        }
        if let Some(disk) = self.disk {
            bytes += Queue::heap_bytes(block::QUEUE) + block::heap_bytes(&disk);
        }
        if self.net {
            bytes += 2 * Queue::heap_bytes(net::QUEUE) + Net::HEAP;
        }
        bytes
    }
}

/// The virtio devices of one VM.
#[derive(Debug)]
pub struct Devices {
    windows: ArrayVec<Window, MOST>,
}

impl Devices {
    /// The devices of `vm`, as after reset. Allocates.
    pub fn new(vm: VmId, set: &DeviceSet) -> Devices {
        let devices = [
            set.console.then(|| Device::Console(Console::default())),
            set.disk.map(|disk| Device::Block(Block::new(vm, disk))),
            set.net.then(|| Device::Net(Net::new(vm))),
        ];
        let windows =
            (0..).zip(devices.into_iter().flatten()).map(|(index, device)| Window::new(vm, index, device));
        Devices { windows: windows.collect() }
    }

    /// How many windows there are.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    fn at(&self, offset: u64) -> Option<(&Window, u64)> {
        Some((self.windows.get((offset / STRIDE) as usize)?, offset % STRIDE))
    }

    /// A guest reads `size` at `offset` from the first window on.
    pub fn read(&self, offset: u64, size: AccessSize) -> u64 {
        self.at(offset).map_or(0, |(window, offset)| window.read(offset, size))
    }

    /// A guest writes `size` at `offset` from the first window on.
    pub fn write(&self, machine: &impl Machine, offset: u64, size: AccessSize, value: u64) {
        if let Some((window, offset)) = self.at(offset) {
            window.write(machine, offset, size, value);
        }
    }

    /// What an access at `offset` is counted as.
    pub fn reason(&self, offset: u64) -> Reason {
        match self.at(offset).map(|(window, _)| &window.device) {
            Some(Device::Console(_)) => Reason::MmioVirtioConsole,
            Some(Device::Block(_)) => Reason::MmioVirtioBlk,
            Some(Device::Net(_)) => Reason::MmioVirtioNet,
            None => Reason::MmioVirtio,
        }
    }

    /// The VM is reset: so are the devices. A disk keeps what was written, as one does.
    pub fn reset(&self, machine: &impl Machine) {
        self.windows.iter().for_each(|window| window.reset(machine));
    }

    /// The VM has ended: nothing reaches its memory from here any more, and disks give their pages back; how many that were.
    pub fn end(&self, machine: &impl Machine) -> u64 {
        self.reset(machine);
        let disks = self.windows.iter().filter_map(|window| match &window.device {
            Device::Block(block) => Some(block),
            _ => None,
        });
        disks.map(|block| block.give_back(machine)).sum()
    }

    /// The network card and its window.
    pub fn net(&self) -> Option<(&Net, &Window)> {
        self.windows.iter().find_map(|window| match &window.device {
            Device::Net(net) => Some((net, window)),
            _ => None,
        })
    }

    /// The console and its window.
    fn console(&self) -> Option<(&Console, &Window)> {
        self.windows.iter().find_map(|window| match &window.device {
            Device::Console(console) => Some((console, window)),
            _ => None,
        })
    }

    /// The console has room for output of the VM again. It may hold its lock. Returns whether there is more output now.
    pub fn console_has_room(&self, machine: &impl Machine) -> bool {
        self.console().is_some_and(|(console, window)| console.resume(window, machine))
    }

    /// The console has input for the VM. It may hold its lock.
    pub fn console_has_input(&self, machine: &impl Machine) {
        if let Some((console, window)) = self.console() {
            console.offer_input(window, machine);
        }
    }
}
