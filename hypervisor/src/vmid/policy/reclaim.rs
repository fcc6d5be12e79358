//! `reclaim`: ours. VMIDs are a cache of VM identities. While there are enough, as `tri-state`; from the first shortage on
//! they are taken one by one from VMs that run nowhere, and nothing is ever flushed that another VM still needs: see
//! [`crate::vmid::tenure`].

use super::Rules;
use crate::vmid::TlbHardware;
use crate::vmid::config::Flush;
use crate::vmid::id::Id;
use crate::vmid::holder::{Holder, Stale};
use crate::vmid::slot::{CpuSlot, VmidCell};
use crate::vmid::sync::{AtomicU64, Relaxed};

pub(super) struct Reclaim;

impl Rules for Reclaim {
    const NAME: &'static str = "reclaim";
    const RECLAIMS: bool = true;
    const FLUSH: Flush = Flush::Local;

    /// As with `tri-state`.
    fn left_after_rollover(active: &AtomicU64) {
        active.store(Id::OUT.0, Relaxed);
    }

    fn admit<H: TlbHardware>(holder: &mut Holder<'_, H>, slot: &CpuSlot, cell: &VmidCell) -> (Id, Stale) {
        holder.by_tenures(slot, cell)
    }

    fn release<H: TlbHardware>(holder: &mut Holder<'_, H>, cell: &VmidCell) {
        holder.end_tenure(cell);
    }
}
