//! A run with a person at the console: keys go to the guest, Ctrl-C too, and the terminal is put back at the end.
//!
//! The bytes pass through us, not straight to the terminal, so that records are kept out of sight (a table
//! follows at the end) and a fault's addresses get their names.

use std::io::{IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::termios::{self, OptionalActions, OutputModes, Termios};
use serde_json::Value;

use super::Launch;
use super::console::{Line, Splitter};
use super::process::Process;
use crate::interrupt;
use crate::report::symbols;

/// The beginning of a line that is a record and not for eyes.
const HIDDEN: &[u8] = b"@odometer ";

/// What a run left.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The hypervisor's records.
    pub reports: Vec<Value>,
}

/// Runs QEMU with this program's standard streams as its console until it ends. `records`: whether the hypervisor's
/// records are shown, too.
///
/// # Errors
/// QEMU that can't be started or ends with an error, a fault of the hypervisor, a signal.
pub fn run(launch: &Launch, records: bool) -> Result<Outcome> {
    let terminal = std::io::stdin().is_terminal();
    if terminal {
        eprintln!(
            "Ctrl-A x ends QEMU, Ctrl-A c is its monitor, Ctrl-A h lists more; all else goes to the guest."
        );
    }
    let mut process = Process::start(launch, terminal)?;
    let mut keys = process.child.stdin.take().context("QEMU has no standard input")?;
    let output = chunks_of(process.child.stdout.take().context("QEMU has no standard output")?);
    let errors = chunks_of(process.child.stderr.take().context("QEMU has no standard error")?);
    // This thread ends with the program: a read of the terminal can't be called off.
    thread::spawn(move || {
        let copied = std::io::copy(&mut Unbuffered(std::io::stdin()), &mut keys);
        // At the end of a file (or of QEMU) the console's input stays open and silent.
        drop(copied);
        loop {
            thread::park();
        }
    });

    let raw = if terminal { Some(RawTerminal::enter()?) } else { None };
    let mut screen =
        Screen { out: std::io::stdout(), filter: Filter::new(records), splitter: Splitter::default() };
    let mut outcome = Outcome::default();
    let mut fault = None;
    loop {
        match output.recv_timeout(Duration::from_millis(100)) {
            Ok(bytes) => screen.show(&bytes, &mut outcome.reports, &mut fault)?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => screen.out.flush().context("writing to standard output")?,
        }
        if let Err(error) = interrupt::check() {
            process.kill();
            return Err(error);
        }
    }
    drop(raw);
    let status = wait(&mut process)?;
    let errors: Vec<u8> = errors.iter().flatten().collect();
    let errors = String::from_utf8_lossy(&errors);
    if let Some(fault) = fault {
        bail!(
            "the hypervisor faulted:\n{}",
            symbols::describe_fault(&fault, &launch.boot.kernel.with_extension(""))
        );
    }
    if !status.is_some_and(|status| status.success()) {
        let how = status.map_or("did not end".into(), |status| format!("ended with {status}"));
        bail!("QEMU {how}:\n{}", errors.trim_end());
    }
    if !errors.is_empty() {
        eprintln!("{}", errors.trim_end());
    }
    Ok(outcome)
}

/// Waits a little for QEMU to end after its console closed.
fn wait(process: &mut Process) -> Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(status) = process.ended()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(None)
}

/// Reads a pipe on a thread of its own, as it comes.
fn chunks_of(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Standard input without the standard library's buffer, so that each key goes on at once.
struct Unbuffered(std::io::Stdin);

impl Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

/// Where the console's bytes go.
struct Screen {
    out: std::io::Stdout,
    filter: Filter,
    splitter: Splitter,
}

impl Screen {
    fn show(&mut self, bytes: &[u8], reports: &mut Vec<Value>, fault: &mut Option<Value>) -> Result<()> {
        self.splitter.push(bytes, |line| {
            if let Line::Report(record) = Line::parse(&line) {
                if symbols::is_own_fault(&record) {
                    *fault = Some(record.clone());
                }
                reports.push(record);
            }
        });
        let shown = self.filter.pass(bytes);
        self.out.write_all(&shown).and_then(|()| self.out.flush()).context("writing to standard output")
    }
}

/// Takes the lines that begin with `HIDDEN` out of a stream of bytes, without holding back anything else.
struct Filter {
    everything: bool,
    state: State,
}

/// Where in a line the stream is.
enum State {
    /// So many bytes of the line are those of `HIDDEN`, and were held back.
    Beginning(usize),
    /// In a line that is shown.
    Shown,
    /// In a line that is not.
    Hidden,
}

impl Filter {
    fn new(everything: bool) -> Self {
        Self { everything, state: State::Beginning(0) }
    }

    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.everything {
            return bytes.to_vec();
        }
        let mut shown = Vec::with_capacity(bytes.len() + HIDDEN.len());
        for &byte in bytes {
            if let State::Beginning(matched) = self.state {
                if byte == HIDDEN[matched] {
                    self.state = if matched + 1 == HIDDEN.len() {
                        State::Hidden
                    } else {
                        State::Beginning(matched + 1)
                    };
                    continue;
                }
                shown.extend_from_slice(&HIDDEN[..matched]);
                // A lone carriage return doesn't move on to another line's text.
                self.state = if byte == b'\r' { State::Beginning(0) } else { State::Shown };
            }
            if matches!(self.state, State::Shown | State::Beginning(_)) {
                shown.push(byte);
            }
            if byte == b'\n' {
                self.state = State::Beginning(0);
            }
        }
        shown
    }
}

/// The terminal in raw mode; dropping it puts back what was.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> Result<Self> {
        let stdin = std::io::stdin();
        let before = termios::tcgetattr(&stdin).context("reading the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        // Lines that end in `\n` alone (the hypervisor's, and ours) shall begin at the left all the same.
        raw.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        termios::tcsetattr(&stdin, OptionalActions::Now, &raw).context("setting the terminal to raw mode")?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Nothing else can be done on the way out if the terminal is gone.
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_hidden_and_nothing_else_is_lost_or_delayed() {
        let stream = b"login: \n@odometer {\"kind\":\"vm\"}\r\n@odd\n@\nx @odometer y\n@odometer {}\nend";
        for size in 1..stream.len() {
            let mut filter = Filter::new(false);
            let shown: Vec<u8> = stream.chunks(size).flat_map(|chunk| filter.pass(chunk)).collect();
            assert_eq!(String::from_utf8(shown).unwrap(), "login: \n@odd\n@\nx @odometer y\nend");
        }
        assert_eq!(Filter::new(false).pass(b"login: "), b"login: ", "a prompt shows before its line ends");
        assert_eq!(Filter::new(true).pass(stream), stream);
    }
}
