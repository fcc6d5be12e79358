//! Running a program to its end within a bounded time.
//!
//! Everything that talks to a network may hang without an answer, so no call is left without a limit.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;

/// What a program left behind.
#[derive(Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output (bytes that are not UTF-8 replaced).
    pub stdout: String,
    /// Its standard error, likewise.
    pub stderr: String,
}

/// A command line as a person would type it, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word in single quotes where a shell would take it apart otherwise.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs a program with no input and collects what it prints. It is killed after `limit`.
///
/// # Errors
/// The program can't be started, or took longer than `limit`. An unsuccessful exit is no error here.
pub fn capture(command: &mut Command, limit: Duration) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let stdout = collector(child.stdout.take());
    let stderr = collector(child.stderr.take());
    let Some(status) = wait(&mut child, limit)? else {
        bail!("`{}` gave no answer within {} s", shown(command), limit.as_secs());
    };
    Ok(Output { status, stdout: text(stdout), stderr: text(stderr) })
}

/// Like [`capture`], and an unsuccessful exit is an error that shows what the program said.
///
/// # Errors
/// As [`capture`]; or the exit status is not 0.
pub fn checked(command: &mut Command, limit: Duration) -> Result<Output> {
    let output = capture(command, limit)?;
    if !output.status.success() {
        let said = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
        bail!("`{}` failed ({}):\n{}", shown(command), output.status, tail(said, 12));
    }
    Ok(output)
}

/// Waits for a child for at most `limit`; kills it, reaps it and returns `None` when it takes longer.
///
/// # Errors
/// The operating system refuses to say how the child is doing, or somebody interrupted us (the child is killed then, too).
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let interrupted = interrupt::check();
        if interrupted.is_err() || start.elapsed() >= limit {
            // It may have ended in between: then there is nothing to kill, which is as good.
            let _ = child.kill();
            child.wait()?;
            return interrupted.map(|()| None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The last `lines` lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn collector<R: Read + Send + 'static>(pipe: Option<R>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A read error ends the text early: what came before it is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn text(thread: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_collected() {
        let output =
            capture(Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"]), Duration::from_secs(10))
                .expect("sh starts");
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("a\n", "b\n"));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let start = Instant::now();
        let error = capture(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(error.to_string().contains("sleep 60"), "{error}");
    }

    #[test]
    fn a_failure_shows_what_was_said() {
        let error = checked(
            Command::new("sh").args(["-c", "echo no such thing >&2; exit 1"]),
            Duration::from_secs(10),
        )
        .unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
    }

    #[test]
    fn words_are_quoted_for_a_shell_where_needed() {
        assert_eq!(quoted("a-b.c"), "a-b.c");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(shown(Command::new("x").args(["y z", "-o", "A::B=c"])), "x 'y z' -o A::B=c");
    }

    #[test]
    fn the_tail_of_a_text() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
        assert_eq!(tail("", 5), "");
    }
}
