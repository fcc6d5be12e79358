//! Stolen time: how long a vCPU was ready and had no CPU, told to its guest (Arm DEN 0057A, paravirtualized time).
//!
//! A guest asks by SMCCC for its vCPU's record, a structure of 64 bytes that it may only read, and the hypervisor keeps that up to date
//! whenever it puts the vCPU on a CPU. The records of a VM share a page, which is made when the first is asked for: guests that don't ask
//! cost no memory, and one test of a pointer at each switch.

use super::layout::STOLEN_TIME_BASE;
use crate::ids::VcpuIndex;
use crate::memory::address::{Ipa, PAGE_SIZE, Pa};
use crate::memory::phys::PhysMemory;
use crate::stats::{Counter, TickRate};
use core::sync::atomic::{AtomicU64, Ordering};

/// Length of a record in bytes (DEN 0057A, 4.1); they lie one after the other, as they have to be aligned to it.
const RECORD_BYTES: u64 = 64;
/// Where in a record the stolen time is, in ns. Before it are revision and attributes, 32 bits each: 0. After it are zeros.
const STOLEN_TIME: u64 = 8;

// A VM's records fit into its page.
const _: () = assert!(crate::ids::MAX_VCPUS as u64 * RECORD_BYTES <= PAGE_SIZE);

/// Where the guest finds the record of vCPU `index`.
pub const fn record_ipa(index: VcpuIndex) -> Ipa {
    Ipa(STOLEN_TIME_BASE.0 + index.0 as u64 * RECORD_BYTES)
}

/// A vCPU's record, if its guest has asked for it.
#[derive(Debug, Default)]
pub struct StolenTime {
    /// Physical address of the record; 0: not asked for.
    record: AtomicU64,
    /// Ticks without a CPU before it was asked for.
    before: Counter,
}

impl StolenTime {
    /// Whether the guest has asked for it.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.record.load(Ordering::Relaxed) != 0
    }

    /// The guest of vCPU `index` asks for it: the record is in `page` (zeroed when it was made), and counts what comes after
    /// `ready` ticks without a CPU. Asking again changes nothing, as what a guest was told must not go back.
    pub fn begin(&self, page: Pa, index: VcpuIndex, ready: u64) {
        if !self.is_wanted() {
            self.before.set(ready);
            self.record.store(page.0 + u64::from(index.0) * RECORD_BYTES, Ordering::Relaxed);
        }
    }

    /// The page goes away: nothing is written any more. Only while the vCPU is off.
    pub fn end(&self) {
        self.record.store(0, Ordering::Relaxed);
    }

    /// The vCPU was `ready` ticks without a CPU since it was made: tells its guest, if that has asked.
    pub fn update<M: PhysMemory>(&self, memory: &M, ready: u64, rate: TickRate) {
        let record = self.record.load(Ordering::Relaxed);
        if record != 0 {
            let stolen = rate.to_ns(ready.wrapping_sub(self.before.get()));
            // One store of 64 bits, as the guest reads it (DEN 0057A, 4.1).
            memory.write(Pa(record + STOLEN_TIME), stolen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::FakeMemory;

    const PAGE: Pa = Pa(0x8000_0000);

    #[test]
    fn a_record_is_as_the_specification_has_it() {
        let memory = FakeMemory::new();
        memory.zero(PAGE, PAGE_SIZE);
        let stolen = StolenTime::default();
        let index = VcpuIndex(3);
        let rate = TickRate::new(62_500_000);
        stolen.update(&memory, 100, rate);
        assert!(!stolen.is_wanted());
        stolen.begin(PAGE, index, 100);
        stolen.update(&memory, 100, rate);
        let words = |memory: &FakeMemory| {
            (0..8).map(|word| memory.read(Pa(PAGE.0 + 3 * 64 + 8 * word))).collect::<Vec<_>>()
        };
        assert_eq!(words(&memory), [0; 8]);
        stolen.update(&memory, 225, rate);
        assert_eq!(words(&memory), [0, 125 * 16, 0, 0, 0, 0, 0, 0]);
        assert_eq!(memory.read(Pa(PAGE.0 + 2 * 64 + 8)), 0);
        assert_eq!(record_ipa(index).0 % RECORD_BYTES, 0);
        assert_eq!(record_ipa(index).0 - STOLEN_TIME_BASE.0, 3 * 64);
    }

    #[test]
    fn asking_again_does_not_turn_the_clock_back() {
        let memory = FakeMemory::new();
        let stolen = StolenTime::default();
        let rate = TickRate::new(1_000_000_000);
        stolen.begin(PAGE, VcpuIndex(0), 10);
        stolen.update(&memory, 50, rate);
        stolen.begin(PAGE, VcpuIndex(0), 50);
        stolen.update(&memory, 60, rate);
        assert_eq!(memory.read(Pa(PAGE.0 + 8)), 50);
    }

    #[test]
    fn nothing_is_written_into_a_page_that_is_gone() {
        let memory = FakeMemory::new();
        let stolen = StolenTime::default();
        stolen.begin(PAGE, VcpuIndex(0), 0);
        stolen.end();
        memory.zero(PAGE, PAGE_SIZE);
        stolen.update(&memory, 60, TickRate::new(1_000_000_000));
        assert_eq!(memory.read(Pa(PAGE.0 + 8)), 0);
    }
}
