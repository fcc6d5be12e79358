//! The short paths into list registers: one private interrupt, and nothing else to look after.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::bank::{LATCHED, LATCHES, Notes, VgicCpu};
use super::lr::{self, PENDING};
use super::{ListRegisters, Vgic};

impl Vgic {
    /// The usual flush: one edge-triggered private interrupt was latched, nothing else has changed, nothing waits. False
    /// if it is any other case, and then all signals are still up.
    #[inline(always)]
    pub(super) fn flush_one(&self, cpu: &VgicCpu, lrs: &impl ListRegisters) -> bool {
        // Acquire: what was changed before the signal was raised is seen below.
        let signals = cpu.signals.load(Acquire);
        if signals & !LATCHES != LATCHED {
            return false;
        }
        let notes = cpu.notes();
        if !notes.is_plain() {
            return false;
        }
        let notes = harvest_plain(cpu, lrs, notes);
        let want = signals as u32 & self.owner_gate(cpu) & !cpu.active.load(Relaxed);
        let in_lr = cpu.in_lr.load(Relaxed);
        // With another one wanted, priorities decide; in a list register already, it becomes pending and active.
        let alone = want.is_power_of_two() && want & !in_lr & cpu.edge.load(Relaxed) != 0;
        let slot = (!notes.used()).trailing_zeros() as usize;
        if !alone || slot != 0 && slot >= lrs.count() {
            return false;
        }
        // Takes the latch and lowers the signal, if nobody has changed either since: then all that there is has been
        // looked at. SeqCst, as all operations on this word: who posts after it raises the signal again.
        let rest = signals & LATCHES & !u64::from(want);
        if cpu.signals.compare_exchange(signals, rest, SeqCst, Relaxed).is_err() {
            return false;
        }
        let intid = want.trailing_zeros();
        lrs.write(slot, cpu.encode_private(intid) | PENDING);
        cpu.lr_intid[slot & 15].store(intid as u8, Relaxed);
        cpu.in_lr.store(in_lr | want, Relaxed);
        cpu.set_notes(notes.with_used(slot).with_latched(slot));
        true
    }

    /// [`Vgic::private_gate`] for the owner, on a path on which a change of it raises a signal that is still looked at.
    #[inline(always)]
    pub(super) fn owner_gate(&self, cpu: &VgicCpu) -> u32 {
        let group1 = cpu.group1.load(Relaxed);
        let groups = group1 & self.group1_on.load(Relaxed) | !group1 & self.group0_on.load(Relaxed);
        groups & cpu.enabled.load(Relaxed)
    }
}

impl VgicCpu {
    /// A list register for a private interrupt, without state and link.
    #[inline(always)]
    pub(super) fn encode_private(&self, intid: u32) -> u64 {
        let n = intid & 31;
        let priority = self.priority[n as usize].load(Relaxed);
        lr::encode(n, priority, self.group1.load(Relaxed) >> n & 1 != 0)
    }
}

/// The usual harvest, with plain notes: frees list registers whose private interrupts the guest has completed. SPIs are
/// left to the other path.
#[inline(always)]
pub(super) fn harvest_plain(cpu: &VgicCpu, lrs: &impl ListRegisters, notes: Notes) -> Notes {
    let used = notes.used();
    if used == 0 {
        return notes;
    }
    let mut left = notes;
    let mut in_lr = cpu.in_lr.load(Relaxed);
    let mut done = used & lrs.empty_mask();
    while done != 0 {
        let n = done.trailing_zeros() as usize;
        done &= done - 1;
        let intid = cpu.intid(n);
        if intid < 32 {
            in_lr &= !(1 << intid);
            left = left.without(n);
            cpu.unlink(intid);
        }
    }
    cpu.in_lr.store(in_lr, Relaxed);
    cpu.set_notes(left);
    left
}
