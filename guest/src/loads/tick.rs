//! `tick`: a guest that hangs when a scheduler forgets somebody.
//!
//! vCPU 0 computes, without an exit, until vCPU 1 has answered; vCPU 1 waits by WFI for an SGI from vCPU 2; vCPU 2 sleeps by its timer,
//! computes, sleeps, sends the SGI, and waits for the next round. With vCPUs 0 and 1 on one CPU only time slices and kicks let vCPU 1
//! get it, while vCPU 2 comes and goes between CPUs. All times vary.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::cpu;
use crate::kernel::console::report;
use crate::kernel::{cpus, error, machine};
use crate::samples::ticks;
use crate::sync::{Masked, relax};

/// vCPU 2 to vCPU 1.
const SGI_ASK: u32 = 3;
/// vCPU 0 to vCPU 2: the next round.
const SGI_NEXT: u32 = 4;
/// Seconds that a round may take.
const PATIENCE: u64 = 20;

static ROUNDS: AtomicU64 = AtomicU64::new(0);
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// A time that depends on the round, below `most` microseconds, in ticks.
fn vary(round: u64, factor: u64, most: u64) -> u64 {
    ticks(round * factor % most * 1000, cpu::frequency())
}

/// Waits by WFI until an interrupt has come `times` times.
fn wait(intid: u32, times: u64) {
    loop {
        let _masked = Masked::new();
        if cpus::this().arrivals(intid) >= times {
            return;
        }
        cpu::wait_for_interrupt();
    }
}

fn sleep(time: u64) {
    let timer = machine().timer;
    let before = cpus::this().arrivals(timer);
    cpu::arm_timer(cpu::counter() + time);
    wait(timer, before + 1);
}

fn compute(time: u64) {
    let end = cpu::counter() + time;
    while cpu::counter() < end {
        core::hint::spin_loop();
    }
}

fn answer() {
    for round in 1..=ROUNDS.load(Ordering::Relaxed) {
        wait(SGI_ASK, round);
        ANSWERS.store(round, Ordering::Release);
    }
}

fn ask() {
    for round in 1..=ROUNDS.load(Ordering::Relaxed) {
        sleep(vary(round, 7919, 700));
        compute(vary(round, 104_729, 200));
        sleep(vary(round, 1_299_709, 300));
        cpus::send(1, SGI_ASK);
        wait(SGI_NEXT, round);
    }
}

/// Runs it; whether every round came to its end.
pub fn run(rounds: u32) -> bool {
    let rounds = u64::from(rounds);
    let limit = PATIENCE * cpu::frequency();
    let mut done = 0;
    if cpus::number() < 3 {
        for round in 1..=rounds {
            compute(vary(round, 15_485_863, 800));
            sleep(vary(round, 7919, 500));
        }
        done = rounds;
    } else {
        if !cpus::start_all() {
            return false;
        }
        ROUNDS.store(rounds, Ordering::Relaxed);
        cpus::run_on(1, answer);
        cpus::run_on(2, ask);
        for round in 1..=rounds {
            sleep(vary(round, 32_452_843, 900));
            let start = cpu::counter();
            while ANSWERS.load(Ordering::Acquire) < round && cpu::counter() - start < limit {
                relax();
            }
            if ANSWERS.load(Ordering::Acquire) < round {
                error(format_args!("round {round}: vCPU 1 has not answered within {PATIENCE} s"));
                break;
            }
            done = round;
            cpus::send(2, SGI_NEXT);
        }
    }
    let ok = done == rounds;
    report!("tick", "\"vcpus\":{},\"rounds\":{},\"ok\":{}", cpus::number(), done, ok);
    ok
}
