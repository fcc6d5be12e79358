//! A run without a person at the console: what it printed, with time-outs.

use std::fs::File;
use std::io::{LineWriter, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Launch;
pub use super::captured::Captured;
use super::console::Splitter;
use super::doing;
use super::process::Process;
use crate::interrupt;
use crate::report::symbols;

/// How long a run may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Without a line on the console.
    pub silence: Duration,
    /// In all.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { silence: Duration::from_secs(120), total: Duration::from_secs(900) }
    }
}

/// Runs QEMU until it ends by itself. `watch` sees each line as it comes, and `log` gets it, so that the console of a
/// run that fails is kept, too.
///
/// # Errors
/// QEMU that can't be started or ends with an error, a fault of the hypervisor, a time-out, Ctrl-C; QEMU has
/// ended then, and what it printed last is in the message.
pub fn capture(
    launch: &Launch,
    limits: &Limits,
    log: Option<&Path>,
    watch: &mut dyn FnMut(&str),
) -> Result<Captured> {
    let mut log = match log {
        Some(path) => {
            let file = File::create(path).with_context(|| format!("making the log {}", path.display()))?;
            Some(LineWriter::new(file))
        }
        None => None,
    };
    let mut process = Process::start(launch, false)?;
    // Open as long as QEMU runs: a closed standard input would be an end of file on the console.
    let mut keyboard = process.child.stdin.take().context("QEMU has no standard input")?;
    let mut typed = launch.typed.iter().peekable();
    let lines = lines_of(process.child.stdout.take().context("QEMU has no standard output")?);
    let errors = lines_of(process.child.stderr.take().context("QEMU has no standard error")?);

    let started = Instant::now();
    let mut last = started;
    let mut captured = Captured::default();
    let mut late = false;
    let outcome = loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                last = Instant::now();
                watch(&line);
                if let Some(log) = &mut log {
                    writeln!(log, "{line}").context("writing the log of the console")?;
                }
                if let Some(typed) = typed.next_if(|typed| line.trim_end().ends_with(typed.after)) {
                    // Some KiB at the most: less than a pipe takes.
                    keyboard.write_all(typed.keys.as_bytes()).context("typing at QEMU's console")?;
                }
                if let Err(error) = captured.add(&line) {
                    break Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break captured.finish(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(error) = interrupt::check() {
            process.kill();
            return Err(error);
        }
        late = last.elapsed() > limits.silence || started.elapsed() > limits.total;
        if last.elapsed() > limits.silence {
            break Err(anyhow::anyhow!("nothing came on the console for {} s", limits.silence.as_secs()));
        }
        if started.elapsed() > limits.total {
            break Err(anyhow::anyhow!("the run took more than {} s", limits.total.as_secs()));
        }
    };
    captured.elapsed = started.elapsed();
    let doing = match (late, launch.boot.virtualization) {
        (true, true) => format!("\n{}", doing::ask(&mut keyboard, &lines, limits.silence)),
        _ => String::new(),
    };
    let outcome = outcome.and_then(|()| end(&mut process, &errors, &captured, launch));
    process.kill();
    captured.cpu_time = process.cpu_time().unwrap_or_default();
    match outcome {
        Ok(()) => Ok(captured),
        Err(error) => bail!("{error:#}\n{}{doing}", captured.last_lines()),
    }
}

/// Judges how QEMU ended after its console closed.
fn end(process: &mut Process, errors: &Receiver<String>, captured: &Captured, launch: &Launch) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let status = loop {
        if let Some(status) = process.ended()? {
            break status;
        }
        ensure!(Instant::now() < deadline, "QEMU closed its console and did not end");
        thread::sleep(Duration::from_millis(10));
    };
    if let Some(fault) = captured.reports.iter().find(|record| symbols::is_own_fault(record)) {
        let trace = symbols::describe_fault(fault, &launch.boot.kernel.with_extension(""));
        bail!("the hypervisor faulted:\n{trace}");
    }
    if !status.success() {
        let errors: Vec<String> = errors.iter().collect();
        bail!("QEMU ended with {status}:\n{}", errors.join("\n"));
    }
    Ok(())
}

/// Reads a pipe to its end on a thread of its own.
fn lines_of(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut splitter = Splitter::default();
        loop {
            match pipe.read(&mut buffer) {
                // A send fails when nobody listens any more, and then the pipe is to be emptied all the same.
                Ok(length @ 1..) => splitter.push(&buffer[..length], |line| drop(sender.send(line))),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        if let Some(rest) = splitter.finish() {
            drop(sender.send(rest));
        }
    });
    receiver
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
