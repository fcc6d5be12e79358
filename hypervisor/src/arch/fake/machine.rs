//! What the simulated CPUs share, and whose turn it is.
//!
//! One CPU runs at a time. Whenever it calls into `arch` a pseudo-random number may give the turn to another one; a CPU that waits gives
//! it away in any case. When all wait, time goes on to the next timer; when there is none, the machine hangs.

use super::guest::Guest;
use super::tlb::Tlbs;
use super::{HERE, here};
use crate::arch::HardwareListRegisters;
use crate::scheduler::{self, Cpu};
use crate::system::System;
use crate::vgic::Vgic;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How a run has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All VMs have ended.
    Off,
    /// All CPUs wait, and nothing will come.
    Hung,
    /// It has taken longer than it may.
    Late,
}

/// What ends a CPU's thread.
struct Over;

/// Ends this CPU's thread.
pub fn leave() -> ! {
    resume_unwind(Box::new(Over))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Another CPU's thread may have failed with the lock held: its failure is what is reported.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What others see of a CPU.
struct Line {
    kicked: AtomicBool,
    /// While it waits: when it goes on without a kick.
    waits_until: AtomicU64,
    /// Told when it gets the turn.
    turn: Condvar,
}

/// [`Line::waits_until`] of one that does not wait.
const RUNS: u64 = 0;

struct Turn {
    holder: usize,
    random: u64,
    outcome: Option<Outcome>,
}

/// The machine.
pub struct Machine {
    time: AtomicU64,
    limit: u64,
    lines: Vec<Line>,
    turn: Mutex<Turn>,
    tlbs: Mutex<Tlbs>,
    guests: Vec<Mutex<Guest>>,
}

impl Machine {
    /// A machine of `cpus` CPUs that executes `guests`, one for each vCPU, for at most `limit` ticks.
    pub fn new(cpus: usize, guests: Vec<Guest>, seed: u64, limit: u64) -> Machine {
        let line = |_| Line {
            kicked: AtomicBool::new(false),
            waits_until: AtomicU64::new(RUNS),
            turn: Condvar::new(),
        };
        Machine {
            time: AtomicU64::new(1),
            limit,
            lines: (0..cpus).map(line).collect(),
            turn: Mutex::new(Turn { holder: 0, random: seed | 1, outcome: None }),
            tlbs: Mutex::new(Tlbs::new(cpus)),
            guests: guests.into_iter().map(Mutex::new).collect(),
        }
    }

    /// The physical count.
    pub fn now(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    /// All CPUs' TLBs.
    pub fn tlbs(&self) -> MutexGuard<'_, Tlbs> {
        lock(&self.tlbs)
    }

    /// What the vCPU with this global number executes.
    pub fn guest(&self, global: u32) -> MutexGuard<'_, Guest> {
        lock(&self.guests[global as usize])
    }

    /// Sends a CPU the kick.
    pub fn kick(&self, cpu: usize) {
        self.lines[cpu].kicked.store(true, Ordering::Relaxed);
    }

    /// Whether a kick is pending.
    pub fn is_kicked(&self, cpu: usize) -> bool {
        self.lines[cpu].kicked.load(Ordering::Relaxed)
    }

    /// A kick is acknowledged.
    pub fn take_kick(&self, cpu: usize) {
        self.lines[cpu].kicked.store(false, Ordering::Relaxed);
    }

    /// The machine stops.
    pub fn end(&self, outcome: Outcome) {
        lock(&self.turn).outcome.get_or_insert(outcome);
        self.tell_all();
    }

    fn tell_all(&self) {
        self.lines.iter().for_each(|line| line.turn.notify_one());
    }

    /// Whether a CPU has something to do.
    fn can_run(&self, cpu: usize) -> bool {
        self.is_kicked(cpu) || self.lines[cpu].waits_until.load(Ordering::Relaxed) <= self.now()
    }

    /// A moment of CPU `me`, which holds the turn: perhaps another gets it.
    pub fn step(&self, me: usize) {
        let mut turn = lock(&self.turn);
        if self.time.fetch_add(1, Ordering::Relaxed) > self.limit {
            turn.outcome.get_or_insert(Outcome::Late);
        }
        // Every few moments, so that CPUs meet in the middle of what they do and yet get on.
        if next(&mut turn.random).is_multiple_of(8) {
            turn.holder = self.choose(&mut turn.random);
        }
        self.take_turn(turn, me);
    }

    /// CPU `me`, which holds the turn, waits for a kick or until `deadline`.
    pub fn wait(&self, me: usize, deadline: u64) {
        let mut turn = lock(&self.turn);
        self.lines[me].waits_until.store(deadline, Ordering::Relaxed);
        if !(0..self.lines.len()).any(|cpu| self.can_run(cpu)) {
            let first = self.lines.iter().map(|line| line.waits_until.load(Ordering::Relaxed)).min();
            match first {
                Some(first) if first <= self.limit => self.time.store(first, Ordering::Relaxed),
                Some(u64::MAX) | None => _ = turn.outcome.get_or_insert(Outcome::Hung),
                Some(_) => _ = turn.outcome.get_or_insert(Outcome::Late),
            }
        }
        if turn.outcome.is_none() {
            turn.holder = self.choose(&mut turn.random);
        }
        self.take_turn(turn, me);
        self.lines[me].waits_until.store(RUNS, Ordering::Relaxed);
    }

    /// One of the CPUs that have something to do. There is one.
    fn choose(&self, random: &mut u64) -> usize {
        let count = self.lines.len();
        let start = next(random) as usize % count;
        (start..start + count).map(|cpu| cpu % count).find(|&cpu| self.can_run(cpu)).unwrap_or(start)
    }

    /// Waits until it is the turn of `me`.
    fn take_turn(&self, mut turn: MutexGuard<'_, Turn>, me: usize) {
        if turn.outcome.is_some() {
            self.tell_all();
        } else if turn.holder != me {
            self.lines[turn.holder].turn.notify_one();
        }
        while turn.outcome.is_none() && turn.holder != me {
            turn = self.lines[me].turn.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        let over = turn.outcome.is_some();
        drop(turn);
        // A thread that fails already must not begin to fail again.
        if over && !std::thread::panicking() {
            leave();
        }
    }

    /// Runs until all VMs have ended, or nothing goes on. A check that fails on any CPU fails here.
    pub fn run(self: &Arc<Self>, system: &'static System) -> Outcome {
        let mut failure: Option<Box<dyn Any + Send>> = None;
        std::thread::scope(|scope| {
            let cpu = |index| {
                let machine = Arc::clone(self);
                scope.spawn(move || {
                    let ended = catch_unwind(AssertUnwindSafe(|| machine.run_cpu(index, system)));
                    let Err(payload) = ended;
                    if !payload.is::<Over>() {
                        machine.end(Outcome::Hung);
                        return Some(payload);
                    }
                    None
                })
            };
            let threads: Vec<_> = (0..self.lines.len()).map(cpu).collect();
            for thread in threads {
                match thread.join() {
                    Ok(found) => failure = failure.take().or(found),
                    Err(payload) => failure = Some(payload),
                }
            }
        });
        if let Some(payload) = failure {
            resume_unwind(payload);
        }
        lock(&self.turn).outcome.expect("all threads have ended")
    }

    /// What each CPU does from `secondary_main` on, and CPU 0 from the start of the VMs.
    fn run_cpu(self: &Arc<Self>, index: usize, system: &'static System) -> ! {
        HERE.with(|here| {
            here.index.set(index);
            assert!(here.machine.set(Arc::clone(self)).is_ok(), "a thread is one CPU");
        });
        self.take_turn(lock(&self.turn), index);
        let vcpus = system.vcpus.get().map_or(0, Vec::len);
        let cpu: &'static Cpu =
            Box::leak(Box::new(Cpu::new(system, crate::ids::CpuId(index as u16), (0, 0), vcpus)));
        here(|here| assert!(here.cpu.set(cpu).is_ok()));
        let now = super::counter();
        cpu.set_mark(now);
        cpu.shared.stats.start(now);
        super::set_vttbr(system.parked_vttbr);
        Vgic::init_cpu(&HardwareListRegisters);
        cpu.shared.online.store(true, Ordering::SeqCst);
        if index == 0 {
            while !system.cpus.iter().all(|cpu| cpu.online.load(Ordering::SeqCst)) {
                super::yield_cpu();
            }
            for vm in system.vms() {
                crate::vm::life::boot(cpu, vm);
            }
        }
        scheduler::run(cpu)
    }
}

/// The next number of an xorshift generator.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 8
}
