//! A double of the machine, on the host, for tests: what `arch` offers of registers, timers, TLBs and interrupts, so that the scheduler,
//! the exits and a VM's life run as they stand.
//!
//! Each simulated CPU is a thread, of which one runs at a time ([`machine`]): a call into this module is where another may be let on. So a
//! run depends on its seed alone. [`guest`] executes what stands for guests, and checks at each of their instructions what
//! must hold whenever a guest runs.

mod gic;
pub mod guest;
pub mod machine;
mod memory;
pub mod program;
mod tlb;
mod world;

pub use gic::*;
pub use guest::enter;
pub use memory::*;
pub use tlb::*;
pub use world::*;

use crate::arch::context::{El1State, TimerState};
use crate::exit::id_registers::{IdRegisters, SLOTS};
use crate::memory::address::{Pa, PaRange};
use crate::platform::machine::Conduit;
use crate::scheduler::Cpu;
use crate::vgic::fake::FakeLrs;
use machine::Machine;
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

/// The physical interrupts of the machine.
pub const KICK: u32 = 0;
/// Maintenance of list registers.
pub const MAINTENANCE: u32 = 25;
/// EL2's physical timer.
pub const EL2_TIMER: u32 = 26;
/// EL1's virtual timer.
pub const VIRTUAL_TIMER: u32 = 27;
/// ICC_IAR1_EL1 when nothing is pending.
const SPURIOUS: u32 = 1023;

/// The registers of the CPU that a thread stands for.
struct Here {
    machine: OnceCell<Arc<Machine>>,
    index: Cell<usize>,
    cpu: OnceCell<&'static Cpu>,
    /// CNTHP_CVAL_EL2, if that timer is on.
    el2_timer: Cell<Option<u64>>,
    virtual_timer: Cell<TimerState>,
    cntvoff: Cell<u64>,
    vttbr: Cell<u64>,
    syndrome: Cell<u64>,
    fault_address: Cell<u64>,
    fault_ipa: Cell<u64>,
    el1: RefCell<El1State>,
    fp: Cell<u128>,
    fp_traps: Cell<bool>,
    pauth_keys: Cell<[u64; 10]>,
    pauth_traps: Cell<bool>,
    /// An interrupt that nobody knows, if one's line is high.
    stray: Cell<Option<u32>>,
    lrs: FakeLrs,
}

thread_local! {
    static HERE: Here = Here {
        machine: OnceCell::new(),
        index: Cell::new(0),
        cpu: OnceCell::new(),
        el2_timer: Cell::new(None),
        virtual_timer: Cell::default(),
        cntvoff: Cell::new(0),
        vttbr: Cell::new(0),
        syndrome: Cell::new(0),
        fault_address: Cell::new(0),
        fault_ipa: Cell::new(0),
        el1: RefCell::default(),
        fp: Cell::new(0),
        fp_traps: Cell::new(true),
        pauth_keys: Cell::new([0; 10]),
        pauth_traps: Cell::new(true),
        stray: Cell::new(None),
        lrs: FakeLrs::new(4),
    };
}

fn here<T>(look: impl FnOnce(&Here) -> T) -> T {
    HERE.with(look)
}

fn machine() -> Arc<Machine> {
    here(|here| Arc::clone(here.machine.get().expect("a simulated CPU")))
}

impl Here {
    fn is_active(&self, intid: u32) -> bool {
        self.lrs.physical_active.borrow().contains(&intid)
    }

    /// When the virtual timer expires (physical count), if it would interrupt then.
    fn virtual_deadline(&self) -> Option<u64> {
        let timer = self.virtual_timer.get();
        timer.armed().then(|| timer.cval.saturating_add(self.cntvoff.get()))
    }

    /// When the next timer interrupts, if one will.
    fn deadline(&self) -> u64 {
        let el2 = self.el2_timer.get().filter(|_| !self.is_active(EL2_TIMER));
        let virt = self.virtual_deadline().filter(|_| !self.is_active(VIRTUAL_TIMER));
        el2.unwrap_or(u64::MAX).min(virt.unwrap_or(u64::MAX))
    }

    /// The interrupt that would be acknowledged.
    fn pending(&self) -> Option<u32> {
        let machine = self.machine.get()?;
        let now = machine.now();
        let is_due =
            |deadline: Option<u64>, intid| deadline.is_some_and(|at| at <= now) && !self.is_active(intid);
        if machine.is_kicked(self.index.get()) {
            Some(KICK)
        } else if is_due(self.virtual_deadline(), VIRTUAL_TIMER) {
            Some(VIRTUAL_TIMER)
        } else if is_due(self.el2_timer.get(), EL2_TIMER) {
            Some(EL2_TIMER)
        } else if self.lrs.maintenance_asserted() && !self.is_active(MAINTENANCE) {
            Some(MAINTENANCE)
        } else {
            self.stray.get().filter(|&stray| !self.is_active(stray))
        }
    }
}

/// Gives others the chance to run, if this is a simulated CPU.
pub fn step() {
    let (machine, index) = here(|here| (here.machine.get().cloned(), here.index.get()));
    if let Some(machine) = machine {
        machine.step(index);
    }
}

/// The physical counter: a tick for each call into this module, by whoever.
pub fn counter() -> u64 {
    step();
    here(|here| here.machine.get().map_or(0, |machine| machine.now()))
}

/// See the real one.
pub fn arm_el2_timer(deadline: u64) {
    here(|here| here.el2_timer.set(Some(deadline)));
}

/// See the real one.
pub fn disarm_el2_timer() {
    here(|here| here.el2_timer.set(None));
}

/// See the real one.
pub fn this_cpu() -> &'static Cpu {
    here(|here| here.cpu.get().copied()).expect("a simulated CPU")
}

/// Waits until an interrupt is pending; the others run meanwhile.
pub fn wait_for_interrupt() {
    let machine = machine();
    let index = here(|here| here.index.get());
    while here(|here| here.pending()).is_none() {
        machine.wait(index, here(|here| here.deadline()));
    }
}

/// Ends this CPU's thread.
pub fn halt() -> ! {
    machine::leave()
}

/// A wait for another CPU.
pub fn yield_cpu() {
    if here(|here| here.machine.get().is_some()) {
        step();
    } else {
        std::thread::yield_now();
    }
}

/// SYSTEM_OFF, which is all that is called once CPUs run.
pub fn firmware_call(_: Conduit, function: u32, _: u64, _: u64, _: u64) -> i64 {
    assert_eq!(function, 0x8400_0008);
    machine().end(machine::Outcome::Off);
    -1
}

/// A CPU whose features are all zero, but for pointer authentication (ID_AA64ISAR1_EL1.APA).
pub fn id_registers() -> IdRegisters {
    let mut values = [0; SLOTS];
    values[6 * 8 + 1] = 1 << 4;
    IdRegisters::from_hardware(values)
}

/// The image's parts: there are none.
pub struct ImageLayout {
    /// All of it.
    pub whole: PaRange,
}

/// See the real one.
pub fn image_layout() -> ImageLayout {
    ImageLayout { whole: PaRange::new(Pa(0), 0) }
}
