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

    /// Puts a task that is on no queue at the front.
    pub fn push_front(&mut self, links: &(impl Links + ?Sized), id: TaskId) {
        links.next(id).store(self.head, Ordering::Relaxed);
        self.head = id;
        if self.tail == NONE {
            self.tail = id;
        }
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

/// Where in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Behind all others.
    Last,
    /// Before all others.
    Next,
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

    /// Queues a task on a CPU, at the end or as the next one. Returns the CPU that has to be kicked: this one if it is idle, else another
    /// idle one, which will take work from it. Its idle bit is cleared, so that it is kicked once.
    pub fn push(&self, links: &(impl Links + ?Sized), cpu: usize, id: TaskId, place: Place) -> Option<usize> {
        let run = &self.queues[cpu];
        {
            let mut queue = run.queue.lock();
            match place {
                Place::Last => queue.push(links, id),
                Place::Next => queue.push_front(links, id),
            }
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
mod tests;
