//! What a bench measured, as a file: everything that ran, each trial with its values, and enough to run it again.
//!
//! | file | |
//! |---|---|
//! | `mod.rs` | the data, and reading and writing it |
//! | `host.rs` | what of the host is recorded |
//! | `text.rs` | the tables of any bench |
//! | `again.rs` | a run and its repetition, side by side |
//!
//! docs/results.md describes the file for those who read it with a program of their own.

pub mod again;
pub mod host;
pub mod text;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::report::statistics::{Sample, Share, share};

/// The version of the file's shape. The first one had no trials of most benches.
pub const SCHEMA: u32 = 2;

/// What a bench measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The version of this shape.
    pub schema: u32,
    /// The bench's name.
    pub bench: String,
    /// What was asked, in a line.
    pub question: String,
    /// The words behind `cargo xtask bench`.
    pub command: Vec<String>,
    /// When it started, in seconds since 1970 (UTC).
    pub started: u64,
    /// What ran.
    pub odometer: Odometer,
    /// On which machine.
    pub machine: Machine,
    /// On which host.
    pub host: host::Host,
    /// What was measured; the first one is what rows are compared by.
    pub quantities: Vec<Quantity>,
    /// The rows.
    pub variants: Vec<Variant>,
    /// What each trial gave, in their order.
    pub trials: Vec<Trial>,
    /// Shares to be had from three rows.
    pub shares: Vec<ShareOf>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// Whether all trials ran.
    pub complete: bool,
    /// What went wrong, if something did.
    pub failure: Option<String>,
}

/// The programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Odometer {
    /// The version.
    pub version: String,
    /// SHA-256 of the hypervisor's image.
    pub image: String,
    /// SHA-256 of our guest's image.
    pub guest: String,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Whether an emulator's clock gave the times: they say nothing about hardware then.
    pub emulated: bool,
    /// QEMU's version.
    pub qemu: String,
    /// The CPU model.
    pub cpu: String,
    /// Whether executed instructions drove the clock.
    pub deterministic: bool,
    /// The flags that decide how it behaves.
    pub flags: Vec<String>,
}

/// Something that is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// Its name in a trial's values.
    pub key: String,
    /// Its name for a reader, with the unit.
    pub label: String,
    /// Digits after the point.
    pub digits: usize,
    /// Whether it is time by an emulator's clock that instructions don't drive.
    pub emulated: bool,
}

/// A row: one way of doing what is measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name, of which there is one.
    pub name: String,
    /// The table that it stands in.
    pub group: String,
    /// The row that it is compared with.
    pub base: Option<String>,
    /// What it differs by: bootargs, options, CPU model, ...
    pub settings: BTreeMap<String, String>,
    /// Figures that others published.
    pub published: Vec<Published>,
}

/// A figure that was published, measured on other hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// What it is, with its unit.
    pub label: String,
    /// The figure.
    pub value: f64,
}

/// One trial of one row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The row's name.
    pub variant: String,
    /// Its number, from 1.
    pub trial: u32,
    /// Whether it only warmed the host up: it isn't in any mean.
    pub warmup: bool,
    /// The seed of the machine's random numbers.
    pub seed: u32,
    /// The bundle's hash.
    pub bundle: String,
    /// The host's load average over a minute, when it began.
    pub host_load: Option<f64>,
    /// Seconds of processor time that QEMU took.
    pub host_cpu_s: f64,
    /// By quantity.
    pub values: BTreeMap<String, f64>,
    /// Exits by reason, of all VMs.
    pub exits: BTreeMap<String, u64>,
    /// Nanoseconds that all CPUs spent in guests, in the hypervisor, and idle.
    pub time_ns: BTreeMap<String, u64>,
}

/// A share to be had from three rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareOf {
    /// Of what.
    pub label: String,
    /// The row that has nothing of the load.
    pub floor: String,
    /// The row with it.
    pub with: String,
    /// The row without it.
    pub without: String,
    /// What was published, in %.
    pub published: Option<f64>,
}

impl Results {
    /// The values of a quantity over a row's trials, warm-up apart.
    pub fn sample(&self, variant: &str, key: &str) -> Sample {
        let trials = self.trials.iter().filter(|trial| !trial.warmup && trial.variant == variant);
        Sample::new(trials.filter_map(|trial| trial.values.get(key).copied()))
    }

    /// The share, by the first quantity; `None` where a row has no trial or the formula no sense.
    pub fn share(&self, of: &ShareOf) -> Option<Share> {
        let key = &self.quantities.first()?.key;
        let [floor, with, without] =
            [&of.floor, &of.with, &of.without].map(|variant| self.sample(variant, key));
        if [&floor, &with, &without].iter().any(|sample| sample.values.is_empty()) {
            return None;
        }
        share(&floor, &with, &without)
    }

    /// Notes that the counter of a machine that counts instructions is coarse, where it is: what is measured with it is a multiple of its tick.
    pub fn note_counter(&mut self, hz: u64) {
        const INSTRUCTIONS: u64 = 1_000_000_000;
        if self.machine.deterministic && hz > 0 && hz < INSTRUCTIONS {
            let note = format!(
                "The counter of this CPU model ticks once in {} instructions: times are no finer.",
                INSTRUCTIONS / hz
            );
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// The row of this name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, isn't one of ours, or has another schema.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let value: serde_json::Value =
            serde_json::from_str(text).context("is not JSON; give a file that `cargo xtask bench` wrote")?;
        match value["schema"].as_u64() {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => bail!(
                "has schema {schema}; this xtask reads {SCHEMA}: run it with the xtask that wrote it, or measure again"
            ),
            None => bail!("has no `schema`; give a file that `cargo xtask bench` wrote"),
        }
        let results: Self = serde_json::from_value(value).context("is not a result of a bench")?;
        results.check()?;
        Ok(results)
    }

    /// That names are there and there once, and numbers can be shown.
    fn check(&self) -> Result<()> {
        for (at, variant) in self.variants.iter().enumerate() {
            let again = self.variants[..at].iter().any(|other| other.name == variant.name);
            ensure!(!again, "variants: `{}` is there twice", variant.name);
        }
        let there = |place: &str, name: &str| {
            ensure!(self.variant(name).is_some(), "{place}: there is no variant `{name}` among `variants`");
            Ok(())
        };
        self.trials.iter().try_for_each(|trial| there("trials", &trial.variant))?;
        let bases = self.variants.iter().filter_map(|variant| variant.base.as_deref());
        bases.into_iter().try_for_each(|base| there("base", base))?;
        let shares = self.shares.iter().flat_map(|of| [&of.floor, &of.with, &of.without]);
        shares.into_iter().try_for_each(|name| there("shares", name))?;
        // The last second of the year 9999, as far as dates are written.
        ensure!(self.started <= 253_402_300_799, "started: {} is no second of this era", self.started);
        for quantity in &self.quantities {
            ensure!(
                quantity.digits <= 15,
                "quantities: `{}` has {} digits, more than 15",
                quantity.key,
                quantity.digits
            );
        }
        ensure!(
            self.command.iter().all(|word| !word.starts_with("--repeat")),
            "command: has --repeat; a result names what it was repeated from"
        );
        Ok(())
    }

    /// Writes it to a file, whole.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("writing JSON")? + "\n";
        crate::paths::write_whole(path, text.as_bytes())
            .with_context(|| format!("writing the results to {}", path.display()))
    }
}

#[cfg(test)]
pub mod tests;
