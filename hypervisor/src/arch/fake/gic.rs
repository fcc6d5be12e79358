//! The GIC as EL2 uses it: the CPU interface, list registers, and what of the distributor matters.

use super::{KICK, SPURIOUS, here, machine, step, virtual_timer_asserts};
use crate::ids::IntId;
use crate::memory::address::Pa;
use crate::platform::gic::Registers;
use crate::vgic::ListRegisters;

/// See the real one.
pub fn send_kick(target: u64) {
    step();
    machine().kick(target as usize);
}

/// See the real one.
pub fn acknowledge() -> IntId {
    step();
    here(|here| {
        let Some(intid) = here.pending() else { return IntId(SPURIOUS) };
        if intid == KICK {
            here.machine.get().expect("a machine").take_kick(here.index.get());
        }
        here.lrs.physical_active.borrow_mut().push(intid);
        IntId(intid)
    })
}

/// The running priority isn't modelled: nothing is acknowledged before the last one's has dropped.
pub fn drop_priority(_: IntId) {}

/// See the real one.
pub fn deactivate(intid: IntId) {
    here(|here| here.lrs.physical_active.borrow_mut().retain(|&active| active != intid.0));
}

/// See the real one.
pub fn activate_private(_: Pa, intid: IntId) {
    here(|here| here.lrs.physical_active.borrow_mut().push(intid.0));
}

/// Devices that read as zero, and a distributor at 0 whose GICD_ICENABLER silences [`guest::Do::Stray`].
#[derive(Clone, Copy)]
pub struct Devices;

impl Registers for Devices {
    fn read32(&self, _: Pa) -> u32 {
        0
    }

    fn write32(&self, at: Pa, value: u32) {
        const GICD_ICENABLER: u64 = 0x180;
        let disables =
            |intid: u32| at.0 == GICD_ICENABLER + u64::from(intid / 32 * 4) && value & 1 << (intid % 32) != 0;
        here(|here| here.stray.set(here.stray.get().filter(|&stray| !disables(stray))));
    }
}

/// See the real one.
pub fn devices() -> Devices {
    Devices
}

/// The list registers of the CPU that a thread stands for.
pub struct HardwareListRegisters;

impl ListRegisters for HardwareListRegisters {
    fn count(&self) -> usize {
        here(|here| here.lrs.count())
    }

    fn read(&self, n: usize) -> u64 {
        here(|here| here.lrs.read(n))
    }

    fn write(&self, n: usize, value: u64) {
        here(|here| here.lrs.write(n, value));
    }

    fn empty_mask(&self) -> u32 {
        here(|here| here.lrs.empty_mask())
    }

    fn eoi_mask(&self) -> u32 {
        here(|here| here.lrs.eoi_mask())
    }

    fn vmcr(&self) -> u32 {
        here(|here| here.lrs.vmcr())
    }

    fn set_vmcr(&self, value: u32) {
        here(|here| here.lrs.set_vmcr(value));
    }

    fn apr_count(&self) -> usize {
        here(|here| here.lrs.apr_count())
    }

    fn apr(&self, group: usize, n: usize) -> u32 {
        here(|here| here.lrs.apr(group, n))
    }

    fn set_apr(&self, group: usize, n: usize, value: u32) {
        here(|here| here.lrs.set_apr(group, n, value));
    }

    fn set_control(&self, value: u32) {
        here(|here| here.lrs.set_control(value));
    }

    fn line_high(&self, _: IntId) -> bool {
        virtual_timer_asserts()
    }

    fn deactivate(&self, pintid: IntId) {
        deactivate(pintid);
    }
}
