//! Queues of tasks, and which CPU a woken task goes to.
//!
//! A queue is a list through a `next` link in each task, so that nothing is allocated; a task is on one queue
//! at most. The links are atomics only because they lie in a shared table: whoever owns the queue (its lock)
//! owns the links of what is on it.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicUsize, Ordering};

use crate::sync::Lock;

/// Most CPUs that the kernel drives.
pub const MAX_CPUS: usize = 8;

/// A task: its index in the table of tasks.
pub type TaskId = u16;

/// No task.
pub const NONE: TaskId = TaskId::MAX;

/// The table that holds each task's link.
pub trait Links {
    /// The link of task `id`.
    fn next(&self, id: TaskId) -> &AtomicU16;
}

impl Links for [AtomicU16] {
    fn next(&self, id: TaskId) -> &AtomicU16 {
        &self[id as usize]
    }
}

/// Tasks in the order in which they came.
pub struct Queue {
    head: TaskId,
    tail: TaskId,
}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Queue {
        Queue { head: NONE, tail: NONE }
    }

    /// Whether nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Puts a task that is on no queue at the end.
    pub fn push(&mut self, links: &(impl Links + ?Sized), id: TaskId) {
        links.next(id).store(NONE, Ordering::Relaxed);
        if self.tail == NONE {
            self.head = id;
        } else {
            links.next(self.tail).store(id, Ordering::Relaxed);
        }
        self.tail = id;
    }

    /// Takes the first task.
    pub fn pop(&mut self, links: &(impl Links + ?Sized)) -> Option<TaskId> {
        self.take(links, |_| true)
    }

    /// Takes the first task that satisfies `wanted`.
    pub fn take(
        &mut self,
        links: &(impl Links + ?Sized),
        mut wanted: impl FnMut(TaskId) -> bool,
    ) -> Option<TaskId> {
        let mut before = NONE;
        let mut id = self.head;
        while id != NONE {
            let next = links.next(id).load(Ordering::Relaxed);
            if wanted(id) {
                if before == NONE {
                    self.head = next;
                } else {
                    links.next(before).store(next, Ordering::Relaxed);
                }
                if self.tail == id {
                    self.tail = before;
                }
                return Some(id);
            }
            before = id;
            id = next;
        }
        None
    }
}

impl Default for Queue {
    fn default() -> Self {
        Queue::new()
    }
}

struct RunQueue {
    queue: Lock<Queue>,
    /// How many are queued, to look at without the lock.
    length: AtomicUsize,
}

/// A run queue for each CPU, and which CPUs are idle.
///
/// A CPU that goes idle sets its bit, then looks for work once more; who queues work does so first and then
/// looks at the bits. Both are sequentially consistent, so one of the two sees the other.
pub struct RunQueues {
    queues: [RunQueue; MAX_CPUS],
    idle: AtomicU32,
    cpus: usize,
}

impl RunQueues {
    /// Empty queues for `cpus` CPUs, all of them taken as busy.
    pub const fn new(cpus: usize) -> RunQueues {
        RunQueues {
            queues: [const { RunQueue { queue: Lock::new(Queue::new()), length: AtomicUsize::new(0) } };
                MAX_CPUS],
            idle: AtomicU32::new(0),
            cpus: if cpus < MAX_CPUS { cpus } else { MAX_CPUS },
        }
    }

    /// How many CPUs there are.
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// Queues a task on a CPU. Returns the CPU that has to be kicked: this one if it is idle, else another
    /// idle one, which will take work from it. Its idle bit is cleared, so that it is kicked once.
    pub fn push(&self, links: &(impl Links + ?Sized), cpu: usize, id: TaskId) -> Option<usize> {
        let run = &self.queues[cpu];
        {
            let mut queue = run.queue.lock();
            queue.push(links, id);
            run.length.fetch_add(1, Ordering::SeqCst);
        }
        let idle = self.idle.load(Ordering::SeqCst);
        if idle == 0 {
            return None;
        }
        let target = if idle & (1 << cpu) != 0 { cpu } else { idle.trailing_zeros() as usize };
        let before = self.idle.fetch_and(!(1 << target), Ordering::SeqCst);
        (before & (1 << target) != 0).then_some(target)
    }

    /// Takes the first task from a CPU's own queue.
    pub fn pop(&self, links: &(impl Links + ?Sized), cpu: usize) -> Option<TaskId> {
        let run = &self.queues[cpu];
        if run.length.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut queue = run.queue.lock();
        let id = queue.pop(links)?;
        run.length.fetch_sub(1, Ordering::SeqCst);
        Some(id)
    }

    /// Takes a task that `movable` allows from another CPU's queue, the neighbours first.
    pub fn steal(
        &self,
        links: &(impl Links + ?Sized),
        cpu: usize,
        mut movable: impl FnMut(TaskId) -> bool,
    ) -> Option<TaskId> {
        for step in 1..self.cpus {
            let run = &self.queues[(cpu + step) % self.cpus];
            if run.length.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut queue = run.queue.lock();
            if let Some(id) = queue.take(links, &mut movable) {
                run.length.fetch_sub(1, Ordering::SeqCst);
                return Some(id);
            }
        }
        None
    }

    /// Whether the CPU's own queue holds something.
    pub fn waiting(&self, cpu: usize) -> bool {
        self.queues[cpu].length.load(Ordering::SeqCst) != 0
    }

    /// Says that a CPU is idle. True when work turned up meanwhile: the bit is cleared again, and the caller
    /// must look instead of sleeping.
    pub fn enter_idle(&self, cpu: usize) -> bool {
        self.idle.fetch_or(1 << cpu, Ordering::SeqCst);
        let work = (0..self.cpus).any(|other| self.waiting(other));
        if work {
            self.leave_idle(cpu);
        }
        work
    }

    /// Says that a CPU is busy again.
    pub fn leave_idle(&self, cpu: usize) {
        self.idle.fetch_and(!(1 << cpu), Ordering::SeqCst);
    }

    /// The CPU for a task that wakes: where it ran last if that CPU is idle, or any idle one, or where it
    /// ran last all the same.
    pub fn choose(&self, last: usize) -> usize {
        let idle = self.idle.load(Ordering::SeqCst);
        if idle == 0 || idle & (1 << last) != 0 { last } else { idle.trailing_zeros() as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(n: usize) -> Vec<AtomicU16> {
        (0..n).map(|_| AtomicU16::new(NONE)).collect()
    }

    #[test]
    fn a_queue_is_first_in_first_out() {
        let links = links(4);
        let mut queue = Queue::new();
        for id in [2, 0, 3] {
            queue.push(links.as_slice(), id);
        }
        assert_eq!(queue.pop(links.as_slice()), Some(2));
        queue.push(links.as_slice(), 1);
        assert_eq!(queue.pop(links.as_slice()), Some(0));
        assert_eq!(queue.pop(links.as_slice()), Some(3));
        assert_eq!(queue.pop(links.as_slice()), Some(1));
        assert_eq!(queue.pop(links.as_slice()), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn taking_from_the_middle_or_the_end_keeps_the_list_whole() {
        let links = links(4);
        let links = links.as_slice();
        let mut queue = Queue::new();
        for id in 0..4 {
            queue.push(links, id);
        }
        assert_eq!(queue.take(links, |id| id == 1), Some(1));
        assert_eq!(queue.take(links, |id| id == 3), Some(3));
        queue.push(links, 1);
        assert_eq!(queue.take(links, |id| id == 3), None);
        assert_eq!(queue.pop(links), Some(0));
        assert_eq!(queue.pop(links), Some(2));
        assert_eq!(queue.pop(links), Some(1));
        assert!(queue.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn a_queue_behaves_like_a_deque(steps in proptest::collection::vec((0u8..3, 0u16..16), 0..200)) {
            let links = links(16);
            let links = links.as_slice();
            let mut queue = Queue::new();
            let mut model = std::collections::VecDeque::new();
            for (action, id) in steps {
                match action {
                    0 if !model.contains(&id) => {
                        queue.push(links, id);
                        model.push_back(id);
                    }
                    1 => assert_eq!(queue.pop(links), model.pop_front()),
                    2 => {
                        let expected = model.iter().position(|&x| x == id).and_then(|at| model.remove(at));
                        assert_eq!(queue.take(links, |x| x == id), expected);
                    }
                    _ => {}
                }
                assert_eq!(queue.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn work_for_an_idle_cpu_kicks_it_once() {
        let links = links(4);
        let links = links.as_slice();
        let run = RunQueues::new(2);
        assert!(!run.enter_idle(1));
        assert_eq!(run.choose(0), 1);
        assert_eq!(run.push(links, 1, 0), Some(1));
        assert_eq!(run.push(links, 1, 1), None);
        assert_eq!(run.pop(links, 1), Some(0));
        assert_eq!(run.pop(links, 1), Some(1));
        assert_eq!(run.pop(links, 1), None);
    }

    #[test]
    fn work_on_a_busy_cpu_kicks_an_idle_one_to_steal_it() {
        let links = links(4);
        let links = links.as_slice();
        let run = RunQueues::new(3);
        assert!(!run.enter_idle(2));
        assert_eq!(run.push(links, 0, 3), Some(2));
        assert_eq!(run.steal(links, 2, |_| false), None);
        assert_eq!(run.steal(links, 2, |_| true), Some(3));
        assert!(!run.waiting(0));
    }

    #[test]
    fn a_cpu_that_goes_idle_sees_work_that_came_just_before() {
        let links = links(1);
        let links = links.as_slice();
        let run = RunQueues::new(2);
        assert_eq!(run.push(links, 0, 0), None);
        assert!(run.enter_idle(1), "work is queued: no sleep");
        assert_eq!(run.choose(0), 0, "the bit was cleared again");
    }

    #[test]
    fn no_task_is_lost_or_doubled_between_threads() {
        use std::sync::atomic::AtomicUsize;
        const TASKS: usize = 64;
        const ROUNDS: usize = 20_000;
        let links = links(TASKS);
        let run = RunQueues::new(4);
        for id in 0..TASKS {
            run.push(links.as_slice(), id % 4, id as TaskId);
        }
        let running: Vec<AtomicUsize> = (0..TASKS).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for cpu in 0..4 {
                let (links, run, running) = (links.as_slice(), &run, &running);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let Some(id) = run.pop(links, cpu).or_else(|| run.steal(links, cpu, |_| true)) else {
                            continue;
                        };
                        assert_eq!(running[id as usize].fetch_add(1, Ordering::SeqCst), 0, "runs twice");
                        running[id as usize].fetch_sub(1, Ordering::SeqCst);
                        run.push(links, (cpu + round) % 4, id);
                    }
                });
            }
        });
        let left =
            (0..4).map(|cpu| std::iter::from_fn(|| run.pop(links.as_slice(), cpu)).count()).sum::<usize>();
        assert_eq!(left, TASKS);
    }
}
