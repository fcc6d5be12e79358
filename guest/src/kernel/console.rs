//! Lines on the console: built whole, sent whole.

use arrayvec::ArrayString;
use spin::Once;

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::mmio::Registers;
use crate::arch::uart::Uart;
use crate::machine::Region;
use crate::output::Output;
use crate::sync::Lock;

/// Longest line in bytes; what is longer is cut.
const LONGEST: usize = 512;

static LINE: Lock<ArrayString<LONGEST>> = Lock::new(ArrayString::new_const());
static BASE: AtomicUsize = AtomicUsize::new(0);
static OUTPUT: Once<Output> = Once::new();

fn uart() -> Option<Uart> {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: `init` stored the base of a PL011 that is mapped.
    (base != 0).then(|| Uart(unsafe { Registers::new(base) }))
}

/// Uses the PL011 at a region that is mapped.
pub fn init(region: Region) {
    BASE.store(region.base as usize, Ordering::Relaxed);
    if let Some(uart) = uart() {
        uart.start();
    }
}

fn send(line: &mut ArrayString<LONGEST>, arguments: fmt::Arguments<'_>) {
    line.clear();
    // A line that is too long is cut where it no longer fits; its end is still a line's end.
    let _ = line.write_fmt(arguments);
    while line.len() > LONGEST - 2 {
        line.pop();
    }
    let _ = line.try_push_str("\r\n");
    if let Some(uart) = uart() {
        uart.send(line.as_bytes());
    }
}

/// Says once how much is written; until then it is all.
pub fn limit(output: Output) {
    OUTPUT.call_once(|| output);
}

fn shows(kind: &str) -> bool {
    OUTPUT.get().is_none_or(|output| output.shows(kind))
}

/// Prints a line, if all is to be written.
pub fn line(arguments: fmt::Arguments<'_>) {
    record("", arguments);
}

/// Prints a record's line, if records of its kind are to be written.
pub fn record(kind: &str, arguments: fmt::Arguments<'_>) {
    if shows(kind) {
        send(&mut LINE.lock(), arguments);
    }
}

/// Prints a line without the lock, which a CPU that fails may hold.
pub fn emergency(arguments: fmt::Arguments<'_>) {
    send(&mut ArrayString::new(), arguments);
}

/// Waits until all is sent.
pub fn drain() {
    let _line = LINE.lock();
    if let Some(uart) = uart() {
        uart.drain();
    }
}

/// Prints a JSON line behind the guest's marker, with schema version: `report!("kind", "\"key\":{}", value)`.
macro_rules! report {
    ($kind:literal) => {
        $crate::kernel::console::record($kind, format_args!(concat!(
            "@guest {{\"schema\":1,\"kind\":\"", $kind, "\"}}"
        )))
    };
    ($kind:literal, $format:literal $(, $value:expr)* $(,)?) => {
        $crate::kernel::console::record($kind, format_args!(
            concat!("@guest {{\"schema\":1,\"kind\":\"", $kind, "\",", $format, "}}") $(, $value)*
        ))
    };
}
pub(crate) use report;
