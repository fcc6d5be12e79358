//! What becomes of a trace: files, and a word to a person.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use odometer::trace::Decoded;
use serde_json::Value;

use super::json::Names;
use super::{json, schedule, timeline};
use crate::paths;
use crate::report::table::grouped;

/// A trace, and whose it is.
#[derive(Debug)]
pub struct Taken {
    /// The trace.
    pub trace: Decoded,
    /// The VMs' names, by number.
    pub names: Vec<String>,
    /// What ran: an object.
    pub about: Value,
    /// The machine was stopped before it had come to its end.
    pub is_cut: bool,
    /// A VM did not end by itself.
    pub failed: bool,
    /// What went wrong with the run.
    pub error: Option<anyhow::Error>,
}

impl Taken {
    /// Events that rings no longer hold.
    fn lost(&self) -> u64 {
        self.trace.cpus.iter().map(|cpu| cpu.lost).sum()
    }

    /// Writes the Trace Event JSON.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, out: &Path) -> Result<()> {
        let marks = timeline::of(&self.trace);
        let mut about = self.about.clone();
        about["events overwritten"] = self.lost().into();
        let mut bytes = Vec::new();
        json::write(&mut bytes, &self.trace, &marks, &Names { vms: &self.names }, &about)?;
        save(out, &bytes)
    }

    /// Writes the schedule.
    ///
    /// # Errors
    /// It isn't whole, or the file can't be written.
    pub fn write_schedule(&self, out: &Path) -> Result<()> {
        ensure!(
            self.lost() == 0,
            "--schedule: {} events were overwritten, and a schedule must be whole: set a larger trace.kib",
            self.lost()
        );
        save(out, schedule::text(&self.trace, &self.about.to_string()).as_bytes())
    }

    /// What there is in it.
    pub fn summary(&self, written: &[PathBuf]) -> String {
        let cpus = &self.trace.cpus;
        let events: usize = cpus.iter().map(|cpu| cpu.events.len()).sum();
        let cut = if self.is_cut { ", up to where it was stopped" } else { "" };
        let names: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
        let mut text = format!(
            "\n{}: {} events of {} CPUs{cut}\n",
            names.join(", "),
            grouped(events as f64),
            cpus.len()
        );
        let lost = self.lost();
        if lost > 0 {
            let full = cpus.iter().filter(|cpu| cpu.lost > 0).count();
            text.push_str(&format!(
                "{} older events of {full} CPUs were overwritten: a larger trace.kib keeps more (--set trace.kib=...)\n",
                grouped(lost as f64)
            ));
        }
        text
    }
}

fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    paths::write_whole(path, bytes).with_context(|| format!("writing {}", path.display()))
}
