//! A run whose trace is read out of the machine's memory: when the machine has switched itself off, or when it is told to stop.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use odometer::trace::{Decoded, decode};
use serde_json::json;

use super::qmp::Monitor;
use crate::interrupt::Interrupted;
use crate::qemu::Launch;
use crate::qemu::capture::{Captured, Limits, capture};
use crate::qemu::console::Line;

/// When the trace is taken, if not at the end.
#[derive(Debug, Clone, Default)]
pub struct Until {
    /// After so long.
    pub elapsed: Option<Duration>,
    /// When this text has come on the console.
    pub text: Option<String>,
}

/// What the console's reader tells the monitor's.
enum Note {
    /// Where the trace is: physical address and bytes.
    Place(u64, u64),
    /// The text has come.
    Now,
    /// Another line.
    Line,
}

/// A run, and the trace of it.
#[derive(Debug)]
pub struct Run {
    /// What it printed.
    pub captured: Captured,
    /// The trace.
    pub trace: Decoded,
    /// The machine was stopped before it had come to its end.
    pub is_cut: bool,
    /// A VM was stopped by the hypervisor, or it faulted itself, as far as the run went.
    pub faulted: bool,
    /// The text that was waited for has come.
    pub came: bool,
    /// What went wrong with the run; its trace is there all the same.
    pub error: Option<anyhow::Error>,
}

/// Runs QEMU as [`capture`] does, and takes the trace.
///
/// # Errors
/// As of a run; there is no trace, or it can't be read.
pub fn run(
    launch: &Launch,
    limits: &Limits,
    log: Option<&Path>,
    until: &Until,
    watch: &mut dyn FnMut(&str),
) -> Result<Run> {
    // A socket's name has room for a hundred characters.
    let directory =
        tempfile::Builder::new().prefix("odometer-").tempdir().context("making a directory for a socket")?;
    let (socket, dump) = (directory.path().join("qmp"), directory.path().join("trace.bin"));
    let mut launch = launch.clone();
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    launch.machine.qemu.extend(["-qmp".into(), monitor, "-action".into(), "shutdown=pause".into()]);
    let (sender, notes) = channel();
    let taker = {
        let (dump, elapsed) = (dump.clone(), until.elapsed);
        // Before the run is given up, its trace is taken.
        let patience = Limits { silence: limits.silence * 9 / 10, total: limits.total * 9 / 10 };
        thread::spawn(move || take(&socket, &dump, elapsed, &patience, &notes))
    };
    let (mut faulted, mut came) = (false, false);
    let mut see = |line: &str| {
        let record = Line::parse(line);
        // Nobody listens any more once the trace is taken.
        if let Some((base, bytes)) = place(&record) {
            let _ = sender.send(Note::Place(base, bytes));
        }
        faulted |= matches!(&record, Line::Report(record) if record["kind"] == "fault");
        // Guests' text is waited for, not the hypervisor's records.
        let said =
            !matches!(record, Line::Report(_)) && until.text.as_ref().is_some_and(|text| line.contains(text));
        came |= said;
        let _ = sender.send(if said { Note::Now } else { Note::Line });
        watch(line);
    };
    let captured = capture(&launch, limits, log, &mut see);
    drop(sender);
    let taken = taker.join().map_err(|_| anyhow::anyhow!("reading the trace failed"))?;
    let (captured, end, error) = match (captured, taken) {
        (Ok(captured), taken) => (captured, taken?, None),
        (Err(error), _) if error.is::<Interrupted>() => return Err(error),
        // Cut in the middle of a record.
        (Err(_), Ok(End::Wanted)) => (Captured::default(), End::Wanted, None),
        (Err(error), Ok(end)) => (Captured::default(), end, Some(error)),
        (Err(error), Err(_)) => return Err(error),
    };
    let is_cut = end != End::Off;
    let error = match end {
        End::Late => Some(anyhow::anyhow!(
            "the machine was stopped after {} s without a line on the console, or {} s in all; --for says when to stop it",
            limits.silence.as_secs() * 9 / 10,
            limits.total.as_secs() * 9 / 10
        )),
        _ => error,
    };
    let bytes = fs::read(&dump).with_context(|| format!("reading {}", dump.display()))?;
    let trace =
        decode(&bytes).map_err(|error| anyhow::anyhow!("the trace in the machine's memory: {error}"))?;
    Ok(Run { captured, trace, is_cut, faulted, came, error })
}

/// Where the trace is, if this line says so.
fn place(line: &Line) -> Option<(u64, u64)> {
    let Line::Report(record) = line else { return None };
    let trace = record.get("trace")?;
    let base = trace["base"].as_str()?.strip_prefix("0x")?;
    Some((u64::from_str_radix(base, 16).ok()?, trace["bytes"].as_u64()?))
}

/// How a run came to the moment of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The machine has switched itself off.
    Off,
    /// It was stopped as was asked for.
    Wanted,
    /// It was stopped because it took too long.
    Late,
}

/// Waits for the moment, writes the machine's trace to `dump` and ends QEMU.
fn take(
    socket: &Path,
    dump: &Path,
    elapsed: Option<Duration>,
    patience: &Limits,
    notes: &Receiver<Note>,
) -> Result<End> {
    let mut monitor = Monitor::connect(socket)?;
    let started = Instant::now();
    let mut last = started;
    let mut place = None;
    let mut now = false;
    let end = loop {
        match notes.recv_timeout(Duration::ZERO) {
            Ok(Note::Place(base, bytes)) => place = Some((base, bytes)),
            Ok(Note::Now) => now = true,
            Ok(Note::Line) => last = Instant::now(),
            Err(RecvTimeoutError::Timeout) => {
                if monitor.is_off()? {
                    break End::Off;
                }
                if now || elapsed.is_some_and(|limit| started.elapsed() >= limit) {
                    break End::Wanted;
                }
                if last.elapsed() > patience.silence || started.elapsed() > patience.total {
                    break End::Late;
                }
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the run ended before its trace was taken"),
        }
    };
    if end != End::Off {
        monitor.command("stop", &json!({}))?;
    }
    // The line may be on its way still.
    while place.is_none()
        && let Ok(note) = notes.recv_timeout(Duration::from_secs(1))
    {
        if let Note::Place(base, bytes) = note {
            place = Some((base, bytes));
        }
    }
    let saved = match place {
        Some((base, bytes)) => {
            let arguments = json!({ "val": base, "size": bytes, "filename": dump });
            monitor.command("pmemsave", &arguments).map(|_| end)
        }
        None => Err(anyhow::anyhow!(
            "the hypervisor has not said where its trace is: it needs the option trace=on, and must boot"
        )),
    };
    // QEMU may be gone before it has answered.
    let _ = monitor.command("quit", &json!({}));
    saved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_in_the_first_record_if_there_is_a_trace() {
        let line = r#"@odometer {"schema":1,"kind":"boot","trace":{"base":"0x80000000","bytes":64}}"#;
        assert_eq!(place(&Line::parse(line)), Some((1 << 31, 64)));
        assert_eq!(place(&Line::parse(r#"@odometer {"schema":1,"kind":"boot"}"#)), None);
        let guests = r#"a| @odometer {"trace":{"base":"0x1","bytes":64}}"#;
        assert_eq!(place(&Line::parse(guests)), None, "a guest says so");
    }
}
