//! QEMU's monitor for programs (QMP): one JSON object a line, over a socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long QEMU may take to make its socket: it does so before it loads anything.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a command may take: a trace of GiB is written to a file.
const ANSWER: Duration = Duration::from_secs(120);
/// How long a look for events takes.
const LOOK: Duration = Duration::from_millis(50);

/// A connection to a monitor.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<UnixStream>,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The machine has switched itself off, and waits.
    is_off: bool,
}

impl Monitor {
    /// Connects to the monitor that QEMU opens at `path`, as soon as it does.
    ///
    /// # Errors
    /// There is none, or it is none of QEMU's.
    pub fn connect(path: &Path) -> Result<Self> {
        let deadline = Instant::now() + CONNECT;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => thread::sleep(LOOK),
                Err(error) => {
                    return Err(error).with_context(|| format!("QEMU's monitor {}", path.display()));
                }
            }
        };
        stream.set_read_timeout(Some(LOOK)).context("setting a time limit for QEMU's monitor")?;
        let mut monitor = Self { stream: BufReader::new(stream), partial: Vec::new(), is_off: false };
        monitor.command("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Does a command and waits for its answer.
    ///
    /// # Errors
    /// QEMU refuses it, or doesn't answer.
    pub fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let mut line = json!({ "execute": name, "arguments": arguments }).to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).context("writing to QEMU's monitor")?;
        let deadline = Instant::now() + ANSWER;
        while Instant::now() < deadline {
            let Some(mut message) = self.next()? else { continue };
            if let Some(error) = message.get("error") {
                bail!(
                    "QEMU's monitor refuses {name}: {}",
                    error["desc"].as_str().unwrap_or("without a reason")
                );
            }
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
        bail!("QEMU's monitor has not answered {name} within {} s", ANSWER.as_secs())
    }

    /// Whether the machine has switched itself off; looks for a moment.
    ///
    /// # Errors
    /// QEMU has gone.
    pub fn is_off(&mut self) -> Result<bool> {
        if !self.is_off {
            self.next()?;
        }
        Ok(self.is_off)
    }

    /// The next message, if it comes within a moment.
    fn next(&mut self) -> Result<Option<Value>> {
        match self.stream.read_until(b'\n', &mut self.partial) {
            Ok(0) => bail!("QEMU has closed its monitor"),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) => return Err(error).context("reading from QEMU's monitor"),
        }
        let line = std::mem::take(&mut self.partial);
        let message: Value = serde_json::from_slice(&line).context("a line of QEMU's monitor")?;
        self.is_off |= message["event"] == "SHUTDOWN";
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// What a monitor says, line by line, each when a line has come.
    fn monitor(answers: &'static [&'static str]) -> (tempfile::TempDir, thread::JoinHandle<Vec<String>>) {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("qmp")).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            stream.write_all(b"{\"QMP\": {}}\r\n").unwrap();
            let mut heard = Vec::new();
            for answer in answers {
                heard.extend(lines.next().map(Result::unwrap));
                // In two pieces, with a pause that is longer than a look.
                let (first, second) = answer.split_at(answer.len() / 2);
                stream.write_all(first.as_bytes()).unwrap();
                thread::sleep(3 * LOOK);
                stream.write_all(second.as_bytes()).unwrap();
                stream.write_all(b"\r\n").unwrap();
            }
            heard
        });
        (directory, server)
    }

    #[test]
    fn commands_are_answered_between_events() {
        let (directory, server) = monitor(&[
            "{\"return\": {}}",
            "{\"event\": \"SHUTDOWN\", \"data\": {}}\r\n{\"event\": \"STOP\"}\r\n{\"return\": {\"running\": false}}",
        ]);
        let mut monitor = Monitor::connect(&directory.path().join("qmp")).unwrap();
        assert_eq!(monitor.command("query-status", &json!({"a": 1})).unwrap(), json!({"running": false}));
        assert!(monitor.is_off().unwrap());
        let heard = server.join().unwrap();
        assert_eq!(heard[1], r#"{"execute":"query-status","arguments":{"a":1}}"#);
        assert!(monitor.command("quit", &json!({})).is_err(), "it has gone");
    }

    #[test]
    fn a_refusal_says_why() {
        let (directory, server) = monitor(&["{\"return\": {}}", "{\"error\": {\"desc\": \"no such file\"}}"]);
        let mut monitor = Monitor::connect(&directory.path().join("qmp")).unwrap();
        let error = monitor.command("pmemsave", &json!({})).unwrap_err().to_string();
        assert_eq!(error, "QEMU's monitor refuses pmemsave: no such file");
        assert!(!monitor.is_off);
        server.join().unwrap();
    }
}
