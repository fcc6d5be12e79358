//! The CPUs: what belongs to each, starting and stopping them, running something on another one.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use crate::arch::{cpu, gic, mmio::Registers, psci};
use crate::kernel::machine;
use crate::queue::{MAX_CPUS, NONE};
use crate::sync::{Lock, Masked, relax};

/// The SGI that says: look for a job.
pub const SGI_JOB: u32 = 0;
/// The SGI that says: there is a task.
pub const SGI_KICK: u32 = 1;
/// The SGI that the micro load measures.
pub const SGI_MEASURE: u32 = 2;

/// INTIDs of which arrivals are kept: SGIs, PPIs and the first SPIs.
const KEPT: usize = 64;

/// What belongs to one CPU. Written by itself unless the field says otherwise.
#[repr(align(64))]
pub struct Cpu {
    /// MPIDR affinity; written once at boot.
    pub affinity: AtomicU64,
    /// The counter at its first instruction.
    pub started: AtomicU64,
    online: AtomicBool,
    /// What others want it to do.
    job: Lock<Option<fn()>>,
    /// From giving a job until it is done.
    busy: AtomicBool,
    /// When an interrupt last came: the counter at the start of the handler.
    arrived: [AtomicU64; KEPT],
    /// How often it came; stored after `arrived`.
    arrivals: [AtomicU64; KEPT],
    /// A probe runs: the next synchronous exception is expected.
    pub expects_fault: AtomicBool,
    /// The expected exception's syndrome.
    pub fault: AtomicU64,
    /// The task that runs.
    pub current: AtomicU16,
    /// The task that ran before it, until it has left its stack.
    pub previous: AtomicU16,
    /// The counter when the task that runs was switched to.
    pub since: AtomicU64,
    /// Written by all: a task is queued here that should run before the one that does.
    pub wants_switch: AtomicBool,
    /// Set by who sends it the SGI for tasks, cleared by its handler.
    pub kicked: AtomicBool,
    /// TTBR0_EL1 as it stands.
    pub space: AtomicU64,
    /// The tick is armed.
    pub ticking: AtomicBool,
    /// Task switches.
    pub switches: AtomicU64,
    /// Ticks.
    pub ticks: AtomicU64,
    /// SGIs sent to CPUs for which a task has been queued.
    pub kicks: AtomicU64,
    /// Waits for an interrupt when idle.
    pub waits: AtomicU64,
    /// Tasks taken from other CPUs.
    pub steals: AtomicU64,
}

impl Cpu {
    const fn new() -> Cpu {
        Cpu {
            affinity: AtomicU64::new(0),
            started: AtomicU64::new(0),
            online: AtomicBool::new(false),
            job: Lock::new(None),
            busy: AtomicBool::new(false),
            arrived: [const { AtomicU64::new(0) }; KEPT],
            arrivals: [const { AtomicU64::new(0) }; KEPT],
            expects_fault: AtomicBool::new(false),
            fault: AtomicU64::new(0),
            current: AtomicU16::new(NONE),
            previous: AtomicU16::new(NONE),
            since: AtomicU64::new(0),
            wants_switch: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
            space: AtomicU64::new(0),
            ticking: AtomicBool::new(false),
            switches: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            steals: AtomicU64::new(0),
        }
    }

    /// How often an interrupt came.
    #[inline(always)]
    pub fn arrivals(&self, intid: u32) -> u64 {
        self.arrivals[intid as usize % KEPT].load(Ordering::Acquire)
    }

    /// When it last came.
    pub fn arrived(&self, intid: u32) -> u64 {
        self.arrived[intid as usize % KEPT].load(Ordering::Relaxed)
    }

    /// Notes an interrupt.
    #[inline(always)]
    pub fn note(&self, intid: u32, time: u64) {
        let i = intid as usize % KEPT;
        self.arrived[i].store(time, Ordering::Relaxed);
        self.arrivals[i].store(self.arrivals[i].load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Whether it has been started and not gone off.
    pub fn is_online(&self) -> bool {
        self.online.load(Ordering::Acquire)
    }
}

/// Adds one to a counter that only its owner writes.
#[inline(always)]
pub fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

/// The CPU with this index.
#[inline(always)]
pub fn get(index: usize) -> &'static Cpu {
    &CPUS[index % MAX_CPUS]
}

/// The CPU that executes this. To be used with interrupts masked, or where tasks don't move.
#[inline(always)]
pub fn this() -> &'static Cpu {
    get(cpu::index())
}

/// How many CPUs the kernel may use: one where nothing can start the others.
pub fn number() -> usize {
    if machine().psci.is_some() { machine().cpus.len() } else { 1 }
}

/// Says that this CPU is up.
pub fn set_online(online: bool) {
    this().online.store(online, Ordering::Release);
}

unsafe extern "C" {
    fn secondary_entry();
}

/// The address at which a started CPU begins.
pub fn entry() -> u64 {
    secondary_entry as *const () as u64
}

/// Why a CPU could not be started.
#[derive(Clone, Copy, Debug)]
pub enum StartError {
    /// CPU_ON's status.
    Refused(i64),
    /// CPU_ON succeeded, but the CPU didn't come up within [`PATIENCE`].
    Silent,
}

/// How long anything may take that must come, in seconds. An emulator with many CPUs on few threads makes a
/// guest wait for long while the counter goes on: no reason to give up.
pub const PATIENCE: u64 = 120;

/// Waits until `done`, at most for [`PATIENCE`]; false: it was too long.
#[must_use]
pub fn wait(mut done: impl FnMut() -> bool) -> bool {
    let start = cpu::counter();
    let limit = PATIENCE * cpu::frequency();
    while !done() {
        if cpu::counter().wrapping_sub(start) > limit {
            return false;
        }
        relax();
    }
    true
}

/// Starts CPU `index` and waits until it is up.
///
/// # Errors
/// CPU_ON failed, or nothing came of it.
pub fn start(index: usize) -> Result<(), StartError> {
    let cpu = get(index);
    let affinity = cpu.affinity.load(Ordering::Relaxed);
    let status = psci::status(psci::call(psci::CPU_ON, affinity, entry(), index as u64));
    if status != 0 {
        return Err(StartError::Refused(status));
    }
    if wait(|| cpu.is_online()) { Ok(()) } else { Err(StartError::Silent) }
}

/// Starts all CPUs that are off; false (after saying so) when one doesn't come.
pub fn start_all() -> bool {
    for index in 1..number() {
        if get(index).is_online() {
            continue;
        }
        if let Err(error) = start(index) {
            super::error(format_args!("vCPU {index} could not be started: {error:?}"));
            return false;
        }
    }
    true
}

/// Sends an SGI to a CPU.
#[inline]
pub fn send(index: usize, intid: u32) {
    gic::send_sgi(gic::sgi_value(get(index).affinity.load(Ordering::Relaxed), intid));
}

/// Lets another CPU that waits for jobs run `job`.
pub fn run_on(index: usize, job: fn()) {
    let cpu = get(index);
    cpu.busy.store(true, Ordering::Relaxed);
    *cpu.job.lock() = Some(job);
    send(index, SGI_JOB);
}

/// Whether a CPU's job is done.
pub fn is_done(index: usize) -> bool {
    !get(index).busy.load(Ordering::Acquire)
}

/// Runs `job` on all CPUs, this one too, and waits until all have done it.
pub fn run_everywhere(job: fn()) {
    for index in 1..number() {
        run_on(index, job);
    }
    job();
    for index in 1..number() {
        while !is_done(index) {
            relax();
        }
    }
}

/// Does jobs for ever.
pub fn work() -> ! {
    let cpu = this();
    loop {
        let masked = Masked::new();
        let job = cpu.job.lock().take();
        match job {
            Some(job) => {
                drop(masked);
                job();
                cpu.busy.store(false, Ordering::Release);
            }
            // Masked until it waits: the SGI stays pending and ends the wait.
            None => cpu::wait_for_interrupt(),
        }
    }
}

/// A job: goes off.
pub fn go_off() {
    let cpu = this();
    cpu.busy.store(false, Ordering::Relaxed);
    cpu.online.store(false, Ordering::Release);
    let status = psci::status(psci::call(psci::CPU_OFF, 0, 0, 0));
    cpu.online.store(true, Ordering::Release);
    super::error(format_args!("CPU_OFF returned {status}"));
}

/// Waits until a CPU that goes off is off (AFFINITY_INFO says 1).
#[must_use]
pub fn wait_off(index: usize) -> bool {
    let affinity = get(index).affinity.load(Ordering::Relaxed);
    wait(|| psci::status(psci::call(psci::AFFINITY_INFO, affinity, 0, 0)) == 1)
}

/// The redistributor of this CPU.
pub fn redistributor() -> Option<Registers> {
    gic::redistributor(machine(), cpu::affinity())
}
