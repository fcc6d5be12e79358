//! A machine of VMs with nothing but RAM and virtio devices, and a driver for them, for tests.

use super::memory::{GuestAddress, GuestMemory, NoMemory};
use super::net::Switch;
use super::registers::{VERSION_1, status};
use super::{DeviceSet, Devices, Machine, STRIDE};
use crate::device::AccessSize;
use crate::ids::VmId;
use crate::memory::address::{PAGE_SIZE, Pa};
use crate::memory::phys::PhysMemory;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::vec::Vec;

/// Where RAM begins.
pub const RAM: u64 = 0x4000_0000;
/// Its length.
pub const RAM_BYTES: u64 = 1 << 20;

/// One VM.
pub struct FakeVm {
    pub devices: Devices,
    ram: Mutex<Vec<u8>>,
    /// How often each window's interrupt became pending.
    pub interrupts: [AtomicU32; super::MOST],
    pub output: Mutex<Vec<u8>>,
    /// Bytes of output that the console has room for.
    pub room: AtomicUsize,
    pub input: Mutex<VecDeque<u8>>,
    pub diverted: AtomicBool,
}

/// All VMs.
pub struct FakeMachine {
    pub vms: Vec<FakeVm>,
    pub switch: Switch,
    pages: Pages,
    /// Pages that are left.
    pub free: AtomicUsize,
}

impl FakeMachine {
    /// A machine of VMs with these devices.
    pub fn new(sets: &[DeviceSet]) -> FakeMachine {
        let vm = |(index, set): (usize, &DeviceSet)| FakeVm {
            devices: Devices::new(VmId(index as u16), set),
            ram: Mutex::new(std::vec![0xa5; RAM_BYTES as usize]),
            interrupts: Default::default(),
            output: Mutex::default(),
            room: AtomicUsize::new(usize::MAX),
            input: Mutex::default(),
            diverted: AtomicBool::new(false),
        };
        FakeMachine {
            vms: sets.iter().enumerate().map(vm).collect(),
            switch: Switch::new(),
            pages: Pages::default(),
            free: AtomicUsize::new(usize::MAX),
        }
    }

    pub fn ram(&self, vm: usize) -> Ram<'_> {
        Ram(&self.vms[vm].ram)
    }

    pub fn interrupts(&self, vm: usize, window: u32) -> u32 {
        self.vms[vm].interrupts[window as usize].load(SeqCst)
    }

    pub fn read(&self, vm: usize, window: u32, offset: u64, size: AccessSize) -> u64 {
        self.vms[vm].devices.read(u64::from(window) * STRIDE + offset, size)
    }

    pub fn write(&self, vm: usize, window: u32, offset: u64, value: u32) {
        let offset = u64::from(window) * STRIDE + offset;
        self.vms[vm].devices.write(self, offset, AccessSize::Word, value.into());
    }
}

/// A VM's RAM.
pub struct Ram<'a>(&'a Mutex<Vec<u8>>);

impl Ram<'_> {
    fn with<T>(&self, at: GuestAddress, bytes: u64, f: impl FnOnce(&mut [u8]) -> T) -> Result<T, NoMemory> {
        if !self.contains(at, bytes) {
            return Err(NoMemory);
        }
        let start = (at.0 - RAM) as usize;
        Ok(f(&mut self.0.lock().unwrap()[start..start + bytes as usize]))
    }

    pub fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = std::vec![0; count];
        self.read(GuestAddress(at), &mut bytes).unwrap();
        bytes
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.write(GuestAddress(at), bytes).unwrap();
    }
}

impl GuestMemory for Ram<'_> {
    fn contains(&self, at: GuestAddress, bytes: u64) -> bool {
        crate::vm::layout::in_ram(at.0, bytes, RAM_BYTES)
    }

    fn read(&self, at: GuestAddress, bytes: &mut [u8]) -> Result<(), NoMemory> {
        self.with(at, bytes.len() as u64, |ram| bytes.copy_from_slice(ram))
    }

    fn write(&self, at: GuestAddress, bytes: &[u8]) -> Result<(), NoMemory> {
        self.with(at, bytes.len() as u64, |ram| ram.copy_from_slice(bytes))
    }

    fn read16(&self, at: GuestAddress) -> Result<u16, NoMemory> {
        assert!(at.is_aligned(2));
        self.with(at, 2, |ram| u16::from_le_bytes([ram[0], ram[1]]))
    }

    fn write16(&self, at: GuestAddress, value: u16) -> Result<(), NoMemory> {
        assert!(at.is_aligned(2));
        self.with(at, 2, |ram| ram.copy_from_slice(&value.to_le_bytes()))
    }
}

/// Pages of disks.
#[derive(Clone, Default)]
pub struct Pages(std::sync::Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

impl Pages {
    fn bytes<T>(&self, at: Pa, bytes: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut pages = self.0.lock().unwrap();
        let page = pages.get_mut(&(at.0 / PAGE_SIZE)).expect("a page that was taken");
        let start = (at.0 % PAGE_SIZE) as usize;
        f(&mut page[start..start + bytes])
    }
}

impl PhysMemory for Pages {
    fn read(&self, at: Pa) -> u64 {
        self.bytes(at, 8, |bytes| u64::from_le_bytes((&*bytes).try_into().unwrap()))
    }

    fn write(&self, at: Pa, value: u64) {
        self.bytes(at, 8, |bytes| bytes.copy_from_slice(&value.to_le_bytes()));
    }

    fn read16(&self, at: Pa) -> u16 {
        self.bytes(at, 2, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn write16(&self, at: Pa, value: u16) {
        self.bytes(at, 2, |bytes| bytes.copy_from_slice(&value.to_le_bytes()));
    }

    fn zero(&self, base: Pa, bytes: u64) {
        self.bytes(base, bytes as usize, |bytes| bytes.fill(0));
    }

    fn copy_in(&self, to: Pa, bytes: &[u8]) {
        self.bytes(to, bytes.len(), |page| page.copy_from_slice(bytes));
    }

    fn settle(&self, _: Pa, _: u64, _: bool) {}

    fn copy_out(&self, from: Pa, bytes: &mut [u8]) {
        self.bytes(from, bytes.len(), |page| bytes.copy_from_slice(page));
    }
}

impl Machine for FakeMachine {
    type Memory<'a> = Ram<'a>;
    type Phys = Pages;

    fn memory(&self, vm: VmId) -> Option<Ram<'_>> {
        Some(self.ram(vm.0.into()))
    }

    fn interrupt(&self, vm: VmId, window: u32) {
        self.vms[usize::from(vm.0)].interrupts[window as usize].fetch_add(1, SeqCst);
    }

    fn vms(&self) -> usize {
        self.vms.len()
    }

    fn devices(&self, vm: VmId) -> Option<&Devices> {
        self.vms.get(usize::from(vm.0)).map(|vm| &vm.devices)
    }

    fn switch(&self) -> &Switch {
        &self.switch
    }

    fn console_output(&self, vm: VmId, bytes: &[u8]) -> usize {
        let vm = &self.vms[usize::from(vm.0)];
        let count = bytes.len().min(vm.room.load(SeqCst));
        vm.room.fetch_sub(count, SeqCst);
        vm.output.lock().unwrap().extend(&bytes[..count]);
        count
    }

    fn console_input(&self, vm: VmId, bytes: &mut [u8]) -> usize {
        let vm = &self.vms[usize::from(vm.0)];
        if !vm.diverted.load(SeqCst) {
            return 0;
        }
        let mut input = vm.input.lock().unwrap();
        let count = bytes.len().min(input.len());
        bytes.iter_mut().zip(input.drain(..count)).for_each(|(to, from)| *to = from);
        count
    }

    fn console_divert(&self, vm: VmId, diverted: bool) {
        self.vms[usize::from(vm.0)].diverted.store(diverted, SeqCst);
    }

    fn console_service(&self, _: VmId) {}

    fn take_page(&self) -> Option<Pa> {
        self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).ok()?;
        let mut pages = self.pages.0.lock().unwrap();
        let page = pages.last_key_value().map_or(1, |(last, _)| last + 1);
        pages.insert(page, std::vec![0xdd; PAGE_SIZE as usize]);
        Some(Pa(page * PAGE_SIZE))
    }

    fn give_page(&self, page: Pa) {
        assert!(self.pages.0.lock().unwrap().remove(&(page.0 / PAGE_SIZE)).is_some(), "given back twice");
        self.free.fetch_add(1, SeqCst);
    }

    fn phys(&self) -> Pages {
        self.pages.clone()
    }
}

/// One queue as the driver sees it: its tables lie at `base`, descriptors first.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub base: u64,
    pub size: u16,
    /// Next descriptor to be used, and the ring's indices.
    next: u16,
    available: u16,
    used: u16,
}

pub const DESC_NEXT: u16 = 1;
pub const DESC_WRITE: u16 = 2;

impl Ring {
    pub fn available(&self) -> u64 {
        self.base + 16 * u64::from(self.size)
    }

    pub fn used(&self) -> u64 {
        (self.available() + 6 + 2 * u64::from(self.size)).next_multiple_of(4)
    }
}

/// A driver of one window.
pub struct Driver<'a> {
    pub machine: &'a FakeMachine,
    pub vm: usize,
    pub window: u32,
    pub rings: [Ring; 2],
}

/// A piece of a chain: address, length, whether the device writes.
pub type Piece = (u64, u32, bool);

impl<'a> Driver<'a> {
    /// A driver that has done nothing yet. Its rings lie from `RAM + 0x1_0000 * (window + 1)` on.
    pub fn new(machine: &'a FakeMachine, vm: usize, window: u32, size: u16) -> Self {
        let base = RAM + 0x1_0000 * (u64::from(window) + 1);
        let ring = |index: u64| Ring { base: base + 0x4000 * index, size, next: 0, available: 0, used: 0 };
        Driver { machine, vm, window, rings: [ring(0), ring(1)] }
    }

    /// A driver that runs.
    pub fn running(machine: &'a FakeMachine, vm: usize, window: u32, size: u16) -> Self {
        let mut driver = Driver::new(machine, vm, window, size);
        driver.start(VERSION_1);
        driver
    }

    pub fn register(&self, offset: u64) -> u32 {
        self.machine.read(self.vm, self.window, offset, AccessSize::Word) as u32
    }

    pub fn set(&self, offset: u64, value: u32) {
        self.machine.write(self.vm, self.window, offset, value);
    }

    pub fn ram(&self) -> Ram<'a> {
        self.machine.ram(self.vm)
    }

    /// Status as the device has it.
    pub fn status(&self) -> u32 {
        self.register(0x70)
    }

    pub fn needs_reset(&self) -> bool {
        self.status() & status::NEEDS_RESET != 0
    }

    /// Negotiates; whether the device has agreed.
    pub fn negotiate(&self, features: u64) -> bool {
        self.set(0x70, 0);
        self.set(0x70, 1);
        self.set(0x70, 1 | 2);
        for half in 0..2 {
            self.set(0x24, half);
            self.set(0x20, (features >> (32 * half)) as u32);
        }
        self.set(0x70, 1 | 2 | status::FEATURES_OK);
        self.status() & status::FEATURES_OK != 0
    }

    /// Sets up a queue.
    pub fn set_up(&mut self, queue: usize) {
        let ring = &mut self.rings[queue];
        (ring.next, ring.available, ring.used) = (0, 0, 0);
        let ring = self.rings[queue];
        self.ram().put(ring.available(), &[0; 4]);
        self.ram().put(ring.used(), &[0; 4]);
        self.set(0x30, queue as u32);
        self.set(0x38, ring.size.into());
        for (offset, at) in [(0x80, ring.base), (0x90, ring.available()), (0xa0, ring.used())] {
            self.set(offset, at as u32);
            self.set(offset + 4, (at >> 32) as u32);
        }
        self.set(0x44, 1);
    }

    /// From reset to DRIVER_OK.
    pub fn start(&mut self, features: u64) {
        assert!(self.negotiate(features));
        for queue in 0..2 {
            self.set_up(queue);
        }
        self.set(0x70, 1 | 2 | status::FEATURES_OK | status::DRIVER_OK);
    }

    /// Writes a descriptor.
    pub fn descriptor(&self, queue: usize, index: u16, at: u64, len: u32, flags: u16, next: u16) {
        let raw = u128::from(at) | u128::from(len) << 64 | u128::from(flags) << 96 | u128::from(next) << 112;
        self.ram().put(self.rings[queue].base + 16 * u64::from(index), &raw.to_le_bytes());
    }

    /// Makes the chain that begins at `head` available, whatever that is.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let ring = &mut self.rings[queue];
        let entry = ring.available() + 4 + 2 * u64::from(ring.available % ring.size);
        ring.available = ring.available.wrapping_add(1);
        let (index, at) = (ring.available, ring.available());
        self.ram().put(entry, &head.to_le_bytes());
        self.ram().put(at + 2, &index.to_le_bytes());
    }

    /// Puts a chain together, and makes it available; its head.
    pub fn add(&mut self, queue: usize, pieces: &[Piece]) -> u16 {
        let size = self.rings[queue].size;
        let first = self.rings[queue].next;
        for (n, (at, len, write)) in (0..).zip(pieces) {
            let index = (first + n) % size;
            let last = usize::from(n) + 1 == pieces.len();
            let flags = if *write { DESC_WRITE } else { 0 } | if last { 0 } else { DESC_NEXT };
            self.descriptor(queue, index, *at, *len, flags, (index + 1) % size);
        }
        self.rings[queue].next = (first + pieces.len() as u16) % size;
        self.offer(queue, first);
        first
    }

    /// Whether the bell is to be rung after `added` chains were made available (VIRTIO_F_EVENT_IDX).
    pub fn must_ring(&self, queue: usize, added: u16) -> bool {
        let ring = &self.rings[queue];
        let at = GuestAddress(ring.used() + 4 + 8 * u64::from(ring.size));
        std::sync::atomic::fence(SeqCst);
        let event = self.ram().read16(at).unwrap();
        ring.available.wrapping_sub(event).wrapping_sub(1) < added
    }

    /// Asks for an interrupt when the used ring's index passes `index` (VIRTIO_F_EVENT_IDX).
    pub fn want_event(&self, queue: usize, index: u16) {
        let ring = &self.rings[queue];
        self.ram().put(ring.available() + 4 + 2 * u64::from(ring.size), &index.to_le_bytes());
    }

    /// Rings the bell.
    pub fn kick(&self, queue: u32) {
        self.set(0x50, queue);
    }

    /// The next chain that came back: head and bytes written.
    pub fn done(&mut self, queue: usize) -> Option<(u32, u32)> {
        let ring = &mut self.rings[queue];
        let memory = self.machine.ram(self.vm);
        let index = memory.read16(GuestAddress(ring.used() + 2)).unwrap();
        if index == ring.used {
            return None;
        }
        let entry = memory.bytes(ring.used() + 4 + 8 * u64::from(ring.used % ring.size), 8);
        ring.used = ring.used.wrapping_add(1);
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        Some((word(0), word(4)))
    }

    /// Says whether it wants interrupts.
    pub fn want_interrupts(&self, queue: usize, wanted: bool) {
        self.ram().put(self.rings[queue].available(), &[u8::from(!wanted), 0]);
    }

    /// Reads and acknowledges the interrupt status.
    pub fn acknowledge(&self) -> u32 {
        let status = self.register(0x60);
        self.set(0x64, status);
        status
    }
}
