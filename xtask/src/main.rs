//! Odometer's host tool: everything that is done on the host, from finding QEMU to the
//! table of a benchmark. `cargo xtask --help` lists what it can do.

#[cfg(test)]
mod agreement;
mod audit;
mod bench;
mod cli;
mod elf_check;
mod fit;
mod image;
mod interrupt;
mod linux;
mod matrix;
mod model;
mod mutate;
mod page;
mod paths;
mod plot;
mod progress;
mod qemu;
mod report;
mod results;
mod run;
mod scenario;
mod setup;
mod test;
mod trace;

use std::process::ExitCode;

/// The shells' exit code for a program that SIGPIPE has ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// A reader that has seen enough (`| head`) ends a program in silence. Rust ignores SIGPIPE, and `println!` panics.
fn end_quietly_on_a_closed_pipe() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str().is_some_and(|text| text.starts_with("failed printing to std")) {
            std::process::exit(BROKEN_PIPE);
        }
        usual(info);
    }));
}

fn main() -> ExitCode {
    end_quietly_on_a_closed_pipe();
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
