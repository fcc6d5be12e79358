//! What carries messages between tasks: bounded buffers with the capacity of Linux' pipes and stream sockets.
//!
//! A *pipe* is a ring of bytes, 64 KiB by default; a write of at most [`PIPE_ATOMIC`] bytes goes in whole or
//! waits (POSIX), a longer one may be split. A *socket* is a queue of messages with a limit in bytes, 212,992 by
//! default as `net.core.wmem_default`, against which each message is charged with what Linux charges for its
//! buffer ([`charge`]), so that as many messages fit as there: 277 of 100 bytes. It reads as a stream: a read takes
//! from as many messages as fill it.
//!
//! Writers wake as in Linux: a pipe's one at a time once [`PIPE_ATOMIC`] bytes are free, a socket's all together once
//! three quarters are free.

/// A write to a pipe of up to this many bytes is atomic (PIPE_BUF).
pub const PIPE_ATOMIC: usize = 4096;
/// A pipe's default capacity in bytes.
pub const PIPE_CAPACITY: usize = 65_536;
/// A socket's default limit in charged bytes.
pub const SOCKET_LIMIT: usize = 212_992;
/// The longest message that a socket takes in one piece.
pub const SOCKET_MESSAGE: usize = 32_768;
/// The least limit or capacity that may be asked for.
pub const LEAST_CAPACITY: usize = 4096;

/// Bytes before each message in a socket's ring: its length.
const HEADER: usize = 4;

/// Pipe or socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A ring of bytes.
    Pipe,
    /// A queue of messages.
    Socket,
}

impl Kind {
    /// The word in bootargs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Pipe => "pipe",
            Kind::Socket => "socket",
        }
    }

    /// The default capacity in bytes (sockets: charged bytes).
    pub const fn capacity(self) -> usize {
        match self {
            Kind::Pipe => PIPE_CAPACITY,
            Kind::Socket => SOCKET_LIMIT,
        }
    }

    /// How many bytes of storage a carrier of this capacity needs for messages of `size` bytes.
    pub fn storage(self, capacity: usize, size: usize) -> usize {
        match self {
            Kind::Pipe => capacity,
            Kind::Socket => {
                let piece = size.clamp(1, longest(capacity));
                (capacity / charge(piece)).max(1) * (piece + HEADER)
            }
        }
    }
}

/// The longest piece that a socket with this limit takes: at least two fit.
const fn longest(limit: usize) -> usize {
    let half = limit / 4;
    if half < SOCKET_MESSAGE { half } else { SOCKET_MESSAGE }
}

/// What a message of `length` bytes is charged against a socket's limit: the payload and Linux' shared info (320
/// bytes) rounded up to a slab, and the buffer's head (256 bytes).
pub const fn charge(length: usize) -> usize {
    256 + (length + 320).next_power_of_two()
}

/// Who should be woken after a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Nobody.
    Nobody,
    /// The writer that has waited longest.
    One,
    /// All writers.
    All,
}

/// A ring of bytes over storage that somebody else provides.
struct Ring<'a> {
    bytes: &'a mut [u8],
    /// Where the oldest byte is.
    start: usize,
    /// How many bytes are in it.
    length: usize,
}

impl Ring<'_> {
    fn free(&self) -> usize {
        self.bytes.len() - self.length
    }

    /// Adds data; the caller has checked that it fits.
    fn push(&mut self, data: &[u8]) {
        let mut at = self.start + self.length;
        if at >= self.bytes.len() {
            at -= self.bytes.len();
        }
        let first = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&data[..first]);
        self.bytes[..data.len() - first].copy_from_slice(&data[first..]);
        self.length += data.len();
    }

    /// Takes the oldest bytes, at most as many as there are; returns how many.
    fn pop(&mut self, out: &mut [u8]) -> usize {
        let n = out.len().min(self.length);
        let first = n.min(self.bytes.len() - self.start);
        out[..first].copy_from_slice(&self.bytes[self.start..self.start + first]);
        out[first..n].copy_from_slice(&self.bytes[..n - first]);
        self.start += n;
        if self.start >= self.bytes.len() {
            self.start -= self.bytes.len();
        }
        self.length -= n;
        n
    }
}

/// One carrier's contents.
pub struct Carrier<'a> {
    kind: Kind,
    ring: Ring<'a>,
    /// Socket: what the queued messages are charged, and the limit.
    charged: usize,
    limit: usize,
    /// Socket: bytes left of the first message, whose header is gone from the ring; and its charge.
    rest: usize,
    rest_charge: usize,
}

impl<'a> Carrier<'a> {
    /// An empty carrier of this capacity over `storage` (see [`Kind::storage`]).
    pub fn new(kind: Kind, capacity: usize, storage: &'a mut [u8]) -> Carrier<'a> {
        let ring = Ring { bytes: storage, start: 0, length: 0 };
        Carrier { kind, ring, charged: 0, limit: capacity, rest: 0, rest_charge: 0 }
    }

    /// Whether a read would find something.
    pub fn is_readable(&self) -> bool {
        self.rest > 0 || self.ring.length > 0
    }

    /// Writes what the carrier takes at once. 0: nothing, the caller has to wait (or gave nothing).
    pub fn write(&mut self, data: &[u8]) -> usize {
        match self.kind {
            Kind::Pipe => {
                let free = self.ring.free();
                let n = if data.len() <= PIPE_ATOMIC && free < data.len() { 0 } else { data.len().min(free) };
                self.ring.push(&data[..n]);
                n
            }
            Kind::Socket => {
                let n = data.len().min(longest(self.limit));
                if n == 0 || self.charged + charge(n) > self.limit || self.ring.free() < n + HEADER {
                    return 0;
                }
                self.ring.push(&(n as u32).to_le_bytes());
                self.ring.push(&data[..n]);
                self.charged += charge(n);
                n
            }
        }
    }

    /// Reads what is there, at most as much as `out` holds. 0: nothing, the caller has to wait.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        if self.kind == Kind::Pipe {
            return self.ring.pop(out);
        }
        let mut done = 0;
        while done < out.len() {
            if self.rest == 0 {
                let mut header = [0; HEADER];
                if self.ring.pop(&mut header) == 0 {
                    break;
                }
                self.rest = u32::from_le_bytes(header) as usize;
                self.rest_charge = charge(self.rest);
            }
            let want = (out.len() - done).min(self.rest);
            let n = self.ring.pop(&mut out[done..done + want]);
            done += n;
            self.rest -= n;
            if self.rest == 0 {
                self.charged -= self.rest_charge;
            }
        }
        done
    }

    /// Who may go on writing now, after a read.
    pub fn wake(&self) -> Wake {
        match self.kind {
            Kind::Pipe if self.ring.free() >= PIPE_ATOMIC.min(self.ring.bytes.len()) => Wake::One,
            Kind::Socket if self.charged * 4 <= self.limit => Wake::All,
            _ => Wake::Nobody,
        }
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.ring.start = 0;
        self.ring.length = 0;
        self.charged = 0;
        self.rest = 0;
        self.rest_charge = 0;
    }
}

#[cfg(test)]
mod tests;
