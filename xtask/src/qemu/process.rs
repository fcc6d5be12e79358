//! A QEMU that can't outlive us.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::Launch;

/// A running QEMU; dropping it ends it.
pub struct Process {
    /// The child; its standard streams may be taken.
    pub child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts QEMU with its standard streams as pipes, in a process group of its own: a Ctrl-C on the terminal comes to
    /// us alone, and we end it.
    pub fn start(launch: &Launch, monitor: bool) -> Result<Self> {
        let mut command = Command::new(&launch.program);
        command
            .args(launch.arguments(monitor))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let parent = std::process::id();
        let follow_parent = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have gone before the line above.
            match getppid() {
                Some(pid) if pid.as_raw_nonzero().get().unsigned_abs() == parent => Ok(()),
                _ => Err(io::Error::other("the parent process has ended")),
            }
        };
        // SAFETY: the closure runs in the child between fork and exec; it makes two system calls and
        // allocates only when it fails, and then the child ends.
        unsafe { command.pre_exec(follow_parent) };
        let child = command.spawn().with_context(|| {
            format!("starting {}; `cargo xtask setup` finds or installs it", launch.program.display())
        })?;
        Ok(Self { child, ended: None })
    }

    /// How QEMU ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().context("waiting for QEMU")?;
        }
        Ok(self.ended)
    }

    /// Ends QEMU now.
    pub fn kill(&mut self) {
        if !matches!(self.ended(), Ok(Some(_))) {
            // It may end by itself in between, and then there is nothing left to do.
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
