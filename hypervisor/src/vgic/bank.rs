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

/// The owner's notes of its list registers, one word so that the short paths load and store them at once: 16 bits
/// each for the list registers in use, those that report the end of their interrupt (`EOI`), and those that are pending
/// because of a latch, which must be set again when they are taken back; then what ICH_HCR_EL2 holds beside `EN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Notes(u64);

/// Shift of [`Notes::eoi`].
const EOI_SHIFT: u32 = 16;
/// Shift of [`Notes::latched`].
const LATCHED_SHIFT: u32 = 32;
/// Shift of [`Notes::control`].
const CONTROL_SHIFT: u32 = 48;

impl Notes {
    /// No list register in use, no maintenance interrupt wanted.
    pub const NONE: Notes = Notes(0);

    /// List registers in use.
    #[inline(always)]
    pub fn used(self) -> u32 {
        self.0 as u32 & 0xffff
    }

    /// Of these, the ones that report the end of their interrupt.
    pub fn eoi(self) -> u32 {
        (self.0 >> EOI_SHIFT) as u32 & 0xffff
    }

    /// Whether list register `n` is pending because of a latch.
    pub fn latched(self, n: usize) -> bool {
        self.0 >> LATCHED_SHIFT >> n & 1 != 0
    }

    /// What ICH_HCR_EL2 is to hold. Other than `EN` while interrupts wait for a list register.
    pub fn control(self) -> u32 {
        (self.0 >> CONTROL_SHIFT) as u32 | control::EN
    }

    /// Nothing waits, and no end of an interrupt is reported.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 & (0xffff << EOI_SHIFT | 0xffff << CONTROL_SHIFT) == 0
    }

    #[inline(always)]
    pub fn with_used(self, n: usize) -> Notes {
        Notes(self.0 | 1 << n)
    }

    pub fn with_eoi(self, n: usize) -> Notes {
        Notes(self.0 | 1 << EOI_SHIFT << n)
    }

    #[inline(always)]
    pub fn with_latched(self, n: usize) -> Notes {
        Notes(self.0 | 1 << LATCHED_SHIFT << n)
    }

    pub fn without_latched(self, n: usize) -> Notes {
        Notes(self.0 & !(1 << LATCHED_SHIFT << n))
    }

    /// List register `n` is free.
    #[inline(always)]
    pub fn without(self, n: usize) -> Notes {
        Notes(self.0 & !((1 | 1 << EOI_SHIFT | 1 << LATCHED_SHIFT) << n))
    }

    pub fn with_control(self, value: u32) -> Notes {
        Notes(self.0 & !(0xffff << CONTROL_SHIFT) | u64::from(value & 0xfffe) << CONTROL_SHIFT)
    }
}

/// One vCPU's part of the virtual GIC. The fields of the short paths come first.
///
/// "Owner" fields are written only by the CPU that has the vCPU loaded; another one takes over behind the
/// scheduler's lock. So they are atomics for their type alone: relaxed loads and stores, no read-modify-write.
#[repr(C, align(64))]
pub(super) struct VgicCpu {
    /// Bits 0 to 31: private interrupts that are pending but not by a line. Above: signals for the owner.
    /// In one word, so that one atomic operation posts an interrupt.
    pub signals: AtomicU64,
    /// Owner: see [`Notes`].
    notes: AtomicU64,
    /// Owner: private interrupts in list registers.
    pub in_lr: AtomicU32,
    /// Owner: the hardware-linked interrupt, 0 for none: INTID, [`HW_PINTID_SHIFT`], [`HW_WAITING`].
    pub hw: AtomicU32,
    // One bit for each private interrupt.
    pub enabled: AtomicU32,
    pub group1: AtomicU32,
    pub edge: AtomicU32,
    /// Active, and in no list register.
    pub active: AtomicU32,
    pub line: AtomicU32,
    /// GICR_WAKER.ProcessorSleep.
    pub asleep: AtomicU32,
    /// Owner: the INTID in each list register in use.
    pub lr_intid: [AtomicU8; 16],
    pub priority: [AtomicU8; 32],
    /// SPIs that are routed to this vCPU; a hint, [`super::Vgic::route`] decides.
    pub routed: AtomicU64,
    /// Owner: the CPU interface while the vCPU isn't loaded. List registers are 0 while it is.
    pub vmcr: AtomicU32,
    pub apr: [[AtomicU32; 4]; 2],
    pub saved: [AtomicU64; 16],
}

/// ICFGR of SGIs: always edge-triggered.
const SGIS: u32 = 0xffff;

impl VgicCpu {
    pub const fn new() -> VgicCpu {
        VgicCpu {
            signals: AtomicU64::new(0),
            notes: AtomicU64::new(0),
            in_lr: AtomicU32::new(0),
            hw: AtomicU32::new(0),
            enabled: AtomicU32::new(0),
            group1: AtomicU32::new(0),
            edge: AtomicU32::new(SGIS),
            active: AtomicU32::new(0),
            line: AtomicU32::new(0),
            asleep: AtomicU32::new(1),
            lr_intid: [const { AtomicU8::new(0) }; 16],
            priority: [const { AtomicU8::new(0) }; 32],
            routed: AtomicU64::new(0),
            vmcr: AtomicU32::new(0),
            apr: [const { [const { AtomicU32::new(0) }; 4] }; 2],
            saved: [const { AtomicU64::new(0) }; 16],
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
        for word in [&self.in_lr, &self.hw, &self.vmcr] {
            word.store(0, Relaxed);
        }
        self.set_notes(Notes::NONE);
        for lr in &self.saved {
            lr.store(0, Relaxed);
        }
        for apr in self.apr.iter().flatten() {
            apr.store(0, Relaxed);
        }
    }

    /// The owner's notes.
    #[inline(always)]
    pub fn notes(&self) -> Notes {
        Notes(self.notes.load(Relaxed))
    }

    /// Owner: new notes.
    #[inline(always)]
    pub fn set_notes(&self, notes: Notes) {
        self.notes.store(notes.0, Relaxed);
    }

    /// Owner: list register `n`, free until now, holds an interrupt. An SPI's claim is the caller's.
    #[inline(always)]
    pub fn occupy(&self, n: usize, intid: u32) {
        self.lr_intid[n & 15].store(intid as u8, Relaxed);
        self.set_notes(self.notes().with_used(n));
        if intid < 32 {
            self.in_lr.store(self.in_lr.load(Relaxed) | 1 << intid, Relaxed);
        }
    }

    /// Owner: list register `n` holds nothing any more. An SPI's claim is the caller's.
    pub fn vacate(&self, n: usize) {
        let intid = self.intid(n);
        if intid < 32 {
            self.in_lr.store(self.in_lr.load(Relaxed) & !(1 << intid), Relaxed);
        }
        self.unlink(intid);
        self.set_notes(self.notes().without(n));
    }

    /// Owner: if the linked interrupt is this one, and in a list register, it is linked no more.
    #[inline(always)]
    pub fn unlink(&self, intid: u32) {
        // INTID 0 is never linked, so 0 means none.
        if self.hw.load(Relaxed) & (HW_WAITING | 0xff) == intid {
            self.hw.store(0, Relaxed);
        }
    }

    /// Raises the general signal, after a change of state.
    pub fn signal(&self) {
        // SeqCst: after the change, before the caller looks where the vCPU runs.
        self.signals.fetch_or(CHANGED, SeqCst);
    }

    /// The INTID in list register `n`.
    #[inline(always)]
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
