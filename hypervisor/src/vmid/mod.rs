//! The VMID allocator: which tag of the TLB belongs to which VM, with generations.
//!
//! A VM's stage-1 and stage-2 translations are cached under the VMID in VTTBR_EL2 (Arm ARM DDI 0487, D8.17
//! "Translation Lookaside Buffers"). There are fewer VMIDs than VMs may want, so they are given for a
//! *generation*. When none is left the generation ends (a *rollover*): all guests' entries are flushed with
//! one broadcast, and each VM gets a new id when it is next scheduled in. Guests that run meanwhile are not
//! disturbed: a CPU's *active* id survives as *reserved*, and its VM keeps the VMID.
//!
//! Read in this order: `id` (what an id is), `slot` (what a VM and a CPU hold), `policy` (what schedule-out
//! leaves behind: the experiment), `pool` (bitmap, reserved ids), `holder` (rollover), [`Allocator`] (the fast path, and
//! the way into the slow one). Then `tenure` and `victim`: VMIDs taken one by one, without generations. `docs/vmid.md` has the reasoning, the orderings and how it is tested.
//!
//! Nothing here touches a register: TLB operations and the clock are reached through [`TlbHardware`].

mod allocator;
mod config;
mod counters;
mod cpu_set;
mod error;
mod ghost;
mod holder;
mod id;
mod policy;
mod pool;
mod recency;
mod shared;
mod slot;
mod sync;
mod tenure;
#[cfg(all(test, not(loom)))]
mod tests;
mod victim;

pub use allocator::Allocator;
pub use config::{Config, Flush, MAX_BATCH, Victim};
pub use counters::VmidCounters;
pub use error::{PolicyError, PoolError};
pub use ghost::{Covers, Ghost, GhostCounters, Guest, Haunted};
pub use policy::Policy;
pub use slot::{CpuSlot, VmidCell};

use crate::ids::{CpuId, Vmid};

/// Narrowest width of a VMID that may be asked for, in bits.
pub const MIN_BITS: u8 = 4;
/// Widest VMID of the architecture, in bits (ID_AA64MMFR1_EL1.VMIDBits: 8 or 16).
pub const MAX_BITS: u8 = 16;

/// What the allocator needs of the hardware.
///
/// The order of barriers within an operation is part of its contract (Arm ARM DDI 0487, D8.17.5 "TLB
/// maintenance", and B2.3.12 on DSB): see each.
pub trait TlbHardware {
    /// Removes all EL1&0 entries, stage 1 and 2, of all VMIDs on all CPUs, and waits until that is so.
    ///
    /// `dsb ishst; tlbi alle1is; dsb ish; isb`. The first barrier makes the allocator's preceding stores, to
    /// each CPU's active slot, visible before any entry is removed; the second one keeps the id that is
    /// published next from being seen before the last entry is gone.
    fn invalidate_all(&self);

    /// Removes all EL1&0 entries, stage 1 and 2, of some VMIDs on all CPUs, and waits until that is so.
    ///
    /// `dsb ishst`; for each VMID `tlbi vmalls12e1is` while VTTBR_EL2 holds it (and an empty root); `dsb ish; isb`;
    /// afterwards VTTBR_EL2 is as before.
    fn invalidate_vmids(&self, vmids: &[Vmid]);

    /// Removes all EL1&0 entries, stage 1 and 2, of all VMIDs on this CPU, and waits until that is so.
    ///
    /// `tlbi alle1; dsb nsh; isb`, with VTTBR_EL2 parked. The barrier also waits for this CPU's walks that began before
    /// that.
    fn invalidate_all_here(&self);

    /// Removes all EL1&0 entries, stage 1 and 2, of one VMID on this CPU, and waits until that is so.
    ///
    /// `tlbi vmalls12e1; dsb nsh; isb` while VTTBR_EL2 holds that VMID (and an empty root); afterwards it is as before.
    fn invalidate_vmid_here(&self, vmid: Vmid);

    /// Makes a VM's new id visible to all CPUs before this one walks the VM's tables under it.
    ///
    /// `dsb ishst`. Who changes a table, makes that visible and then finds the old id in the cell must be sure that
    /// nobody has walked the old table under the new one.
    fn publish_id(&self);

    /// Interrupts another CPU, so that it leaves its guest and asks [`Allocator::is_called_out`].
    fn kick(&self, cpu: CpuId);

    /// One turn of a loop that waits for another CPU.
    fn wait(&self);

    /// The time in ticks of the system counter. Only differences matter; read on the slow path alone.
    fn now(&self) -> u64;

    /// A new generation has begun. For a trace; so the next one.
    fn rolled_over(&self) {}

    /// The VMID was taken from a VM that runs nowhere.
    fn reclaimed(&self, _: Vmid) {}
}
