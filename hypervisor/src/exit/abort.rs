//! Stage-2 aborts: device emulation, memory that is not there yet, and accesses to nothing.

use super::dispatch::step;
use super::syndrome::{DataAbort, FaultAddress, MemoryFault, Syndrome};
use crate::arch::{self, HardwareListRegisters, context::Held};
use crate::ids::VcpuIndex;
use crate::scheduler;
use crate::stats::Reason;
use crate::vm::host::Host;
use crate::vm::layout::{
    GICD_BASE, GICD_SIZE, GICR_BASE, GICR_STRIDE, RAM_BASE, RTC_BASE, RTC_SIZE, UART_BASE, UART_SIZE,
};
use crate::vm::layout::{VIRTIO_BASE, VIRTIO_MOST, VIRTIO_STRIDE};
use crate::vm::life;
use crate::vm::pages::PageError;

/// Exception classes of aborts that EL1 takes: from EL0 and from EL1 itself.
const EC_INSTRUCTION_ABORT_LOWER: u64 = 0x20;
const EC_DATA_ABORT_LOWER: u64 = 0x24;
/// Added to those for an abort from the same level.
const EC_SAME_LEVEL: u64 = 1;
/// IL, and DFSC or IFSC: synchronous external abort.
const EXTERNAL_ABORT: u64 = 1 << 25 | 0x10;

/// A load or store that stage 2 does not let through.
pub fn data(held: &mut Held, syndrome: Syndrome) -> Reason {
    let abort = DataAbort::new(syndrome);
    if !abort.is_described() || !abort.is_translation_fault() {
        return memory(held, syndrome, EC_DATA_ABORT_LOWER);
    }
    let ipa = arch::fault_ipa_page() | arch::fault_address() & 0xfff;
    let vcpu = held.vcpu;
    let vm = vcpu.vm;
    let size = abort.size();
    let rt = abort.rt();
    // Differences that wrap: an address below a window is a huge offset.
    let reason = if ipa.wrapping_sub(GICD_BASE.0) < GICD_SIZE {
        let offset = ipa.wrapping_sub(GICD_BASE.0);
        if abort.is_write() {
            let cpu = arch::this_cpu();
            let notify = &mut |index| scheduler::notify_index(cpu, vm, index);
            vm.vgic.dist_write(vcpu.index, &HardwareListRegisters, offset, size, held.register(rt), notify);
        } else {
            let value = vm.vgic.dist_read(vcpu.index, &HardwareListRegisters, offset, size);
            held.set_register(rt, abort.extend(value));
        }
        Reason::MmioGicd
    } else if ipa.wrapping_sub(UART_BASE.0) < UART_SIZE {
        let console = &arch::this_cpu().system.console;
        let offset = ipa.wrapping_sub(UART_BASE.0);
        if abort.is_write() {
            console.guest_write(vm.id, offset, abort.access_size(), held.register(rt));
        } else {
            held.set_register(rt, abort.extend(console.guest_read(vm.id, offset, abort.access_size())));
        }
        Reason::MmioUart
    } else if ipa.wrapping_sub(GICR_BASE.0) < GICR_STRIDE * vm.vgic.vcpus() as u64 {
        let frame = VcpuIndex((ipa.wrapping_sub(GICR_BASE.0) / GICR_STRIDE) as u8);
        let offset = ipa.wrapping_sub(GICR_BASE.0) % GICR_STRIDE;
        if abort.is_write() {
            let cpu = arch::this_cpu();
            let notify = &mut |index| scheduler::notify_index(cpu, vm, index);
            vm.vgic.redist_write(
                vcpu.index,
                &HardwareListRegisters,
                frame,
                offset,
                size,
                held.register(rt),
                notify,
            );
        } else {
            let value = vm.vgic.redist_read(vcpu.index, &HardwareListRegisters, frame, offset, size);
            held.set_register(rt, abort.extend(value));
        }
        Reason::MmioGicr
    } else if ipa.wrapping_sub(RTC_BASE.0) < RTC_SIZE {
        let offset = ipa.wrapping_sub(RTC_BASE.0);
        if abort.is_write() {
            vm.rtc.write(offset, abort.access_size(), held.register(rt), life::seconds());
        } else {
            held.set_register(rt, abort.extend(vm.rtc.read(offset, abort.access_size(), life::seconds())));
        }
        Reason::MmioRtc
    } else if ipa < RAM_BASE.0 {
        let offset = ipa.wrapping_sub(VIRTIO_BASE.0);
        if offset < VIRTIO_STRIDE * u64::from(VIRTIO_MOST) {
            virtio(held, abort, offset)
        } else {
            // Nothing is there: it reads as zero and ignores writes.
            if !abort.is_write() {
                held.set_register(rt, 0);
            }
            Reason::MmioUnknown
        }
    } else {
        return memory(held, syndrome, EC_DATA_ABORT_LOWER);
    };
    step(syndrome);
    reason
}

/// An access to the virtio-mmio windows. Not inlined: the paths of other exits stay as short as they are.
#[inline(never)]
fn virtio(held: &mut Held, abort: DataAbort, offset: u64) -> Reason {
    let devices = &held.vcpu.vm.devices;
    if abort.is_write() {
        devices.write(&Host::here(), offset, abort.access_size(), held.register(abort.rt()));
    } else {
        held.set_register(abort.rt(), abort.extend(devices.read(offset, abort.access_size())));
    }
    devices.reason(offset)
}

/// An instruction fetch that stage 2 does not let through.
pub fn instruction(held: &mut Held, syndrome: Syndrome) -> Reason {
    memory(held, syndrome, EC_INSTRUCTION_ABORT_LOWER)
}

/// An access to RAM that has not been touched yet, or not been written to; or to where nothing is.
#[cold]
#[inline(never)]
fn memory(held: &mut Held, syndrome: Syndrome, class: u64) -> Reason {
    let fault = MemoryFault::new(syndrome, class == EC_DATA_ABORT_LOWER);
    let far = arch::fault_address();
    let ipa = match fault.address {
        FaultAddress::Reported => arch::fault_ipa_page() | far & 0xfff,
        FaultAddress::Walk => match arch::guest_translation(far) {
            Some(page) => page | far & 0xfff,
            // Another vCPU has changed the guest's tables meanwhile: it will see that itself.
            None => return Reason::Memory,
        },
        FaultAddress::None => return external_abort(class),
    };
    match life::touch(held.vcpu.vm, ipa, fault.access) {
        Ok(()) => Reason::Memory,
        // If these are the guest's own exception vectors, it can't handle this exception or any other: without end.
        Err(PageError::NotRam) if class == EC_INSTRUCTION_ABORT_LOWER && arch::at_guest_vectors() => {
            life::fail(held, "its exception vectors (VBAR_EL1) are not in memory", Some(ipa));
            Reason::Stage2Abort
        }
        Err(PageError::NotRam) => external_abort(class),
        Err(PageError::OutOfMemory) => {
            life::fail(held, "no memory for its pages", Some(ipa));
            Reason::Memory
        }
        Err(PageError::Map(_)) => {
            life::fail(held, "its page can't be mapped", Some(ipa));
            Reason::Memory
        }
    }
}

/// The guest takes a synchronous external abort, as it would from a bus that answers nothing.
fn external_abort(class: u64) -> Reason {
    let from_el1 = arch::guest_pstate() & 0xc != 0;
    let class = if from_el1 { class + EC_SAME_LEVEL } else { class };
    arch::inject_exception(class << 26 | EXTERNAL_ABORT, Some(arch::fault_address()));
    Reason::Stage2Abort
}
