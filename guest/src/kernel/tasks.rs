//! Tasks: kernel threads with a stack each and, in process mode, an address space; a run queue for each CPU,
//! preemption by the tick, idle by WFI without a tick, wake-ups across CPUs by SGI.
//!
//! A task that wakes goes to an idle CPU if there is one, else to the CPU where it ran last; if that is another
//! one it is told by SGI, as Linux does between CPUs that are not known to share a cache (in a VM: all). There
//! the task preempts the running one when it has had less of the CPU (by a granularity, and with no more than
//! [`CREDIT`] for having slept), much as Linux' fair scheduler decides.
//!
//! A task that is about to sleep puts itself on a wait queue and leaves; whoever takes it from there queues it
//! to run, once. `on_cpu` says that its stack is in use: it is queued where it runs until it has left it, and no
//! other CPU takes it before.

use spin::Once;

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use super::cpus::{self, Cpu};
use super::memory::Arena;
use crate::arch::{cpu, mmu, task};
use crate::queue::{Links, NONE, Place, RunQueues, TaskId};
use crate::samples::ticks;
use crate::sync::{Masked, relax};

/// Bytes of a task's stack.
pub const STACK: usize = 8192;
/// At a stack's low end: when it has changed, the stack has overflowed.
const CANARY: u64 = 0x0d0e_7e5a_ca4a_41e5;
/// The lead that a task can have from sleeping, in nanoseconds (half of Linux' scheduling latency).
const CREDIT: u64 = 3_000_000;
/// The address space of a task that uses whichever is there.
const ANY_SPACE: u64 = 0;

/// A task.
pub struct Task {
    next: AtomicU16,
    /// From being started until it has nothing more to do than to leave its stack.
    alive: AtomicBool,
    on_cpu: AtomicBool,
    /// Where it runs or ran last.
    cpu: AtomicUsize,
    /// How long it has run, in ticks of the counter.
    runtime: AtomicU64,
    sp: AtomicUsize,
    space: AtomicU64,
    /// The lowest word of its stack; 0: a boot stack.
    canary: AtomicUsize,
}

impl Links for [Task] {
    fn next(&self, id: TaskId) -> &AtomicU16 {
        &self[id as usize].next
    }
}

struct Scheduler {
    /// One idle task for each CPU, then the one that started all this, then workers.
    tasks: &'static [Task],
    run: RunQueues,
    times: Times,
    /// [`CREDIT`] in ticks.
    credit: u64,
    body: fn(usize),
}

/// The scheduler's periods, in ticks of the counter.
#[derive(Clone, Copy)]
pub struct Times {
    /// Between two ticks.
    pub tick: u64,
    /// How much less a woken task must have run than the one that it preempts; none: it never does.
    pub granularity: Option<u64>,
}

static SCHEDULER: Once<Scheduler> = Once::new();

fn scheduler() -> &'static Scheduler {
    SCHEDULER.get().expect("tasks are used after tasks::start")
}

/// The links of all tasks, for wait queues.
pub fn links() -> &'static [Task] {
    scheduler().tasks
}

/// Bytes that `n` workers take, address spaces apart.
pub const fn bytes(n: usize, cpus: usize) -> usize {
    (n + cpus + 1) * size_of::<Task>() + (n + 1) * STACK + 4096
}

/// Makes `workers` tasks, which [`spawn`] starts, and turns the caller into a task. All CPUs take part; they
/// must be waiting for jobs. `None`: not enough memory.
#[must_use]
pub fn start(arena: &mut Arena, workers: usize, times: Times, body: fn(usize)) -> Option<()> {
    let n = cpus::number();
    let tasks = arena.take_with(n + 1 + workers, 64, |i| Task {
        next: AtomicU16::new(NONE),
        alive: AtomicBool::new(false),
        on_cpu: AtomicBool::new(i <= n),
        cpu: AtomicUsize::new(if i < n { i } else { 0 }),
        runtime: AtomicU64::new(0),
        sp: AtomicUsize::new(0),
        space: AtomicU64::new(ANY_SPACE),
        canary: AtomicUsize::new(0),
    })?;
    // CPU 0's idle task needs a stack of its own: the caller goes on using the boot stack.
    tasks[0].on_cpu.store(false, Ordering::Relaxed);
    give_stack(&tasks[0], arena.take::<u64>(STACK / 8, 16, 0)?, 0);
    for (i, task) in tasks.iter().enumerate().skip(n + 1) {
        give_stack(task, arena.take::<u64>(STACK / 8, 16, 0)?, i);
    }
    let space = mmu::kernel_space();
    for i in 0..n {
        cpus::get(i).space.store(space, Ordering::Relaxed);
        cpus::get(i).current.store(if i == 0 { n as TaskId } else { i as TaskId }, Ordering::Relaxed);
    }
    let credit = ticks(CREDIT, cpu::frequency());
    SCHEDULER.call_once(|| Scheduler { tasks, run: RunQueues::new(n), times, credit, body });
    for i in 1..n {
        cpus::run_on(i, idle_job);
    }
    let _masked = Masked::new();
    arm_tick(cpus::this());
    Some(())
}

fn give_stack(task: &Task, stack: &mut [u64], id: usize) {
    stack[0] = CANARY;
    task.canary.store(stack.as_ptr() as usize, Ordering::Relaxed);
    task.sp.store(task::prepare(stack, id), Ordering::Relaxed);
}

/// The number of a worker's task.
fn worker_id(worker: usize) -> TaskId {
    (cpus::number() + 1 + worker) as TaskId
}

/// Starts worker `worker`, which is new or has ended, in an address space (`None`: any).
pub fn spawn(worker: usize, space: Option<u64>) {
    let scheduler = scheduler();
    let id = worker_id(worker);
    let task = &scheduler.tasks[id as usize];
    // It may not be through yet, and even wait for this CPU, when the load knows already that it has ended.
    while task.alive.load(Ordering::Acquire) || task.on_cpu.load(Ordering::Acquire) {
        let masked = Masked::new();
        switch(Leave::Ready);
        drop(masked);
        relax();
    }
    task.alive.store(true, Ordering::Relaxed);
    let low = task.canary.load(Ordering::Relaxed) as *mut u64;
    // SAFETY: the stack that `start` took for this task alone; nobody runs on it.
    let stack = unsafe { core::slice::from_raw_parts_mut(low, STACK / 8) };
    task.sp.store(task::prepare(stack, id as usize), Ordering::Relaxed);
    task.space.store(space.unwrap_or(ANY_SPACE), Ordering::Relaxed);
    task.runtime.store(0, Ordering::Relaxed);
    let cpu = worker % scheduler.run.cpus();
    task.cpu.store(cpu, Ordering::Relaxed);
    make_ready(id, cpu, Place::Last);
}

/// Queues a task, and sends an SGI to an idle CPU that should come and take it. Whether there was one.
fn make_ready(id: TaskId, cpu: usize, place: Place) -> bool {
    let scheduler = scheduler();
    let _masked = Masked::new();
    let idle = scheduler.run.push(scheduler.tasks, cpu, id, place);
    match idle {
        Some(idle) if idle != cpu::index() => kick(idle),
        _ => {}
    }
    idle.is_some()
}

/// Sends the SGI, unless one is on its way: whoever handles that sees what has been queued before this.
fn kick(index: usize) {
    if !cpus::get(index).kicked.swap(true, Ordering::SeqCst) {
        cpus::count(&cpus::this().kicks);
        cpus::send(index, cpus::SGI_KICK);
    }
}

/// Wakes a task that was taken from a wait queue. Interrupts are masked. Where it should preempt the caller,
/// [`give_way`] lets it.
pub fn wake(id: TaskId) {
    let scheduler = scheduler();
    let task = &scheduler.tasks[id as usize];
    let last = task.cpu.load(Ordering::Relaxed);
    // While it is still leaving its stack only the CPU where it does so may run it next.
    let index = if task.on_cpu.load(Ordering::Acquire) { last } else { scheduler.run.choose(last) };
    let preempts = preempts(task, cpus::get(index));
    if preempts {
        cpus::get(index).wants_switch.store(true, Ordering::Relaxed);
    }
    let kicked = make_ready(id, index, if preempts { Place::Next } else { Place::Last });
    if index != cpu::index() && !kicked {
        kick(index);
    }
}

/// Whether a task that wakes should run before the one on that CPU, which may change meanwhile: a matter of
/// fairness only.
fn preempts(woken: &Task, cpu: &Cpu) -> bool {
    let scheduler = scheduler();
    let current = cpu.current.load(Ordering::Relaxed);
    let Some(granularity) = scheduler.times.granularity else { return false };
    if usize::from(current) < scheduler.run.cpus() {
        return false; // idle: it looks for work anyway
    }
    let since = cpu.since.load(Ordering::Relaxed);
    let now = cpu::counter().saturating_sub(since);
    let other = scheduler.tasks[current as usize].runtime.load(Ordering::Relaxed) + now;
    let own = woken.runtime.load(Ordering::Relaxed).max(other.saturating_sub(scheduler.credit));
    woken.runtime.store(own, Ordering::Relaxed);
    own + granularity < other
}

/// Lets a task run that has been woken and should come first. Interrupts are masked, no lock is held.
#[inline]
pub fn give_way() {
    if cpus::this().wants_switch.load(Ordering::Relaxed) {
        switch(Leave::Ready);
    }
}

/// The task that runs here. Interrupts are masked, or the answer may be old.
pub fn current() -> TaskId {
    cpus::this().current.load(Ordering::Relaxed)
}

/// What becomes of the task that leaves the CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It waits on a queue, has ended, or is an idle task.
    Off,
    /// It could go on.
    Ready,
}

/// Leaves the CPU to the next task. Interrupts are masked. Returns when the caller's task runs again.
fn switch(leave: Leave) {
    let scheduler = scheduler();
    let cpu = cpus::this();
    let index = cpu::index();
    let current = cpu.current.load(Ordering::Relaxed);
    cpu.wants_switch.store(false, Ordering::Relaxed);
    let own = scheduler.run.pop(scheduler.tasks, index);
    let next = match (own, leave) {
        (Some(next), _) => next,
        (None, Leave::Ready) => return,
        (None, Leave::Off) => steal(index).unwrap_or(index as TaskId),
    };
    if leave == Leave::Ready {
        make_ready(current, index, Place::Last);
    }
    if next == current {
        return; // woken before it had left, or an idle task with nothing to do
    }
    let (from, to) = (&scheduler.tasks[current as usize], &scheduler.tasks[next as usize]);
    if let canary @ 1.. = from.canary.load(Ordering::Relaxed) {
        // SAFETY: the lowest word of a stack that `start` made.
        if unsafe { *(canary as *const u64) } != CANARY {
            panic!("task {current} overflowed its stack");
        }
    }
    to.on_cpu.store(true, Ordering::Relaxed);
    to.cpu.store(index, Ordering::Relaxed);
    cpu.current.store(next, Ordering::Relaxed);
    cpu.previous.store(current, Ordering::Relaxed);
    cpus::count(&cpu.switches);
    let now = cpu::counter();
    let ran = now.wrapping_sub(cpu.since.swap(now, Ordering::Relaxed));
    from.runtime.store(from.runtime.load(Ordering::Relaxed) + ran, Ordering::Relaxed);
    if next as usize >= scheduler.run.cpus() && !cpu.ticking.load(Ordering::Relaxed) {
        arm_tick(cpu);
    }
    let space = to.space.load(Ordering::Relaxed);
    if space != ANY_SPACE && space != cpu.space.load(Ordering::Relaxed) {
        cpu.space.store(space, Ordering::Relaxed);
        mmu::switch_space(space);
    }
    task::switch(&from.sp, &to.sp);
    arrive();
}

/// First thing on the new stack: the previous task has left its own.
fn arrive() {
    let previous = cpus::this().previous.load(Ordering::Relaxed);
    scheduler().tasks[previous as usize].on_cpu.store(false, Ordering::Release);
}

fn steal(index: usize) -> Option<TaskId> {
    let scheduler = scheduler();
    let movable = |id: TaskId| !scheduler.tasks[id as usize].on_cpu.load(Ordering::Acquire);
    let id = scheduler.run.steal(scheduler.tasks, index, movable)?;
    cpus::count(&cpus::this().steals);
    Some(id)
}

/// Sleeps: the caller has put the current task on a wait queue and released that queue's lock, with interrupts
/// masked all the time.
pub fn sleep() {
    switch(Leave::Off);
}

/// Lets this CPU wait without a tick for `time` in ticks of the counter. The caller's task is the only one there is.
pub fn pause(time: u64) {
    let cpu = cpus::this();
    let end = cpu::counter() + time;
    {
        let _masked = Masked::new();
        cpu.ticking.store(false, Ordering::Relaxed);
        cpu::arm_timer(end);
    }
    loop {
        let _masked = Masked::new();
        if cpu::counter() >= end {
            return arm_tick(cpu);
        }
        cpu::wait_for_interrupt();
    }
}

fn arm_tick(cpu: &Cpu) {
    cpu.ticking.store(true, Ordering::Relaxed);
    cpu::arm_timer(cpu::counter() + scheduler().times.tick);
}

/// The SGI that says that a task has been queued here.
pub fn kicked() {
    cpus::this().kicked.store(false, Ordering::SeqCst);
    if SCHEDULER.get().is_some() && usize::from(current()) >= scheduler().run.cpus() {
        give_way();
    }
}

/// The timer's interrupt at time `now`. False: tasks are not in use, or this CPU is idle.
pub fn tick(now: u64) -> bool {
    let Some(scheduler) = SCHEDULER.get() else { return false };
    let cpu = cpus::this();
    if !cpu.ticking.load(Ordering::Relaxed) {
        return false;
    }
    cpus::count(&cpu.ticks);
    cpu::arm_timer(now + scheduler.times.tick);
    true
}

/// At the end of an interrupt that was a tick: another task's turn, if one is waiting.
pub fn preempt() {
    if usize::from(current()) >= scheduler().run.cpus() {
        switch(Leave::Ready);
    }
}

/// The job of the CPUs that take part: their boot stack is the idle task's.
fn idle_job() {
    idle()
}

fn idle() -> ! {
    let scheduler = scheduler();
    let cpu = cpus::this();
    let index = cpu::index();
    loop {
        let masked = Masked::new();
        switch(Leave::Off);
        if !scheduler.run.enter_idle(index) {
            if cpu.ticking.load(Ordering::Relaxed) {
                cpu.ticking.store(false, Ordering::Relaxed);
                cpu::stop_timer();
            }
            cpus::count(&cpu.waits);
            cpu::wait_for_interrupt();
            scheduler.run.leave_idle(index);
        }
        drop(masked); // takes the interrupt
        cpu::isb();
    }
}

/// Where a new task begins, with interrupts masked.
#[unsafe(no_mangle)]
extern "C" fn guest_task(id: usize) -> ! {
    arrive();
    cpu::unmask_interrupts();
    let cpus = cpus::number();
    if id < cpus {
        idle();
    }
    (scheduler().body)(id - cpus - 1);
    let _masked = Masked::new();
    scheduler().tasks[id].alive.store(false, Ordering::Release);
    switch(Leave::Off);
    unreachable!("an ended task runs again");
}
