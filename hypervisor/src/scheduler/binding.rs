//! Binding a VM to a CPU, and leaving it.
//!
//! Here, and only here, VMID and VTTBR_EL2 are bound: [`unbind`] parks VTTBR_EL2 before the CPU's active VMID is cleared, so that no
//! walk fills the TLB under a VMID that a rollover may give away; [`bind`] gets the VMID before VTTBR_EL2 is written.
//!
//! What the architecture allows meanwhile, what keeps it from doing harm, and the configurations of docs/model (`cargo xtask model`)
//! that say so:
//!
//! | allowed | what a switch has against it | holds | without it |
//! |---|---|---|---|
//! | walks at EL2, at any time, for the guest that VTTBR_EL2 holds | it is parked before the slot says that the VMID isn't in use | `clear` | `clear/unparked` |
//! | walks for the VTTBR_EL2 of before, until the CPU synchronizes | the ISB between parking and schedule-out | `clear` | `clear/parked-late` |
//! | a walk that is under way goes on for a while | `dsb ish` after the broadcast TLBI waits for it (Arm ARM D8.17.5) | `clear` | `clear/no-flush` |
//! | a new generation, a VM's new id, are seen late | compare-exchange of the slot; the lock | `clear` | `merged` |
//! | a TLBI for a VM that this CPU doesn't run, under VTTBR_EL2 | it goes with an empty root (`arch::RunningGuest`) | `clear/edits` | `clear/live-root` |
//!
//! A switch that left VTTBR_EL2 alone and kept the walker quiet instead (`dsb nsh` after each exit) would do as well
//! (`clear/quiet-walker`), but cost every exit a barrier; parking costs a switch two writes and an ISB.

use super::cpu::Cpu;
use crate::arch;
use crate::ids::Vmid;
use crate::memory::address::Pa;
use crate::memory::stage2::vttbr;
use crate::trace::{Kind, Quiet, Tracer};
use crate::vm::{Vcpu, Vm};
use crate::vmid::{Allocator, CpuSlot, Ghost, Guest, VmidCell};
use core::sync::atomic::Ordering;

/// The allocator's part of entering a VM. A function of its own, so that a test finds it in the image and counts its
/// instructions; likewise the next one.
#[inline(never)]
pub fn vmid_in(vmids: &Allocator, slot: &CpuSlot, cell: &VmidCell) -> Vmid {
    vmids.schedule_in(slot, cell, &arch::GuestTlb)
}

/// The allocator's part of leaving a VM.
#[inline(never)]
fn vmid_out(vmids: &Allocator, slot: &CpuSlot) {
    vmids.schedule_out(slot);
}

/// Another CPU waits until this one has left its guest: leaves it, and enters it anew, under a VMID that is valid now.
#[cold]
pub fn rebind<T: Tracer>(cpu: &Cpu, vcpu: &Vcpu) {
    unbind::<T>(cpu);
    bind::<T>(cpu, vcpu);
    cpu.shared.tlb.vttbr_writes.add(2);
}

/// How many ticks `n` times the VMID allocator's part of a switch to the vCPU that is held take.
pub fn time_schedule_in(cpu: &Cpu, vcpu: &Vcpu, n: u64) -> u64 {
    // The allocator must be free to believe that no guest's walks are under way.
    unbind::<Quiet>(cpu);
    let start = arch::counter();
    let (vmids, slot, cell) = (&cpu.system.vmids, cpu.vmid, &vcpu.vm.vmid);
    let mut vmid = Vmid(0);
    for _ in 0..n {
        // Not `vmid_in`, whose call isn't the allocator's.
        vmid = vmids.schedule_in(slot, cell, &arch::GuestTlb);
    }
    core::hint::black_box(vmid);
    let end = arch::counter();
    bind::<Quiet>(cpu, vcpu);
    cpu.shared.tlb.vttbr_writes.add(2);
    end.wrapping_sub(start)
}

/// Stops the machine if this CPU could meet another VM's entries under the VMID. Out of the way of those that have no ghost.
#[cold]
#[inline(never)]
fn ghost_enters(ghost: &Ghost, cpu: &Cpu, vmid: Vmid, vm: &Vm) {
    let guest = Guest { vm: vm.id, life: vm.restarts.load(Ordering::Relaxed) };
    if let Err(haunted) = ghost.enter(cpu.shared.id, vmid, guest) {
        let name =
            |guest: Guest| cpu.system.vm_names.get(usize::from(guest.vm.0)).map_or("?", |name| name.as_str());
        let (policy, generation) = (cpu.system.options.vmid.policy, cpu.system.vmids.generations());
        panic!("{haunted} ({}, {}; {policy}, generation {generation})", name(guest), name(haunted.owner));
    }
}

#[cold]
#[inline(never)]
fn ghost_leaves(ghost: &Ghost, cpu: &Cpu) {
    ghost.leave(cpu.shared.id);
}

/// Leaves the current VM's translations: first VTTBR_EL2 is parked, then the active VMID is given up.
pub(super) fn unbind<T: Tracer>(cpu: &Cpu) {
    if cpu.bound.take().is_none() {
        return;
    }
    arch::set_vttbr(cpu.system.parked_vttbr);
    // Walks for a guest begin with the parked VTTBR_EL2 from here on, before the VMID may go to another VM: without the ISB the
    // walker might learn of it later than a rollover of the cleared slot (`clear/parked-late`). Those that are under way are
    // waited for by the DSB of the rollover's broadcast invalidation.
    arch::isb();
    if let Some(ghost) = &cpu.system.ghost {
        ghost_leaves(ghost, cpu);
    }
    vmid_out(&cpu.system.vmids, cpu.vmid);
    // Whoever is bound is resident.
    if let Some(vcpu) = cpu.resident.get() {
        T::record(cpu, vcpu, Kind::ScheduleOut, 0, 0);
    }
}

/// Binds the vCPU's VM to this CPU: VMID, then VTTBR_EL2.
pub(super) fn bind<T: Tracer>(cpu: &Cpu, vcpu: &Vcpu) {
    let vm = vcpu.vm;
    let system = cpu.system;
    cpu.bound.set(Some(vm));
    let vmid = T::schedule_in(cpu, vcpu);
    if let Some(ghost) = &system.ghost {
        ghost_enters(ghost, cpu, vmid, vm);
    }
    // After the branches on what the allocator's exchange, or its lock, has brought: system registers aren't written
    // speculatively. So no walk under this VMID begins before a rollover can see that it is in use (invariant 8 of docs/model).
    arch::set_vttbr(vttbr(Pa(vm.root.load(Ordering::Relaxed)), vmid));
    if vm.note_runner(cpu.shared.id, vcpu.index) {
        arch::invalidate_sibling();
        cpu.vmid.count_local_invalidation();
    }
}
