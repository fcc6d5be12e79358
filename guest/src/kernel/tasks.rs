//! Tasks: kernel threads with a stack each and, in process mode, an address space; a run queue for each CPU,
//! preemption by the tick, idle by WFI without a tick, wake-ups across CPUs by SGI.
//!
//! A task that is about to sleep puts itself on a wait queue and leaves; whoever takes it from there queues it
//! to run, once. `on_cpu` says that its stack is in use: it is queued where it runs until it has left it, and no
//! other CPU takes it before.

use spin::Once;

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use super::cpus::{self, Cpu};
use super::memory::Arena;
use crate::arch::{cpu, mmu, task};
use crate::queue::{Links, NONE, RunQueues, TaskId};
use crate::sync::{Masked, relax};

/// Bytes of a task's stack.
pub const STACK: usize = 8192;
/// At a stack's low end: when it has changed, the stack has overflowed.
const CANARY: u64 = 0x0d0e_7e5a_ca4a_41e5;
/// The address space of a task that uses whichever is there.
const ANY_SPACE: u64 = 0;

/// A task.
pub struct Task {
    next: AtomicU16,
    on_cpu: AtomicBool,
    /// Where it runs or ran last.
    cpu: AtomicUsize,
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
    tick: u64,
    body: fn(usize),
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
/// must be waiting for jobs. `tick` is in ticks of the counter. `None`: not enough memory.
#[must_use]
pub fn start(arena: &mut Arena, workers: usize, tick: u64, body: fn(usize)) -> Option<()> {
    let n = cpus::number();
    let tasks = arena.take_with(n + 1 + workers, 64, |i| Task {
        next: AtomicU16::new(NONE),
        on_cpu: AtomicBool::new(i <= n),
        cpu: AtomicUsize::new(if i < n { i } else { 0 }),
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
    SCHEDULER.call_once(|| Scheduler { tasks, run: RunQueues::new(n), tick, body });
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
    // It may still be leaving its stack after it said that it has ended.
    while task.on_cpu.load(Ordering::Acquire) {
        relax();
    }
    let low = task.canary.load(Ordering::Relaxed) as *mut u64;
    // SAFETY: the stack that `start` took for this task alone; nobody runs on it.
    let stack = unsafe { core::slice::from_raw_parts_mut(low, STACK / 8) };
    task.sp.store(task::prepare(stack, id as usize), Ordering::Relaxed);
    task.space.store(space.unwrap_or(ANY_SPACE), Ordering::Relaxed);
    let cpu = worker % scheduler.run.cpus();
    task.cpu.store(cpu, Ordering::Relaxed);
    make_ready(id, cpu);
}

/// Queues a task, and sends an SGI to an idle CPU that should come and take it.
fn make_ready(id: TaskId, cpu: usize) {
    let scheduler = scheduler();
    let _masked = Masked::new();
    if let Some(idle) = scheduler.run.push(scheduler.tasks, cpu, id)
        && idle != cpu::index()
    {
        cpus::count(&cpus::this().kicks);
        cpus::send(idle, cpus::SGI_KICK);
    }
}

/// Wakes a task that was taken from a wait queue.
pub fn wake(id: TaskId) {
    let scheduler = scheduler();
    let task = &scheduler.tasks[id as usize];
    let last = task.cpu.load(Ordering::Relaxed);
    // While it is still leaving its stack only the CPU where it does so may run it next.
    let cpu = if task.on_cpu.load(Ordering::Acquire) { last } else { scheduler.run.choose(last) };
    make_ready(id, cpu);
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
    let own = scheduler.run.pop(scheduler.tasks, index);
    let next = match (own, leave) {
        (Some(next), _) => next,
        (None, Leave::Ready) => return,
        (None, Leave::Off) => steal(index).unwrap_or(index as TaskId),
    };
    if leave == Leave::Ready {
        make_ready(current, index);
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

fn arm_tick(cpu: &Cpu) {
    cpu.ticking.store(true, Ordering::Relaxed);
    cpu::arm_timer(cpu::counter() + scheduler().tick);
}

/// The timer's interrupt at time `now`. False: tasks are not in use, or this CPU is idle.
pub fn tick(now: u64) -> bool {
    let Some(scheduler) = SCHEDULER.get() else { return false };
    let cpu = cpus::this();
    if !cpu.ticking.load(Ordering::Relaxed) {
        return false;
    }
    cpus::count(&cpu.ticks);
    cpu::arm_timer(now + scheduler.tick);
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
    switch(Leave::Off);
    unreachable!("an ended task runs again");
}

/// Gives the CPU to another task that is ready, if there is one.
pub fn yield_now() {
    let _masked = Masked::new();
    switch(Leave::Ready);
}
