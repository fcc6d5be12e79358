//! The machine that every guest sees: where RAM and devices are, and which interrupts they have.
//!
//! It is QEMU's `virt` machine (its `base_memmap` and `a15irqmap`), so that an OS image that boots there
//! boots here. All addresses are guest physical ones.

use crate::ids::{IntId, MAX_VCPUS};
use crate::memory::address::Ipa;

/// Beginning of RAM.
pub const RAM_BASE: Ipa = Ipa(0x4000_0000);
/// Least RAM of a VM in bytes.
pub const RAM_LEAST: u64 = 1 << 20;
/// Most RAM of a VM in bytes: up to where `virt` has its next device.
pub const RAM_MOST: u64 = 255 << 30;

/// Whether `bytes` from `ipa` on are in the RAM of a VM that has `memory` bytes of it. An empty range is, if its address is in RAM or its end.
pub const fn in_ram(ipa: u64, bytes: u64, memory: u64) -> bool {
    match ipa.checked_sub(RAM_BASE.0) {
        Some(offset) => offset <= memory && bytes <= memory - offset,
        None => false,
    }
}

/// The GIC's distributor.
pub const GICD_BASE: Ipa = Ipa(0x0800_0000);
/// Length of the distributor's registers in bytes.
pub const GICD_SIZE: u64 = 0x1_0000;
/// The redistributors, one after the other by vCPU.
pub const GICR_BASE: Ipa = Ipa(0x080a_0000);
/// Length of one vCPU's redistributor in bytes: its two frames.
pub const GICR_STRIDE: u64 = 0x2_0000;
/// Length of the redistributor region of a VM with the most vCPUs, in bytes.
pub const GICR_SIZE_MOST: u64 = GICR_STRIDE * MAX_VCPUS as u64;

/// The PL011.
pub const UART_BASE: Ipa = Ipa(0x0900_0000);
/// Length of the PL011's registers in bytes.
pub const UART_SIZE: u64 = 0x1000;
/// The PL011's interrupt, level-triggered.
pub const UART_INTID: IntId = IntId::spi(1);
/// Frequency of the PL011's clock in Hz.
pub const UART_CLOCK_HZ: u32 = 24_000_000;

/// The PL031 real-time clock.
pub const RTC_BASE: Ipa = Ipa(0x0901_0000);
/// Length of the PL031's registers in bytes.
pub const RTC_SIZE: u64 = 0x1000;
/// The PL031's interrupt, level-triggered.
pub const RTC_INTID: IntId = IntId::spi(2);

/// The records of stolen time, where `virt` has them: read-only memory, a page of which is there once a guest has asked for it.
pub const STOLEN_TIME_BASE: Ipa = Ipa(0x090a_0000);
/// Length of what is set aside for them in bytes: a guest's page, however large.
pub const STOLEN_TIME_SIZE: u64 = 0x1_0000;

/// The first virtio-mmio window.
pub const VIRTIO_BASE: Ipa = Ipa(0x0a00_0000);
/// Distance from one virtio-mmio window to the next, in bytes.
pub const VIRTIO_STRIDE: u64 = 0x200;
/// Most virtio-mmio windows: half of what `virt` has, as many as there are SPIs for ([`crate::vgic::SPIS`]).
pub const VIRTIO_MOST: u32 = 16;

/// The interrupt of virtio-mmio window `index`, edge-triggered.
pub const fn virtio_intid(index: u32) -> IntId {
    IntId::spi(16 + index)
}

/// The EL1 virtual timer's interrupt.
pub const TIMER_VIRT_INTID: IntId = IntId::ppi(11);
/// The EL1 physical timer's interrupt.
pub const TIMER_PHYS_INTID: IntId = IntId::ppi(14);
/// The secure EL1 physical timer's interrupt: named in the device tree, never raised.
pub const TIMER_SECURE_INTID: IntId = IntId::ppi(13);
/// The EL2 physical timer's interrupt: named in the device tree, never raised.
pub const TIMER_HYP_INTID: IntId = IntId::ppi(10);

// No device window overlaps another or RAM.
const _: () = {
    assert!(GICD_BASE.0 + GICD_SIZE <= GICR_BASE.0);
    assert!(GICR_BASE.0 + GICR_SIZE_MOST <= UART_BASE.0);
    assert!(UART_BASE.0 + UART_SIZE <= RTC_BASE.0);
    assert!(RTC_BASE.0 + RTC_SIZE <= STOLEN_TIME_BASE.0);
    assert!(STOLEN_TIME_BASE.0 + STOLEN_TIME_SIZE <= VIRTIO_BASE.0);
    assert!(VIRTIO_BASE.0 + VIRTIO_STRIDE * VIRTIO_MOST as u64 <= RAM_BASE.0);
};
