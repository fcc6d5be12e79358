//! Odometer's host tool: everything that is done on the host, from finding QEMU to the
//! table of a benchmark. `cargo xtask --help` lists what it can do.

#[cfg(test)]
mod agreement;
mod bench;
mod cli;
mod elf_check;
mod fit;
mod image;
mod interrupt;
mod linux;
mod paths;
mod progress;
mod qemu;
mod report;
mod run;
mod scenario;
mod setup;
mod test;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            eprintln!("interrupted");
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
