//! The registers of a virtio-mmio window (Virtio 1.2, 4.2.2), and what the driver and the device say to each other with them.
//!
//! Registers are 32 bits wide and accessed so (4.2.2.2); other accesses read as zero and are ignored. The configuration space,
//! behind them, takes any width that is aligned; it can't be written.

use super::queue::Table;
use super::{AccessSize, Device, Machine, Window};
use core::sync::atomic::Ordering;

/// "virt".
const MAGIC: u32 = 0x7472_6976;
/// Not the legacy interface.
const VERSION: u32 = 2;
/// "ODOM".
const VENDOR: u32 = 0x4d4f_444f;

const MAGIC_VALUE: u64 = 0x000;
const VERSION_VALUE: u64 = 0x004;
const DEVICE_ID: u64 = 0x008;
const VENDOR_ID: u64 = 0x00c;
const DEVICE_FEATURES: u64 = 0x010;
const DEVICE_FEATURES_SEL: u64 = 0x014;
const DRIVER_FEATURES: u64 = 0x020;
const DRIVER_FEATURES_SEL: u64 = 0x024;
const QUEUE_SEL: u64 = 0x030;
const QUEUE_NUM_MAX: u64 = 0x034;
const QUEUE_NUM: u64 = 0x038;
const QUEUE_READY: u64 = 0x044;
const QUEUE_NOTIFY: u64 = 0x050;
const INTERRUPT_STATUS: u64 = 0x060;
const INTERRUPT_ACK: u64 = 0x064;
const STATUS: u64 = 0x070;
const QUEUE_DESC: u64 = 0x080;
const QUEUE_DRIVER: u64 = 0x090;
const QUEUE_DEVICE: u64 = 0x0a0;
/// High half of a queue's address, behind its low half.
const HIGH: u64 = 4;
/// Length and base of the shared memory region that was selected: all ones, since there is none.
const SHM: core::ops::RangeInclusive<u64> = 0x0b0..=0x0bc;
const CONFIG_SPACE: u64 = 0x100;

/// Bytes of configuration space that a device may have.
pub const CONFIG: usize = 64;

/// Bits of Status (2.1).
pub mod status {
    /// The driver has accepted the features that it wants.
    pub const FEATURES_OK: u32 = 8;
    /// The driver runs.
    pub const DRIVER_OK: u32 = 4;
    /// The device needs a reset.
    pub const NEEDS_RESET: u32 = 64;
    /// All that a driver may set: ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK, FAILED.
    pub const DRIVERS: u32 = 1 | 2 | DRIVER_OK | FEATURES_OK | 128;
}

/// VIRTIO_F_VERSION_1: not legacy. The driver must accept it.
pub const VERSION_1: u64 = 1 << 32;
/// VIRTIO_F_EVENT_IDX.
pub const EVENT_INDEX: u64 = 1 << 29;

/// What a driver has selected and said.
#[derive(Debug, Default)]
pub struct Registers {
    device_features_sel: u32,
    driver_features_sel: u32,
    driver_features: u64,
    /// The driver wants a feature beyond the 64 that there are names for.
    wants_unknown: bool,
    queue_sel: u32,
}

impl Window {
    fn features(&self) -> u64 {
        VERSION_1 | EVENT_INDEX | self.device.features()
    }

    /// The driver reads.
    pub(super) fn read(&self, offset: u64, size: AccessSize) -> u64 {
        if offset >= CONFIG_SPACE {
            return self.read_config(offset - CONFIG_SPACE, size);
        }
        if size != AccessSize::Word {
            return 0;
        }
        let value = match offset {
            INTERRUPT_STATUS => self.interrupts.load(Ordering::SeqCst),
            STATUS => self.status.load(Ordering::SeqCst),
            MAGIC_VALUE => MAGIC,
            VERSION_VALUE => VERSION,
            DEVICE_ID => self.device.id(),
            VENDOR_ID => VENDOR,
            DEVICE_FEATURES => word(self.features(), self.registers.lock().device_features_sel),
            QUEUE_NUM_MAX => self.selected().map_or(0, |queue| queue.lock().max().into()),
            QUEUE_READY => self.selected().map_or(0, |queue| queue.lock().is_ready().into()),
            offset if SHM.contains(&offset) => u32::MAX,
            // ConfigGeneration is 0 for ever: no configuration changes.
            _ => 0,
        };
        value.into()
    }

    /// The driver writes.
    pub(super) fn write(&self, machine: &impl Machine, offset: u64, size: AccessSize, value: u64) {
        if size != AccessSize::Word {
            return;
        }
        let value = value as u32;
        match offset {
            QUEUE_NOTIFY => self.notify(machine, value),
            INTERRUPT_ACK => self.acknowledge(machine, value),
            DEVICE_FEATURES_SEL => self.registers.lock().device_features_sel = value,
            DRIVER_FEATURES_SEL => self.registers.lock().driver_features_sel = value,
            DRIVER_FEATURES => self.accept(value),
            QUEUE_SEL => self.registers.lock().queue_sel = value,
            STATUS => self.write_status(machine, value),
            _ => self.write_queue(machine, offset, value),
        }
    }

    /// The queue that QueueSel names.
    fn selected(&self) -> Option<&crate::sync::Mutex<super::Queue>> {
        let selected = self.registers.lock().queue_sel;
        self.queue(selected)
    }

    fn write_queue(&self, machine: &impl Machine, offset: u64, value: u32) {
        let Some(queue) = self.selected() else { return };
        let queue = &mut *queue.lock();
        let table = match offset & !HIGH {
            QUEUE_DESC => Table::Descriptors,
            QUEUE_DRIVER => Table::Available,
            QUEUE_DEVICE => Table::Used,
            _ => {
                match offset {
                    QUEUE_NUM => queue.set_size(value),
                    QUEUE_READY => {
                        queue.set_ready(value & 1 != 0);
                        self.start(machine, queue);
                    }
                    _ => {}
                }
                return;
            }
        };
        queue.set_address(table, |address| match offset & HIGH {
            0 => *address = *address & !0xffff_ffff | u64::from(value),
            _ => *address = *address & 0xffff_ffff | u64::from(value) << 32,
        });
    }

    /// The driver wants these features, of those that DriverFeaturesSel names. Not after it has said that it is done with them.
    fn accept(&self, value: u32) {
        let registers = &mut *self.registers.lock();
        if self.status.load(Ordering::SeqCst) & status::FEATURES_OK != 0 {
            return;
        }
        let features = &mut registers.driver_features;
        match registers.driver_features_sel {
            0 => *features = *features & !0xffff_ffff | u64::from(value),
            1 => *features = *features & 0xffff_ffff | u64::from(value) << 32,
            // There are none: whoever wants one doesn't get FEATURES_OK.
            _ => registers.wants_unknown |= value != 0,
        }
    }

    /// Bits are only ever added, until the reset by 0 (2.1.1).
    fn write_status(&self, machine: &impl Machine, value: u32) {
        let registers = &mut *self.registers.lock();
        if value == 0 {
            return self.reset_with(machine, registers);
        }
        let before = self.status.load(Ordering::SeqCst);
        let mut add = value & status::DRIVERS;
        let offered = self.features();
        let wanted = registers.driver_features;
        let possible = wanted & !offered == 0 && wanted & VERSION_1 != 0 && !registers.wants_unknown;
        if before & status::FEATURES_OK == 0 && !possible {
            // The driver reads it back, and sees that it must do without (3.1.1).
            add &= !status::FEATURES_OK;
        }
        if (before | add) & status::FEATURES_OK == 0 {
            add &= !status::DRIVER_OK;
        }
        if add & !before & status::FEATURES_OK != 0 {
            self.event_index.store(wanted & EVENT_INDEX != 0, Ordering::SeqCst);
        }
        let before = self.status.fetch_or(add, Ordering::SeqCst);
        if add & !before & status::DRIVER_OK != 0 {
            for queue in &self.queues {
                self.start(machine, &mut queue.lock());
            }
        }
    }

    /// Lets a queue's chains be taken, if the driver runs.
    fn start(&self, machine: &impl Machine, queue: &mut super::Queue) {
        if self.is_running()
            && let Some(memory) = machine.memory(self.vm)
            && queue.start(&memory, self.event_index.load(Ordering::SeqCst)).is_err()
        {
            self.fail(machine, queue);
        }
    }

    /// As after power-on.
    pub(super) fn reset(&self, machine: &impl Machine) {
        self.reset_with(machine, &mut self.registers.lock());
    }

    fn reset_with(&self, machine: &impl Machine, registers: &mut Registers) {
        // First, so that nobody begins anything; and again, since somebody who holds a queue may find a rule broken.
        self.status.store(0, Ordering::SeqCst);
        for queue in &self.queues {
            queue.lock().reset();
        }
        if let Device::Console(console) = &self.device {
            console.reset(self.vm, machine);
        }
        *registers = Registers::default();
        self.interrupts.store(0, Ordering::SeqCst);
        self.status.store(0, Ordering::SeqCst);
    }

    fn read_config(&self, offset: u64, size: AccessSize) -> u64 {
        if !size.is_aligned(offset) {
            return 0;
        }
        let config = self.device.config();
        let mut bytes = [0; 8];
        let start = offset as usize;
        if let Some(from) = config.get(start..start + size.bytes() as usize) {
            bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
        u64::from_le_bytes(bytes)
    }
}

/// Word `select` of a mask of features.
fn word(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}
