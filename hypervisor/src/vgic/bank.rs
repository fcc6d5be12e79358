//! What belongs to one vCPU: its private interrupts, its list registers' software side, its saved CPU interface.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::control;

/// Signal: private interrupts were latched, nothing else has changed.
pub(super) const LATCHED: u64 = 1 << 32;
/// Signal: anything else may have changed: SPIs, lines, what is enabled.
pub(super) const CHANGED: u64 = 1 << 33;
/// The latches in the word of signals.
pub(super) const LATCHES: u64 = 0xffff_ffff;

/// In [`VgicCpu::hw`]: the interrupt waits in software (disabled, or no list register is free).
pub(super) const HW_WAITING: u32 = 1 << 31;
/// In [`VgicCpu::hw`]: shift of the physical INTID.
pub(super) const HW_PINTID_SHIFT: u32 = 8;

/// One vCPU's part of the virtual GIC.
///
/// "Owner" fields are written only by the CPU that has the vCPU loaded; another one takes over behind the
/// scheduler's lock. So they are atomics for their type alone: relaxed loads and stores, no read-modify-write.
#[repr(align(64))]
pub(super) struct VgicCpu {
    /// Bits 0 to 31: private interrupts that are pending but not by a line. Above: signals for the owner.
    /// In one word, so that one atomic operation posts an interrupt.
    pub signals: AtomicU64,
    // One bit for each private interrupt.
    pub enabled: AtomicU32,
    pub group1: AtomicU32,
    pub edge: AtomicU32,
    pub line: AtomicU32,
    /// Active, and in no list register.
    pub active: AtomicU32,
    /// Owner: private interrupts in list registers.
    pub in_lr: AtomicU32,
    /// Owner: list registers in use, a bit for each; the next three are subsets.
    pub used: AtomicU32,
    /// Owner: list registers that ask for a maintenance interrupt at the end of their interrupt.
    pub eoi: AtomicU32,
    /// Owner: list registers that are pending because of a latch: taken back, the latch must be set again.
    pub latched: AtomicU32,
    /// Owner: what ICH_HCR_EL2 is to hold. Other than `EN` while interrupts wait for a list register.
    pub control: AtomicU32,
    /// Owner: the hardware-linked interrupt, 0 for none: INTID, [`HW_PINTID_SHIFT`], [`HW_WAITING`].
    pub hw: AtomicU32,
    /// Owner: the INTID in each list register in use.
    pub lr_intid: [AtomicU8; 16],
    pub priority: [AtomicU8; 32],
    /// SPIs that are routed to this vCPU; a hint, [`super::Vgic::route`] decides.
    pub routed: AtomicU64,
    /// GICR_WAKER.ProcessorSleep.
    pub asleep: AtomicU32,
    /// Not 0: a saved list register is pending.
    pub saved_pending: AtomicU32,
    /// Owner: the CPU interface while the vCPU isn't loaded. List registers are 0 while it is.
    pub saved: [AtomicU64; 16],
    pub vmcr: AtomicU32,
    pub apr: [[AtomicU32; 4]; 2],
}

/// ICFGR of SGIs: always edge-triggered.
const SGIS: u32 = 0xffff;

impl VgicCpu {
    pub const fn new() -> VgicCpu {
        VgicCpu {
            signals: AtomicU64::new(0),
            enabled: AtomicU32::new(0),
            group1: AtomicU32::new(0),
            edge: AtomicU32::new(SGIS),
            line: AtomicU32::new(0),
            active: AtomicU32::new(0),
            in_lr: AtomicU32::new(0),
            used: AtomicU32::new(0),
            eoi: AtomicU32::new(0),
            latched: AtomicU32::new(0),
            control: AtomicU32::new(control::EN),
            hw: AtomicU32::new(0),
            lr_intid: [const { AtomicU8::new(0) }; 16],
            priority: [const { AtomicU8::new(0) }; 32],
            routed: AtomicU64::new(0),
            asleep: AtomicU32::new(1),
            saved_pending: AtomicU32::new(0),
            saved: [const { AtomicU64::new(0) }; 16],
            vmcr: AtomicU32::new(0),
            apr: [const { [const { AtomicU32::new(0) }; 4] }; 2],
        }
    }

    /// Back to the state of [`VgicCpu::new`].
    pub fn reset(&self) {
        self.signals.store(0, Relaxed);
        for word in [&self.enabled, &self.group1, &self.line, &self.active] {
            word.store(0, Relaxed);
        }
        self.edge.store(SGIS, Relaxed);
        for priority in &self.priority {
            priority.store(0, Relaxed);
        }
        self.routed.store(0, Relaxed);
        self.asleep.store(1, Relaxed);
        self.reset_interface();
    }

    /// Empties the CPU interface; the redistributor stays.
    pub fn reset_interface(&self) {
        for word in [&self.in_lr, &self.used, &self.eoi, &self.latched, &self.hw] {
            word.store(0, Relaxed);
        }
        self.control.store(control::EN, Relaxed);
        self.saved_pending.store(0, Relaxed);
        self.vmcr.store(0, Relaxed);
        for lr in &self.saved {
            lr.store(0, Relaxed);
        }
        for apr in self.apr.iter().flatten() {
            apr.store(0, Relaxed);
        }
    }

    /// Raises the general signal, after a change of state.
    pub fn signal(&self) {
        // SeqCst: after the change, before the caller looks where the vCPU runs.
        self.signals.fetch_or(CHANGED, SeqCst);
    }

    /// The INTID in list register `n`.
    pub fn intid(&self, n: usize) -> u32 {
        u32::from(self.lr_intid[n & 15].load(Relaxed))
    }

    /// The INTID of the hardware-linked interrupt if it waits in software, as a set of one.
    #[inline(always)]
    pub fn hw_waiting(&self) -> u32 {
        let hw = self.hw.load(Relaxed);
        if hw & HW_WAITING != 0 { 1 << (hw & 31) } else { 0 }
    }
}

/// Sets bits in an owner's word.
#[inline(always)]
pub(super) fn set(word: &AtomicU32, bits: u32) {
    word.store(word.load(Relaxed) | bits, Relaxed);
}

/// Clears bits in an owner's word.
#[inline(always)]
pub(super) fn clear(word: &AtomicU32, bits: u32) {
    word.store(word.load(Relaxed) & !bits, Relaxed);
}
