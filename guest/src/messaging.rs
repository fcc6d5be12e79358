//! The `messaging` load's parameters and books: hackbench's meaning, see EXPERIMENTS.
//!
//! Each of `groups` groups has `fds` senders and `fds` receivers; each sender writes `loops` messages of `size`
//! bytes to each receiver of its group, in hackbench's order (for each loop, for each receiver). The receivers'
//! books say whether everything came: by bytes always, and by sender and number where a message is at least
//! [`LABEL`] bytes and arrives in one piece.

use crate::carrier::{Kind, PIPE_ATOMIC, SOCKET_MESSAGE};

/// Most senders and receivers together.
pub const MAX_WORKERS: u32 = 8192;
/// Bytes at a message's start that name its sender and its number.
pub const LABEL: usize = 8;

/// Whether each task has an address space of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Own ASID and translation table for each task.
    Process,
    /// One address space for all.
    Thread,
}

impl Mode {
    /// The word in bootargs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Process => "process",
            Mode::Thread => "thread",
        }
    }
}

/// The load's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Messaging {
    /// Groups.
    pub groups: u32,
    /// Senders, and receivers, in a group.
    pub fds: u32,
    /// Messages from each sender to each receiver of its group.
    pub loops: u32,
    /// Bytes in a message.
    pub size: u32,
    /// Address spaces.
    pub mode: Mode,
    /// What carries messages.
    pub carrier: Kind,
    /// How often the whole is repeated.
    pub runs: u32,
    /// Microseconds between two runs, in which all vCPUs wait.
    pub pause_us: u32,
    /// The carrier's capacity in bytes, when not the default.
    pub buffer: Option<u32>,
    /// The scheduler's tick in microseconds.
    pub tick_us: u32,
    /// How many microseconds less than the running task a woken one must have run to preempt it; none: only
    /// the tick preempts.
    pub preempt_us: Option<u32>,
    /// Whether the report has all parameters and the scheduler's counters.
    pub details: bool,
}

impl Default for Messaging {
    fn default() -> Self {
        Messaging {
            groups: 10,
            fds: 20,
            loops: 100,
            size: 100,
            mode: Mode::Process,
            carrier: Kind::Socket,
            runs: 1,
            pause_us: 0,
            buffer: None,
            tick_us: 4000,
            preempt_us: Some(0),
            details: false,
        }
    }
}

/// What a worker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Writes to the receivers whose carriers start at `first`.
    Sender {
        /// The group's first carrier.
        first: u32,
    },
    /// Reads from its own carrier.
    Receiver {
        /// The carrier.
        carrier: u32,
    },
}

impl Messaging {
    /// Senders and receivers together; `None` when over [`MAX_WORKERS`].
    pub fn workers(&self) -> Option<u32> {
        let workers = self.groups.checked_mul(self.fds)?.checked_mul(2)?;
        (workers <= MAX_WORKERS).then_some(workers)
    }

    /// How many carriers there are: one for each receiver.
    pub const fn carriers(&self) -> u32 {
        self.groups * self.fds
    }

    /// Messages in one run.
    pub const fn messages(&self) -> u64 {
        self.groups as u64 * self.fds as u64 * self.received()
    }

    /// Messages that each receiver gets.
    pub const fn received(&self) -> u64 {
        self.fds as u64 * self.loops as u64
    }

    /// A carrier's capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.map_or(self.carrier.capacity(), |bytes| bytes as usize)
    }

    /// Bytes of storage for a carrier.
    pub fn storage(&self) -> usize {
        self.carrier.storage(self.capacity(), self.size as usize)
    }

    /// What worker `index` does. As in hackbench a group's receivers are created before its senders.
    pub const fn role(&self, index: u32) -> Role {
        let group = index / (2 * self.fds);
        let place = index % (2 * self.fds);
        if place < self.fds {
            Role::Receiver { carrier: group * self.fds + place }
        } else {
            Role::Sender { first: group * self.fds }
        }
    }

    /// Whether messages carry a label: long enough, and short enough not to be split and mixed with others.
    pub fn labelled(&self) -> bool {
        let whole = match self.carrier {
            Kind::Pipe => PIPE_ATOMIC,
            Kind::Socket => SOCKET_MESSAGE.min(self.capacity() / 4),
        };
        (LABEL..=whole).contains(&(self.size as usize))
    }

    /// What the books of the receiver with this carrier must say in the end.
    pub fn expected(&self, carrier: u32) -> Books {
        let mut books =
            Books { messages: self.received(), bytes: self.received() * u64::from(self.size), labels: 0 };
        if self.labelled() {
            let group = carrier / self.fds;
            for sender in 0..self.fds {
                let worker = group * 2 * self.fds + self.fds + sender;
                let loops = u64::from(self.loops);
                let numbers = loops * (loops - 1) / 2;
                books.labels =
                    books.labels.wrapping_add(label(worker, 0).wrapping_mul(loops)).wrapping_add(numbers);
            }
        }
        books
    }
}

/// The label of message `number` from worker `sender`, as a number.
pub const fn label(sender: u32, number: u32) -> u64 {
    ((sender as u64) << 32) | number as u64
}

/// What a receiver has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Books {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// The sum of all labels.
    pub labels: u64,
}

impl Books {
    /// Enters one message.
    #[inline]
    pub fn enter(&mut self, message: &[u8], labelled: bool) {
        self.messages += 1;
        self.bytes += message.len() as u64;
        if let (true, Some(bytes)) = (labelled, message.first_chunk::<LABEL>()) {
            self.labels = self.labels.wrapping_add(u64::from_le_bytes(*bytes));
        }
    }
}

#[cfg(test)]
mod tests;
