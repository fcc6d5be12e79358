//! Shadow bytes, and the `readv` load's logic: where its buffers lie (E3).

use crate::arguments::number;
use crate::queue::MAX_CPUS;

/// What a load's threads may be: one on each vCPU.
const THREADS: &str = "1 to 8, as many as the guest has vCPUs at most";

/// Takes a number of threads; the result is as that of `arguments::set`.
pub fn set_threads(value: &str, threads: &mut u32) -> Option<&'static str> {
    number(value, 1, MAX_CPUS as u32, THREADS, threads)
}

/// Buffers of a vectored read at most, of a byte each, and the bytes in which they lie.
pub const BUFFERS: usize = 1024;

/// Where buffer `i` lies within its page of buffers.
pub const fn buffer(i: usize) -> usize {
    (31 * i) % BUFFERS
}

/// What a shadow byte says of an access of `bytes` at `address`: 0, all eight bytes may be used; 1 to 7, the first so many; else none.
pub const fn allows(shadow: u8, address: usize, bytes: usize) -> bool {
    shadow == 0 || (shadow < 8 && address % 8 + bytes <= shadow as usize)
}

/// How accesses are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checking {
    /// Not at all.
    Off,
    /// By a shadow that exists in full.
    Full,
    /// By a shadow whose pages are mapped when they are first needed.
    Page,
}

impl Checking {
    /// All of them.
    pub const ALL: [Checking; 3] = [Checking::Off, Checking::Full, Checking::Page];

    /// The name in bootargs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Checking::Off => "off",
            Checking::Full => "full",
            Checking::Page => "page",
        }
    }

    /// Takes the value of that name; the result is as that of `arguments::set`.
    pub fn set(&mut self, name: &str) -> Option<&'static str> {
        let Some(checking) = Checking::ALL.into_iter().find(|checking| checking.name() == name) else {
            return Some("off, full or page");
        };
        *self = checking;
        None
    }
}

/// The load's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readv {
    /// How accesses are checked.
    pub checking: Checking,
    /// Bytes of the file.
    pub size: u32,
    /// Vectored reads of each thread.
    pub n: u32,
    /// Threads.
    pub threads: u32,
}

impl Default for Readv {
    fn default() -> Self {
        Readv { checking: Checking::Off, size: BUFFERS as u32, n: 300_000, threads: 1 }
    }
}

impl Readv {
    /// Buffers of a read: one for each of the file's first bytes.
    pub fn buffers(&self) -> usize {
        BUFFERS.min(self.size as usize)
    }

    /// How many of a read's buffers lie in the first eight bytes.
    pub fn buffers_in_front(&self) -> u64 {
        (0..self.buffers()).filter(|i| buffer(*i) < 8).count() as u64
    }

    /// Sets one parameter; the result is as that of `arguments::set`.
    pub fn set(&mut self, key: &str, value: &str) -> Option<&'static str> {
        match key {
            "n" => number(value, 1, 100_000_000, "1 to 100000000", &mut self.n),
            "size" => number(value, 1, 1 << 20, "1 to 1048576 bytes", &mut self.size),
            "threads" => set_threads(value, &mut self.threads),
            "checking" => self.checking.set(value),
            _ => Some(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::arguments::Load;

    use super::*;

    #[test]
    fn every_byte_of_the_page_is_one_buffer() {
        let mut seen = [false; BUFFERS];
        (0..BUFFERS).for_each(|i| assert!(!core::mem::replace(&mut seen[buffer(i)], true)));
        assert_eq!((buffer(0), buffer(1), buffer(34)), (0, 31, 30));
    }

    #[test]
    fn a_shadow_byte_covers_the_first_bytes_of_eight() {
        assert!(allows(0, 0x1007, 1) && allows(0, 0x1000, 8));
        assert!(allows(5, 0x1004, 1) && !allows(5, 0x1005, 1) && !allows(5, 0x1004, 2));
        assert!(!allows(0xff, 0x1000, 1) && !allows(8, 0x1000, 1));
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        assert_eq!(Load::parse("load=readv"), Ok(Load::Readv(Readv::default())));
        let expected = Readv { checking: Checking::Page, size: 300, n: 5, threads: 2 };
        assert_eq!(Load::parse("load=readv checking=page size=300 n=5 threads=2"), Ok(Load::Readv(expected)));
        for (word, right) in [
            ("checking=on", "off, full or page"),
            ("size=0", "1 to 1048576 bytes"),
            ("threads=9", "1 to 8, as many as the guest has vCPUs"),
        ] {
            let words = format!("load=readv {word}");
            let message = Load::parse(&words).unwrap_err().to_string();
            assert!(message.contains(right), "{message}");
        }
    }

    #[test]
    fn a_read_has_a_buffer_for_each_byte_of_a_short_file() {
        let of = |size| Readv { size, ..Readv::default() };
        assert_eq!([1, 300, 1024, 4096].map(|size| of(size).buffers()), [1, 300, 1024, 1024]);
        // The first buffer is the first byte; byte 1 belongs to buffer 991, as 31 * 991 = 30 * 1024 + 1.
        assert_eq!([1, 991, 992, 1024].map(|size| of(size).buffers_in_front()), [1, 7, 8, 8]);
    }
}
