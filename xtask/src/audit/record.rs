//! What the plugin wrote when QEMU ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// How VMs that came to a CPU were met with in its TLB, as far as can be told from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Met {
    /// Entries of theirs may have been left.
    pub warm: u64,
    /// None can have been.
    pub cold: u64,
    /// Entries of another VM may have been left under their VMID.
    pub stale: u64,
}

/// Instructions at EL2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Spent {
    /// Exits that went straight back to the guest.
    pub exits: u64,
    /// In all of these, from the vector to the `eret`.
    pub instructions: u64,
}

/// Counts of events, by name, for each CPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Over all CPUs.
    pub met: Met,
    /// Over all CPUs, by class of exits; empty if instructions were not counted.
    pub spent: BTreeMap<String, Spent>,
    /// By the CPU's number.
    pub cpus: BTreeMap<u64, BTreeMap<String, u64>>,
}

impl Record {
    /// Reads the plugin's file.
    ///
    /// # Errors
    /// There is none, it is damaged, or it says that the plugin could not tell what was Odometer's.
    pub fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).context("the auditor wrote no counts: QEMU did not end by itself")?;
        Self::parse(&text).context("the auditor's counts")
    }

    fn parse(text: &str) -> Result<Self> {
        let mut record = Self::default();
        let mut found = false;
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).with_context(|| format!("the line {line}"))?;
            match value["kind"].as_str() {
                Some("image") => {
                    ensure!(
                        value["found"] == true,
                        "no instruction was executed where the image was expected: it is loaded elsewhere"
                    );
                    ensure!(
                        value["unplaced"] == 0,
                        "of {} instructions at the image's addresses it can't be said whose they are",
                        value["unplaced"]
                    );
                    found = true;
                }
                Some("vmid") => {
                    record.met = Met::deserialize(&value).with_context(|| format!("the line {line}"))?;
                }
                Some("instructions") => {
                    let spent = BTreeMap::deserialize(&value["spent"]);
                    record.spent = spent.with_context(|| format!("the line {line}"))?;
                }
                Some("cpu") => {
                    let number =
                        value["cpu"].as_u64().with_context(|| format!("no number of a CPU in {line}"))?;
                    let events = BTreeMap::deserialize(&value["events"]);
                    record.cpus.insert(number, events.with_context(|| format!("the line {line}"))?);
                }
                _ => bail!("the line {line} is of no kind that is known"),
            }
        }
        ensure!(found, "not a word of the image");
        Ok(record)
    }

    /// What exits of a class cost.
    pub fn spent(&self, class: &str) -> Spent {
        self.spent.get(class).copied().unwrap_or_default()
    }

    /// How often an event occurred on a CPU.
    pub fn count(&self, cpu: u64, event: &str) -> u64 {
        self.cpus.get(&cpu).and_then(|events| events.get(event)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = r#"{"kind":"image","found":true,"unplaced":0}"#;

    #[test]
    fn counts_are_read_for_each_cpu() {
        let text = format!(
            "{IMAGE}\n{}\n{}\n{}\n{}\n",
            r#"{"kind":"instructions","spent":{"exit_hvc":{"exits":2,"instructions":300}}}"#,
            r#"{"kind":"vmid","warm":5,"cold":6,"stale":0}"#,
            r#"{"kind":"cpu","cpu":0,"events":{"exit":3,"entry":2}}"#,
            r#"{"kind":"cpu","cpu":1,"events":{"exit":4}}"#
        );
        let record = Record::parse(&text).unwrap();
        assert_eq!([0, 1, 2].map(|cpu| record.count(cpu, "exit")), [3, 4, 0]);
        assert_eq!(record.count(0, "entry"), 2);
        assert_eq!(record.spent("exit_hvc"), Spent { exits: 2, instructions: 300 });
        assert_eq!(record.spent("exit_smc"), Spent::default());
        assert_eq!(record.met, Met { warm: 5, cold: 6, stale: 0 });
    }

    #[test]
    fn a_plugin_that_was_in_the_dark_is_no_witness() {
        for (text, message) in [
            ("", "not a word"),
            (r#"{"kind":"image","found":false,"unplaced":0}"#, "loaded elsewhere"),
            (r#"{"kind":"image","found":true,"unplaced":2}"#, "of 2 instructions"),
            (r#"{"kind":"else"}"#, "of no kind"),
            ("{", "the line {"),
            (r#"{"kind":"cpu","cpu":0,"events":{"exit":-1}}"#, "the line {"),
        ] {
            let error = format!("{:#}", Record::parse(text).unwrap_err());
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
