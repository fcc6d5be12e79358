//! A QEMU that can't outlive us.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getppid, set_parent_process_death_signal, waitid};

use super::Launch;

/// A running QEMU; dropping it ends it.
pub struct Process {
    /// The child; its standard streams may be taken.
    pub child: Child,
    ended: Option<ExitStatus>,
    cpu_time: Option<Duration>,
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
        Ok(Self { child, ended: None, cpu_time: None })
    }

    /// How QEMU ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.note_cpu_time();
            self.ended = self.child.try_wait().context("waiting for QEMU")?;
        }
        Ok(self.ended)
    }

    /// Processor time that QEMU took on the host, all of its threads, in user and in system mode; once it has ended by itself.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.cpu_time
    }

    /// What a process took can be read as long as nobody has waited for it.
    fn note_cpu_time(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        let wait = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(_)) = waitid(WaitId::Pid(pid), wait) {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
            let ticks = stat.ok().as_deref().and_then(cpu_ticks);
            self.cpu_time = ticks.map(|ticks| {
                Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
            });
        }
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

/// utime + stime of a line of /proc/PID/stat (proc(5)), in ticks. The second field, in brackets, may hold spaces and brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    // The first field behind it is number 3, the state.
    let mut fields = rest.split_whitespace().skip(14 - 3);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_from_behind_the_name() {
        let stat = "17 (a) b (c) Z 1 2 3 4 5 6 7 8 9 10 700 42 0 0 20 0 9 0 123";
        assert_eq!(cpu_ticks(stat), Some(742));
        assert_eq!(cpu_ticks("17 (a) Z 1 2"), None);
        assert_eq!(cpu_ticks(""), None);
    }
}
