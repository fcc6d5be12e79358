//! A machine of VMs with nothing but RAM and virtio devices, and a driver for them (`driver`), for tests.

mod driver;

pub use driver::{DESC_NEXT, DESC_WRITE, Driver};

use super::memory::{GuestAddress, GuestMemory, NoMemory};
use super::net::Switch;
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
