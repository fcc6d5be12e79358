//! The loads.

mod messaging;
mod micro;
mod odometer;
mod pipes;
mod readv;
mod reset;
mod selftest;
mod simple;
mod stacktrace;
mod syscall;
mod threads;
mod tick;

use crate::arguments::Load;
use crate::kernel::memory::Arena;

/// Runs a load; whether everything was as it should be.
pub fn run(load: Load, mut arena: Arena) -> bool {
    match load {
        Load::Messaging(parameters) => messaging::run(parameters, &mut arena),
        Load::Micro { ops, n } => micro::run(ops, n),
        Load::Idle { milliseconds } => simple::idle(milliseconds),
        Load::Spin { milliseconds, masked } => simple::spin(milliseconds, masked),
        Load::Yield { n } => simple::give_away(n),
        Load::Tick { rounds } => tick::run(rounds),
        Load::Reset { n } => reset::run(n),
        Load::Syscall(parameters) => syscall::run(&parameters, &mut arena),
        Load::StackTrace(parameters) => stacktrace::run(&parameters),
        Load::Readv(parameters) => readv::run(&parameters, &mut arena),
        Load::Pipes(parameters) => pipes::run(&parameters, &mut arena),
        Load::SelfTest { end } => selftest::run(end),
    }
}
