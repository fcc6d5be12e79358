//! Reading and writing carriers, with waiting: what a task calls for `read`, `write` and `poll`.

use crate::carrier::{Carrier, Wake};
use crate::queue::{Queue, TaskId};
use crate::sync::{Lock, Masked, relax};

use super::tasks;

/// A carrier that tasks share.
pub struct Pipe {
    state: Lock<State>,
}

struct State {
    carrier: Carrier<'static>,
    /// Tasks that wait for something to read; those that poll wait here too.
    readers: Queue,
    writers: Queue,
}

impl Pipe {
    /// A pipe around a carrier.
    pub const fn new(carrier: Carrier<'static>) -> Pipe {
        Pipe { state: Lock::new(State { carrier, readers: Queue::new(), writers: Queue::new() }) }
    }

    /// Writes at least one byte of `data`, waiting for room; returns how many.
    pub fn write(&self, data: &[u8]) -> usize {
        enter();
        let _masked = Masked::new();
        loop {
            let mut state = self.state.lock();
            let n = state.carrier.write(data);
            if n > 0 || data.is_empty() {
                let reader = state.readers.pop(tasks::links());
                drop(state);
                if let Some(reader) = reader {
                    tasks::wake(reader);
                    tasks::give_way();
                }
                return n;
            }
            state.writers.push(tasks::links(), tasks::current());
            drop(state);
            tasks::sleep();
        }
    }

    /// Reads at least one byte into `out`, waiting for it; returns how many.
    pub fn read(&self, out: &mut [u8]) -> usize {
        enter();
        let _masked = Masked::new();
        loop {
            let mut state = self.state.lock();
            let n = state.carrier.read(out);
            if n > 0 || out.is_empty() {
                let mut woken = match state.carrier.wake() {
                    Wake::Nobody => Queue::new(),
                    Wake::One => {
                        let mut one = Queue::new();
                        if let Some(writer) = state.writers.pop(tasks::links()) {
                            one.push(tasks::links(), writer);
                        }
                        one
                    }
                    Wake::All => core::mem::take(&mut state.writers),
                };
                drop(state);
                wake_all(&mut woken);
                tasks::give_way();
                return n;
            }
            state.readers.push(tasks::links(), tasks::current());
            drop(state);
            tasks::sleep();
        }
    }

    /// Waits until there is something to read, and leaves it there.
    pub fn poll(&self) {
        let _masked = Masked::new();
        loop {
            let mut state = self.state.lock();
            if state.carrier.is_readable() {
                return;
            }
            state.readers.push(tasks::links(), tasks::current());
            drop(state);
            tasks::sleep();
        }
    }

    /// Writes, and wakes everybody who polls.
    pub fn broadcast(&self, data: &[u8]) {
        let _masked = Masked::new();
        let mut state = self.state.lock();
        state.carrier.write(data);
        let mut readers = core::mem::take(&mut state.readers);
        drop(state);
        wake_all(&mut readers);
    }

    /// Takes out what is left; whether there was something.
    pub fn clear(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.carrier.is_readable();
        state.carrier.clear();
        left
    }
}

/// What a system call begins with: a hint. An emulator that runs one CPU at a time (QEMU with `thread=single` or
/// `-icount`) goes on with another one here, so that tasks on several CPUs meet as they do where CPUs run at once,
/// instead of each CPU doing all of its work in one turn.
#[inline(always)]
fn enter() {
    relax();
}

fn wake_all(queue: &mut Queue) {
    loop {
        let next: Option<TaskId> = queue.pop(tasks::links());
        match next {
            Some(id) => tasks::wake(id),
            None => return,
        }
    }
}
