//! What every schedule-in reads.

use super::Policy;
use super::config::{Flush, Victim};
use super::slot::CpuSlot;
use super::sync::{AtomicBool, AtomicU64};
use alloc::boxed::Box;

/// Read at every schedule-in, written when VMIDs run out.
pub(super) struct Shared {
    /// The current generation, as an id with index 0. Written under the lock.
    pub(super) generation: AtomicU64,
    /// What of a CPU's active slot is left when it leaves its guest.
    pub(super) kept: u64,
    /// VMIDs are taken one by one, and a CPU may enter on the fast path what it was admitted to. Written under the lock,
    /// once.
    pub(super) tenures: AtomicBool,
    /// By index, the ids of tenures, for policies that take VMIDs one by one. Written under the lock.
    pub(super) owners: Box<[AtomicU64]>,
    pub(super) policy: Policy,
    pub(super) flush: Flush,
    pub(super) victim: Victim,
    pub(super) batch: u8,
    pub(super) slots: Box<[CpuSlot]>,
}
