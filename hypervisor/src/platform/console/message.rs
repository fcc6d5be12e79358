//! The hypervisor's log lines.

use super::{Console, UartLine};
use crate::platform::uart::SerialPort;
use core::fmt::{self, Write};

impl<P: SerialPort, L: UartLine> Console<P, L> {
    /// Writes a log line behind `odometer: `. As [`report`](Self::report).
    pub fn message(&self, text: fmt::Arguments<'_>) {
        self.report(|out| Prefixed { out, at_start: true }.write_fmt(text));
    }
}

/// Puts `odometer: ` before each line.
struct Prefixed<'a, W> {
    out: &'a mut W,
    at_start: bool,
}

impl<W: Write> Write for Prefixed<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive('\n') {
            if self.at_start {
                self.out.write_str("odometer: ")?;
            }
            self.out.write_str(part)?;
            self.at_start = part.ends_with('\n');
        }
        Ok(())
    }
}

impl<P: SerialPort + Send + Sync, L: UartLine + Send + Sync> log::Log for Console<P, L> {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        match record.level() {
            log::Level::Error => self.message(format_args!("error: {}", record.args())),
            log::Level::Warn => self.message(format_args!("warning: {}", record.args())),
            _ => self.message(*record.args()),
        }
    }

    fn flush(&self) {}
}
