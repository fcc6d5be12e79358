//! System tests: the real images on QEMU, two runs at a time.
//!
//! Each case says what boots on what machine and what must be on the console afterwards (`cases`); what the console has to
//! say is judged by `expect`. A log of each run is kept under `target/test-logs/`.

mod audit;
mod breadth;
mod bug;
mod case;
mod cases;
mod device_tree;
mod el3;
mod expect;
mod launch;
mod linux;
mod overcommit;
mod trace;
mod traps;
mod typing;
mod until;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;

use super::outcome::Report;
use crate::interrupt;
pub use case::Case;

/// The suite's name.
pub const NAME: &str = "system";
/// How many machines run at once.
const AT_ONCE: usize = 2;

/// The cases that `wants` lets through, given their full names and whether they are quick ones.
pub fn wanted(wants: &dyn Fn(&str, bool) -> bool) -> Vec<Case> {
    cases::all().into_iter().chain(trace::all()).filter(|case| wants(&case.full_name(), case.quick)).collect()
}

/// Runs the cases.
///
/// # Errors
/// There is no QEMU, or the images can't be built: then none can run.
pub fn run(cases: &[Case]) -> Result<Report> {
    let bench = launch::Bench::new()?;
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Report::default());
    let work = || {
        // QEMU is told to end with the thread that started it: each thread waits for its own.
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if interrupt::requested() {
                return;
            }
            let start = Instant::now();
            let report = bench.run(case);
            // What Ctrl-C cut off has neither passed nor failed.
            if interrupt::requested() {
                return;
            }
            // If the output is gone, so is whoever would read of it.
            let _ = super::say(&case.full_name(), &report, start.elapsed());
            total.lock().unwrap_or_else(|broken| broken.into_inner()).add(report);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    Ok(total.into_inner().unwrap_or_else(|broken| broken.into_inner()))
}
