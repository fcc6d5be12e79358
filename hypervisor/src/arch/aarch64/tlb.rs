//! TLB maintenance for guests' translations (Arm ARM D8.17), and binding a VMID to VTTBR_EL2.

use super::{read_sysreg, write_sysreg};
use crate::ids::{CpuId, Vmid};
use crate::memory::address::{Ipa, Pa};
use crate::memory::stage2::Stage2Tlb;
use crate::stats::{Invalidation, TlbStats};
use crate::vmid::{Covers, VmidCell};
use core::arch::asm;

/// Makes stage 2 use `vttbr` (root and VMID). The only place that writes a live VTTBR_EL2.
///
/// No ISB: the ERET that enters the guest synchronizes. A caller that invalidates under the new VMID first needs one.
#[inline(always)]
pub fn set_vttbr(vttbr: u64) {
    write_sysreg!("vttbr_el2", vttbr);
}

/// Where this CPU counts what it does here. All but [`set_vttbr`] and [`invalidate_sibling`], which a switch makes and counts itself.
fn stats() -> &'static TlbStats {
    &super::this_cpu().shared.tlb
}

/// Tells the ghost of the TLBs of an invalidation by VMID: the one that VTTBR_EL2 holds counts, not the one that it should hold.
fn forget_held(covers: fn(Vmid) -> Covers) {
    super::this_cpu().ghost_forgets(covers(Vmid((read_sysreg!("vttbr_el2") >> 48) as u16)));
}

/// Waits until what was written to system registers is in effect, and earlier table walks that they would affect are done.
#[inline(always)]
pub fn isb() {
    // SAFETY: a barrier changes no state.
    unsafe { asm!("isb", options(nostack, preserves_flags)) }
}

/// Invalidates all stage-1 and stage-2 entries of all VMIDs, on every CPU.
pub fn invalidate_all_guests() {
    super::this_cpu().ghost_forgets(Covers::All);
    // SAFETY: invalidation only makes later accesses walk again.
    unsafe {
        asm!(
            "dsb ishst", // table writes before it are seen by every walker
            "tlbi alle1is",
            "dsb ish", // complete on every CPU
            "isb",     // and for this CPU's next instruction
            options(nostack, preserves_flags)
        )
    }
    stats().count(Invalidation::Alle1Is, 1);
    stats().barriers.increment();
}

/// Runs `invalidate` with a VMID in VTTBR_EL2, as TLBIs by VMID take it from there.
///
/// If this CPU doesn't run under it, it goes with an empty root, never with a VM's own: walks come at any time, and the VMID may
/// be another VM's by now (it was read some instructions ago), or the registers of stage 1 another guest's (`clear/live-root` in
/// docs/model). An empty root makes no entries.
fn under(vmid: Vmid, invalidate: impl FnOnce()) {
    let old = read_sysreg!("vttbr_el2");
    let elsewhere = old >> 48 != u64::from(vmid.0);
    if elsewhere {
        set_vttbr(empty_vttbr(vmid));
        isb(); // the TLBI sees the VMID, and no walk begins with the old root
    }
    invalidate();
    if elsewhere {
        set_vttbr(old);
        isb();
        stats().vttbr_writes.add(2);
    }
}

/// Invalidates all entries of a VMID on every CPU, because its VM's stage 2 has changed.
fn invalidate_guest(vmid: Vmid) {
    under(vmid, || {
        forget_held(Covers::Vmid);
        // SAFETY: as above.
        unsafe {
            asm!("dsb ishst", "tlbi vmalls12e1is", "dsb ish", "isb", options(nostack, preserves_flags));
        }
    });
    let stats = stats();
    stats.count(Invalidation::Vmalls12e1Is, 1);
    stats.of_stage2.increment();
    stats.barriers.increment();
}

/// Drops this CPU's stage-1 entries of the VMID in VTTBR_EL2, and its instruction cache: a sibling vCPU ran here last, whose
/// ASIDs and tables may be its own.
pub fn invalidate_sibling() {
    // SAFETY: as above.
    unsafe {
        asm!(
            "isb", // the TLBI below sees the VTTBR_EL2 just written
            "tlbi vmalle1",
            "ic iallu",
            "dsb nsh", // both are complete on this CPU before the guest is entered
            options(nostack, preserves_flags)
        )
    }
}

/// VTTBR_EL2 with a VMID to invalidate, and nothing that a walk could find.
fn empty_vttbr(vmid: Vmid) -> u64 {
    super::this_cpu().system.parked_vttbr | u64::from(vmid.0) << 48
}

/// What the VMID allocator needs of the hardware.
pub struct GuestTlb;

impl crate::vmid::TlbHardware for GuestTlb {
    fn invalidate_all(&self) {
        if !super::this_cpu().leaves_tlbis_out() {
            invalidate_all_guests();
        }
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        let parked = read_sysreg!("vttbr_el2");
        // SAFETY: invalidation only makes later accesses walk again.
        unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) }
        for &vmid in vmids {
            set_vttbr(empty_vttbr(vmid));
            forget_held(Covers::Vmid);
            // SAFETY: as above.
            unsafe { asm!("isb", "tlbi vmalls12e1is", options(nostack, preserves_flags)) }
        }
        // SAFETY: as above.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) }
        set_vttbr(parked);
        isb();
        let stats = stats();
        stats.count(Invalidation::Vmalls12e1Is, vmids.len() as u64);
        stats.barriers.increment();
        stats.vttbr_writes.add(vmids.len() as u64 + 1);
    }

    fn invalidate_all_here(&self) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        super::this_cpu().ghost_forgets(Covers::AllHere);
        // SAFETY: as above.
        unsafe { asm!("tlbi alle1", "dsb nsh", "isb", options(nostack, preserves_flags)) }
        stats().count(Invalidation::Alle1, 1);
    }

    fn invalidate_vmid_here(&self, vmid: Vmid) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        under(vmid, || {
            forget_held(Covers::VmidHere);
            // SAFETY: as above.
            unsafe { asm!("tlbi vmalls12e1", "dsb nsh", options(nostack, preserves_flags)) }
        });
        stats().count(Invalidation::Vmalls12e1, 1);
    }

    fn publish_id(&self) {
        // SAFETY: a barrier.
        unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) }
    }

    fn kick(&self, cpu: CpuId) {
        if let Some(shared) = super::this_cpu().system.cpu(cpu) {
            super::send_kick(shared.kick_target);
        }
    }

    fn wait(&self) {
        super::yield_cpu();
    }

    fn now(&self) -> u64 {
        super::counter()
    }
}

/// Makes table writes visible to the table walkers of all CPUs.
fn publish_tables() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) }
}

/// [`Stage2Tlb`] for a VM that does not run and has no VMID: nothing of it can be in a TLB.
pub struct NewGuest;

impl Stage2Tlb for NewGuest {
    fn publish(&self) {
        publish_tables();
    }

    fn invalidate_ipa(&self, _: Pa, _: Ipa) {}

    fn invalidate_all(&self, _: Pa) {}
}

/// [`Stage2Tlb`] for a VM that may run anywhere.
///
/// The VMID is read when it is needed, after the change of the tables was published. A VM without one has nothing in any TLB. If
/// its VMID goes with a rollover between the reading and the TLBI, so have its entries, and another VM only walks again.
pub struct RunningGuest<'a>(pub &'a VmidCell);

impl Stage2Tlb for RunningGuest<'_> {
    fn publish(&self) {
        publish_tables();
    }

    fn invalidate_ipa(&self, _: Pa, ipa: Ipa) {
        let Some(vmid) = self.0.vmid() else { return };
        under(vmid, || {
            // SAFETY: invalidation only makes later accesses walk again.
            unsafe {
                asm!(
                    "tlbi ipas2e1is, {}",
                    "dsb ish",         // what stage 2 has of the page is forgotten everywhere
                    "tlbi vmalle1is",  // before entries of both stages, which would be made of it again
                    "dsb ish",
                    "isb",
                    in(reg) ipa.0 >> 12,
                    options(nostack, preserves_flags)
                )
            }
        });
        let stats = stats();
        stats.count(Invalidation::Ipas2e1Is, 1);
        stats.count(Invalidation::Vmalle1Is, 1);
        stats.barriers.add(2);
    }

    fn invalidate_all(&self, _: Pa) {
        if let Some(vmid) = self.0.vmid() {
            invalidate_guest(vmid);
        }
    }
}
