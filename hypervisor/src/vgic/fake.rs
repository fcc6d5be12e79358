//! A virtual CPU interface that behaves like the hardware's (IHI 0069, 4.3 and chapter 6), for tests: the hypervisor's side
//! through [`ListRegisters`], the guest's side as methods.

use std::cell::{Cell, RefCell};

use super::ListRegisters;
use super::lr::{ACTIVE, EOI, GROUP1, HW, PENDING, STATE, priority};
use crate::ids::IntId;

/// ICC_IAR1_EL1 when there is nothing to acknowledge.
pub const SPURIOUS: u32 = 1023;

/// ICH_VMCR_EL2: group 1 enabled.
pub const VENG1: u32 = 1 << 1;
/// ICH_VMCR_EL2: group 0 enabled.
pub const VENG0: u32 = 1 << 0;
/// ICH_VMCR_EL2: VEOIM, EOImode 1.
pub const VEOIM: u32 = 1 << 9;
/// ICH_VMCR_EL2 of a guest that takes group 1 interrupts of all priorities.
pub const OPEN: u32 = 0xf0 << 24 | VENG1;

/// What happens in the middle of a function; see [`FakeLrs::hook`].
pub type Hook = Box<dyn Fn(usize)>;

/// One CPU's virtual interface, with 5 bits of priority.
pub struct FakeLrs {
    lrs: RefCell<Vec<u64>>,
    vmcr: Cell<u32>,
    apr: [Cell<u32>; 2],
    control: Cell<u32>,
    /// Physical interrupts that are active, linked ones: the hardware or the hypervisor deactivates them.
    pub physical_active: RefCell<Vec<u32>>,
    /// The state of the linked timer's line.
    pub line: Cell<bool>,
    /// Accesses by the hypervisor, to keep the short paths short.
    pub accesses: Cell<usize>,
    /// Called before an access, with its number, to let something happen in the middle of a function.
    pub hook: RefCell<Option<Hook>>,
    /// Each third access gives the host's CPU away, so that races between threads happen.
    pub slow: Cell<bool>,
}

impl FakeLrs {
    /// At rest, with `count` list registers.
    pub fn new(count: usize) -> FakeLrs {
        FakeLrs {
            lrs: RefCell::new(vec![0; count]),
            vmcr: Cell::new(0),
            apr: [Cell::new(0), Cell::new(0)],
            control: Cell::new(super::control::EN),
            physical_active: RefCell::new(Vec::new()),
            line: Cell::new(true),
            accesses: Cell::new(0),
            hook: RefCell::new(None),
            slow: Cell::new(false),
        }
    }

    /// A guest that has opened its CPU interface.
    pub fn open(count: usize) -> FakeLrs {
        let lrs = FakeLrs::new(count);
        lrs.vmcr.set(OPEN);
        lrs
    }

    /// The guest's EOImode.
    pub fn set_eoi_mode(&self, separate: bool) {
        let vmcr = self.vmcr.get() & !VEOIM;
        self.vmcr.set(vmcr | if separate { VEOIM } else { 0 });
    }

    /// The guest's priority mask.
    pub fn set_pmr(&self, pmr: u8) {
        self.vmcr.set(self.vmcr.get() & 0x00ff_ffff | u32::from(pmr) << 24);
    }

    /// List registers as the hypervisor has left them.
    pub fn values(&self) -> Vec<u64> {
        self.lrs.borrow().clone()
    }

    /// ICH_HCR_EL2.
    pub fn control(&self) -> u32 {
        self.control.get()
    }

    /// The running priority: 0x100 when idle.
    pub fn running(&self) -> u32 {
        (self.apr[0].get() | self.apr[1].get()).trailing_zeros().min(32) * 8
    }

    fn candidate(&self) -> Option<usize> {
        let vmcr = self.vmcr.get();
        let pmr = vmcr >> 24;
        let lrs = self.lrs.borrow();
        let best = (0..lrs.len())
            .filter(|&n| lrs[n] & STATE == PENDING)
            .filter(|&n| vmcr & if lrs[n] & GROUP1 != 0 { VENG1 } else { VENG0 } != 0)
            .min_by_key(|&n| priority(lrs[n]))?;
        let urgency = u32::from(priority(lrs[best]));
        (self.control.get() & 1 != 0 && urgency < pmr && urgency < self.running()).then_some(best)
    }

    /// Whether the guest's interrupt line is asserted.
    pub fn signalled(&self) -> bool {
        self.candidate().is_some()
    }

    /// The guest acknowledges: the INTID, or [`SPURIOUS`].
    pub fn acknowledge(&self) -> u32 {
        let Some(n) = self.candidate() else { return SPURIOUS };
        let lr = &mut self.lrs.borrow_mut()[n];
        *lr = *lr & !STATE | ACTIVE;
        let group = usize::from(*lr & GROUP1 != 0);
        self.apr[group].set(self.apr[group].get() | 1 << (priority(*lr) >> 3));
        *lr as u32
    }

    /// The guest ends an interrupt: drops its priority and, with EOImode 0, deactivates it.
    pub fn end(&self, intid: u32) {
        if intid == SPURIOUS {
            return;
        }
        let all = self.apr[0].get() | self.apr[1].get();
        let top = all & all.wrapping_neg();
        for apr in &self.apr {
            apr.set(apr.get() & !top);
        }
        if self.vmcr.get() & VEOIM == 0 {
            self.deactivate_virtual(intid);
        }
    }

    /// The guest writes ICC_DIR_EL1.
    pub fn deactivate_virtual(&self, intid: u32) {
        let mut lrs = self.lrs.borrow_mut();
        let found = lrs.iter_mut().find(|lr| **lr & ACTIVE != 0 && **lr as u32 == intid);
        if let Some(lr) = found {
            *lr &= !ACTIVE;
            if *lr & HW != 0 {
                assert_eq!(*lr & PENDING, 0, "a linked interrupt is never pending and active");
                self.deactivate_physical((*lr >> 32) as u32 & 0x1fff);
            }
        }
    }

    /// The physical interrupt fires: acknowledged and dropped by the hypervisor.
    pub fn physical_fires(&self, pintid: u32) {
        let mut active = self.physical_active.borrow_mut();
        assert!(!active.contains(&pintid), "an active interrupt fires again");
        active.push(pintid);
    }

    fn deactivate_physical(&self, pintid: u32) {
        self.physical_active.borrow_mut().retain(|&p| p != pintid);
    }

    /// ICH_MISR_EL2: whether a maintenance interrupt is asserted.
    pub fn maintenance_asserted(&self) -> bool {
        let lrs = self.lrs.borrow();
        let valid = lrs.iter().filter(|lr| **lr & STATE != 0).count();
        let pending = lrs.iter().filter(|lr| **lr & STATE == PENDING).count();
        let control = self.control.get();
        drop(lrs);
        control & 1 != 0
            && (self.eisr() != 0
                || control & super::control::UIE != 0 && valid <= 1
                || control & super::control::NPIE != 0 && pending == 0)
    }

    fn eisr(&self) -> u32 {
        self.mask(|lr| lr & (STATE | HW | EOI) == EOI)
    }

    fn mask(&self, test: impl Fn(u64) -> bool) -> u32 {
        let lrs = self.lrs.borrow();
        (0..lrs.len()).filter(|&n| test(lrs[n])).fold(0, |mask, n| mask | 1 << n)
    }

    fn count_access(&self) {
        self.accesses.set(self.accesses.get() + 1);
        if let Some(hook) = &*self.hook.borrow() {
            hook(self.accesses.get());
        }
        if self.slow.get() && self.accesses.get().is_multiple_of(3) {
            std::thread::yield_now();
        }
    }

    /// What must hold whenever the guest runs.
    pub fn check(&self) {
        let lrs = self.lrs.borrow();
        for (n, &lr) in lrs.iter().enumerate().filter(|&(_, &lr)| lr & STATE != 0) {
            assert!(lr & (HW | STATE) != HW | STATE, "linked, pending and active: {lr:#x}");
            let same = lrs.iter().filter(|&&other| other & STATE != 0 && other as u32 == lr as u32).count();
            assert_eq!(same, 1, "INTID {} is in two list registers, one is {n}", lr as u32);
        }
    }
}

impl ListRegisters for FakeLrs {
    fn count(&self) -> usize {
        self.lrs.borrow().len()
    }

    fn read(&self, n: usize) -> u64 {
        self.count_access();
        self.lrs.borrow()[n]
    }

    fn write(&self, n: usize, value: u64) {
        self.count_access();
        self.lrs.borrow_mut()[n] = value;
    }

    fn empty_mask(&self) -> u32 {
        self.count_access();
        self.mask(|lr| lr & STATE == 0 && (lr & HW != 0 || lr & EOI == 0))
    }

    fn eoi_mask(&self) -> u32 {
        self.count_access();
        self.eisr()
    }

    fn vmcr(&self) -> u32 {
        self.count_access();
        self.vmcr.get()
    }

    fn set_vmcr(&self, value: u32) {
        self.count_access();
        self.vmcr.set(value);
    }

    fn apr_count(&self) -> usize {
        1
    }

    fn apr(&self, group: usize, _: usize) -> u32 {
        self.count_access();
        self.apr[group].get()
    }

    fn set_apr(&self, group: usize, _: usize, value: u32) {
        self.count_access();
        self.apr[group].set(value);
    }

    fn set_control(&self, value: u32) {
        self.count_access();
        self.control.set(value);
    }

    fn line_high(&self, _: IntId) -> bool {
        self.line.get()
    }

    fn deactivate(&self, pintid: IntId) {
        self.deactivate_physical(pintid.0);
    }
}
