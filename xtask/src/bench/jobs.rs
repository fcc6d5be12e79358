//! Many runs, a few at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::interrupt;

/// How many QEMUs run at once: two where the clock runs with instructions, as their number then changes nothing.
pub fn at_once(deterministic: bool) -> usize {
    if deterministic { 2 } else { 1 }
}

/// Does all jobs, at most `at_once` at a time; the results are in the jobs' order.
///
/// # Errors
/// The first job's that fails (the rest isn't started then), or Ctrl-C.
pub fn all<J: Send, R: Send>(
    jobs: Vec<J>,
    at_once: usize,
    work: impl Fn(&J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let count = jobs.len();
    let queue: Mutex<VecDeque<(usize, J)>> = Mutex::new(jobs.into_iter().enumerate().collect());
    let results: Mutex<Vec<Option<R>>> = Mutex::new((0..count).map(|_| None).collect());
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let worker = || {
        // A statement of its own: the lock must be free again while the job is done.
        let next = || lock(&queue).pop_front();
        while let Some((index, job)) = next() {
            match interrupt::check().and_then(|()| work(&job)) {
                Ok(result) => lock(&results)[index] = Some(result),
                Err(error) => {
                    lock(&queue).clear();
                    lock(&failure).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(worker);
        }
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().collect::<Option<_>>().context("a run left no result")
}

/// Locks; a thread that panicked with the lock held has ended the program (panic = "abort") or a test.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_jobs_order_and_a_failure_stops_the_rest() {
        let doubled = all((0..50).collect(), 3, |job: &u32| Ok(job * 2)).unwrap();
        assert_eq!(doubled, (0..50).map(|job| job * 2).collect::<Vec<_>>());
        let started = Mutex::new(0);
        let error = all((0..50).collect(), 1, |job: &u32| {
            *started.lock().unwrap() += 1;
            if *job == 3 { anyhow::bail!("job 3") } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().to_string(), "job 3");
        assert_eq!(*started.lock().unwrap(), 4);
    }
}
