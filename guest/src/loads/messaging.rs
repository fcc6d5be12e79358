//! `messaging`: hackbench's meaning on this kernel's tasks. See [`crate::messaging`] and EXPERIMENTS.

use spin::Once;

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arch::{cpu, mmu};
use crate::carrier::{Carrier, Kind};
use crate::kernel::console::report;
use crate::kernel::memory::Arena;
use crate::kernel::pipes::Pipe;
use crate::kernel::{cpus, error, tasks};
use crate::messaging::{Books, LABEL, Messaging, Mode, Role, label};
use crate::samples::{nanoseconds, ticks};

/// Bytes of the pipes for readiness, start and end.
const SIGNAL_PIPE: usize = 4096;

struct Worker {
    /// Where its message buffer is: in its own address space, or in the common one.
    buffer: usize,
    space: Option<u64>,
    /// A receiver's books were as they must be; a sender has sent everything.
    ok: AtomicBool,
    messages: AtomicU64,
}

struct Run {
    parameters: Messaging,
    workers: &'static [Worker],
    carriers: &'static [Pipe],
    /// Each task says that it is ready by a byte here.
    ready: Pipe,
    /// All poll here for the start.
    start: Pipe,
    /// Each task says here that it has ended.
    ended: Pipe,
}

static RUN: Once<Run> = Once::new();

/// Bytes that the load takes.
fn needed(m: &Messaging, workers: usize) -> usize {
    let size = m.size as usize;
    let each = size_of::<Worker>()
        + size_of::<(usize, Option<u64>)>()
        + match m.mode {
            Mode::Process => size_of::<mmu::Root>() + mmu::space_bytes(size),
            Mode::Thread => size.next_multiple_of(64),
        };
    let carriers = m.carriers() as usize * (size_of::<Pipe>() + m.storage() + 64);
    tasks::bytes(workers, cpus::number()) + workers * each + carriers + 3 * SIGNAL_PIPE + mmu::PAGE
}

fn prepare(m: Messaging, workers: usize, arena: &mut Arena) -> Option<Run> {
    let size = m.size as usize;
    // Small things first, so that no page is begun for one of them.
    let places = arena.take::<(usize, Option<u64>)>(workers, 64, (0, None))?;
    match m.mode {
        Mode::Process => {
            let roots = arena.take::<mmu::Root>(workers, 64, [0; 8])?;
            for (i, (place, root)) in places.iter_mut().zip(roots).enumerate() {
                *place = (mmu::PRIVATE_BASE, Some(mmu::new_space(arena, root, 1 + i as u16, size)?));
            }
        }
        Mode::Thread => {
            for place in places.iter_mut() {
                *place = (arena.take::<u8>(size, 64, 0)?.as_ptr() as usize, None);
            }
        }
    }
    let table = arena.take_with(workers, 64, |i| Worker {
        buffer: places[i].0,
        space: places[i].1,
        ok: AtomicBool::new(false),
        messages: AtomicU64::new(0),
    })?;
    let mut pipe = |kind: Kind, capacity: usize, storage: usize| {
        Some(Pipe::new(Carrier::new(kind, capacity, arena.take::<u8>(storage, 64, 0)?)))
    };
    let ready = pipe(Kind::Pipe, SIGNAL_PIPE, SIGNAL_PIPE)?;
    let start = pipe(Kind::Pipe, SIGNAL_PIPE, SIGNAL_PIPE)?;
    let ended = pipe(Kind::Pipe, SIGNAL_PIPE, SIGNAL_PIPE)?;
    let storage = arena.take::<u8>(m.carriers() as usize * m.storage(), 64, 0)?;
    let mut pieces = storage.chunks_exact_mut(m.storage());
    let carriers = arena.take_with(m.carriers() as usize, 64, |_| {
        Pipe::new(Carrier::new(m.carrier, m.capacity(), pieces.next().unwrap_or_default()))
    })?;
    Some(Run { parameters: m, workers: table, carriers, ready, start, ended })
}

/// Runs the load; false when something was wrong, which has been said.
pub fn run(m: Messaging, arena: &mut Arena) -> bool {
    let Some(workers) = m.workers() else { return false };
    let workers = workers as usize;
    let asids = (1usize << cpu::asid_bits()) - 1;
    if m.mode == Mode::Process && workers > asids {
        error(format_args!(
            "mode=process with {workers} tasks needs as many ASIDs, this CPU has {asids}: take fewer or mode=thread"
        ));
        return false;
    }
    if !cpus::start_all() {
        return false;
    }
    let (needed, free) = (needed(&m, workers), arena.free());
    let microseconds = |us: u32| ticks(u64::from(us) * 1000, cpu::frequency());
    let times = tasks::Times { tick: microseconds(m.tick_us), granularity: m.preempt_us.map(microseconds) };
    let (runs, pause) = (m.runs, microseconds(m.pause_us));
    let enough = needed <= free && {
        tasks::start(arena, workers, times, work).is_some()
            && prepare(m, workers, arena).map(|run| RUN.call_once(|| run)).is_some()
    };
    let Some(run) = RUN.get().filter(|_| enough) else {
        error(format_args!(
            "messaging with {workers} tasks needs {} KiB of memory and {} KiB are free: give the guest more \
             memory, or take fewer groups or fds or a smaller buffer",
            needed.div_ceil(1024),
            free / 1024
        ));
        return false;
    };
    (0..runs).all(|number| {
        if number > 0 && pause > 0 {
            tasks::pause(pause);
        }
        one_run(run, number)
    })
}

/// Names of what [`counters`] returns.
const COUNTERS: [&str; 5] = ["switches", "ticks", "kicks", "waits", "steals"];

/// The scheduler's own counters, summed over the CPUs.
fn counters() -> [u64; COUNTERS.len()] {
    let mut sums = [0; COUNTERS.len()];
    for cpu in (0..cpus::number()).map(cpus::get) {
        let counters = [&cpu.switches, &cpu.ticks, &cpu.kicks, &cpu.waits, &cpu.steals];
        for (sum, counter) in sums.iter_mut().zip(counters) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
    sums
}

/// The parent: starts the tasks, waits until all are ready, lets them go, waits until all have ended.
fn one_run(run: &Run, number: u32) -> bool {
    let m = &run.parameters;
    run.start.clear();
    for (i, worker) in run.workers.iter().enumerate() {
        worker.ok.store(false, Ordering::Relaxed);
        worker.messages.store(0, Ordering::Relaxed);
        tasks::spawn(i, worker.space);
    }
    wait_for_all(&run.ready, run.workers.len());
    let before = counters();
    let start = cpu::counter();
    run.start.broadcast(&[1]);
    wait_for_all(&run.ended, run.workers.len());
    let time = nanoseconds(cpu::counter() - start, cpu::frequency());
    let after = counters();

    let messages: u64 = run.workers.iter().map(|w| w.messages.load(Ordering::Relaxed)).sum();
    let left = run.carriers.iter().filter(|carrier| carrier.clear()).count();
    let ok =
        messages == m.messages() && left == 0 && run.workers.iter().all(|w| w.ok.load(Ordering::Relaxed));
    // Each character is an exit, so what doesn't change from run to run is only said when asked for.
    let extra = Extra(m.details.then(|| Details {
        parameters: m,
        tasks: run.workers.len(),
        counted: core::array::from_fn(|i| after[i] - before[i]),
    }));
    report!(
        "messaging",
        "\"run\":{},\"groups\":{},\"messages\":{},\"time_ns\":{},{}\"ok\":{}",
        number,
        m.groups,
        messages,
        time,
        extra,
        ok
    );
    if !ok {
        error(format_args!(
            "messaging: {messages} of {} messages passed, {left} carriers were not empty, or books don't agree",
            m.messages()
        ));
    }
    ok
}

/// What `details=on` adds to a line.
struct Details<'a> {
    parameters: &'a Messaging,
    tasks: usize,
    counted: [u64; COUNTERS.len()],
}

struct Extra<'a>(Option<Details<'a>>);

impl fmt::Display for Extra<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Details { parameters: m, tasks, counted }) = &self.0 else { return Ok(()) };
        write!(
            f,
            "\"fds\":{},\"loops\":{},\"size\":{},\"mode\":\"{}\",\"carrier\":\"{}\",\"vcpus\":{},\"tasks\":{},",
            m.fds,
            m.loops,
            m.size,
            m.mode.name(),
            m.carrier.name(),
            cpus::number(),
            tasks
        )?;
        COUNTERS.iter().zip(counted).try_for_each(|(name, n)| write!(f, "\"{name}\":{n},"))
    }
}

fn wait_for_all(pipe: &Pipe, n: usize) {
    for _ in 0..n {
        pipe.read(&mut [0]);
    }
}

/// A sender's or receiver's life.
fn work(index: usize) {
    let Some(run) = RUN.get() else { return };
    let m = &run.parameters;
    let worker = &run.workers[index];
    // SAFETY: `prepare` gave this task `size` bytes there, and no other task uses them: in process mode no
    // other can even reach them.
    let message = unsafe { core::slice::from_raw_parts_mut(worker.buffer as *mut u8, m.size as usize) };
    run.ready.write(&[1]);
    run.start.poll();
    match m.role(index as u32) {
        Role::Sender { first } => {
            let first = first as usize;
            let carriers = &run.carriers[first..first + m.fds as usize];
            send(m, index as u32, carriers, message);
            worker.ok.store(true, Ordering::Relaxed);
        }
        Role::Receiver { carrier } => {
            let books = receive(m, &run.carriers[carrier as usize], message);
            worker.messages.store(books.messages, Ordering::Relaxed);
            worker.ok.store(books == m.expected(carrier), Ordering::Relaxed);
        }
    }
    run.ended.write(&[1]);
}

fn send(m: &Messaging, sender: u32, carriers: &[Pipe], message: &mut [u8]) {
    let labelled = m.labelled();
    for number in 0..m.loops {
        if let (true, Some(bytes)) = (labelled, message.first_chunk_mut::<LABEL>()) {
            *bytes = label(sender, number).to_le_bytes();
        }
        for carrier in carriers {
            let mut done = 0;
            while done < message.len() {
                done += carrier.write(&message[done..]);
            }
        }
    }
}

fn receive(m: &Messaging, carrier: &Pipe, message: &mut [u8]) -> Books {
    let labelled = m.labelled();
    let mut books = Books::default();
    for _ in 0..m.received() {
        let mut done = 0;
        while done < message.len() {
            done += carrier.read(&mut message[done..]);
        }
        books.enter(message, labelled);
    }
    books
}
