//! What needs root: done when we are root, asked for when a person is there, refused otherwise.
//!
//! A person sees the exact command before it is run with `sudo`; without a person the command is shown in the
//! error, so that it can be run by hand.

use std::io::{BufRead, IsTerminal, Write};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::command;

/// How a command that needs root is dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// We are root: run it.
    Run,
    /// A person is there: show it, ask, run it with `sudo`.
    Ask,
    /// Neither: show it and fail.
    Refuse,
}

/// Chooses: `root`, whether input and error output are a terminal, and whether this is a CI run.
fn means(root: bool, terminal: bool, ci: bool) -> Means {
    match (root, terminal && !ci) {
        (true, _) => Means::Run,
        (false, true) => Means::Ask,
        (false, false) => Means::Refuse,
    }
}

/// Runs `command` as root, or says how; `why` completes "... needs root".
///
/// # Errors
/// We are not root and nobody is there to be asked, or the person declined, or the command failed.
pub fn run_as_root(why: &str, command: &Command) -> Result<()> {
    let line = command::shown(command);
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let root = rustix::process::geteuid().is_root();
    match means(root, terminal, std::env::var_os("CI").is_some()) {
        Means::Run => {
            eprintln!("setup: {why}:\n    {line}");
            let mut run = Command::new(command.get_program());
            run.args(command.get_args()).env("DEBIAN_FRONTEND", "noninteractive");
            finish(run, &line)
        }
        Means::Ask => {
            eprint!("{why} needs root. Run this?\n    sudo {line}\n[y/N] ");
            std::io::stderr().flush()?;
            let mut answer = String::new();
            std::io::stdin().lock().read_line(&mut answer).context("no answer")?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                bail!("{why}: declined. To do it by hand:\n    sudo {line}");
            }
            let mut run = Command::new("sudo");
            run.arg(command.get_program()).args(command.get_args());
            finish(run, &line)
        }
        Means::Refuse => bail!(
            "{why} needs root, and nobody is here to be asked. Run this, then try again:\n    sudo {line}"
        ),
    }
}

fn finish(mut run: Command, line: &str) -> Result<()> {
    let mut child = run.stdin(std::process::Stdio::inherit()).stdout(std::io::stderr()).spawn()?;
    // A package manager that hangs on a dead mirror must not hang CI for ever.
    match command::wait(&mut child, std::time::Duration::from_secs(15 * 60))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("`{line}` failed ({status})"),
        None => bail!("`{line}` did not end within 15 minutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_asked_and_nobody_is_asked_without_a_terminal() {
        assert_eq!(means(true, false, true), Means::Run);
        assert_eq!(means(true, true, false), Means::Run);
        assert_eq!(means(false, true, false), Means::Ask);
        assert_eq!(means(false, false, false), Means::Refuse);
        assert_eq!(means(false, true, true), Means::Refuse);
    }
}
