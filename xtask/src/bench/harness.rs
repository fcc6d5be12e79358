//! What all benches have in common: trials of one row after another's, and a file that has what ran so far at any time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::{BenchArgs, jobs};
use crate::image::Programs;
use crate::paths;
use crate::progress::{Progress, Step};
use crate::qemu::Launch;
use crate::qemu::capture::Captured;
use crate::report::records::Report;
use crate::results::host::{self, Host};
use crate::results::{Machine, Odometer, Quantity, Results, SCHEMA, ShareOf, Trial, Variant};

/// What a bench is about.
pub struct About {
    /// Its name.
    pub bench: &'static str,
    /// What it asks, in a line.
    pub question: &'static str,
    /// What it measures; rows are compared by the first.
    pub quantities: Vec<Quantity>,
    /// Its rows.
    pub variants: Vec<Variant>,
    /// Shares to be had from three rows.
    pub shares: Vec<ShareOf>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// A bench that runs.
pub struct Experiment<'a> {
    args: &'a BenchArgs,
    file: PathBuf,
    results: Results,
}

/// One run of one job.
pub struct Run {
    /// The trial's number, from 1, and the seed of the machine's random numbers.
    pub trial: u32,
    /// Where its console is kept, if it is.
    pub log: Option<PathBuf>,
}

/// What a run gave for one row.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// The row's name.
    pub variant: String,
    /// By quantity.
    pub values: BTreeMap<String, f64>,
    /// The bundle's hash.
    pub bundle: String,
    /// Exits by reason.
    pub exits: BTreeMap<String, u64>,
    /// Where the CPUs' time went.
    pub time_ns: BTreeMap<String, u64>,
    /// Seconds of processor time that QEMU took.
    pub host_cpu_s: f64,
    /// Ticks of the counter in a second; 0 where the hypervisor said nothing.
    pub counter_hz: u64,
}

impl Measured {
    /// These values of a row, with what the hypervisor counted in the run.
    ///
    /// # Errors
    /// A report that can't be read.
    pub fn new(
        variant: impl Into<String>,
        values: impl IntoIterator<Item = (&'static str, f64)>,
        captured: &Captured,
    ) -> Result<Self> {
        let report = Report::read(&captured.reports)?;
        let exits = report.exits().by_reason.into_iter().map(|(name, reason)| (name, reason.count)).collect();
        let sum = |of: fn(&crate::report::records::Times) -> u64| {
            report.cpus.values().map(|cpu| of(&cpu.time_ns)).sum::<u64>()
        };
        let times = [
            ("guest", sum(|time| time.guest)),
            ("hypervisor", sum(|time| time.hypervisor)),
            ("idle", sum(|time| time.idle)),
        ];
        let there = times.into_iter().filter(|_| !report.cpus.is_empty());
        Ok(Self {
            variant: variant.into(),
            values: values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            bundle: String::new(),
            exits,
            time_ns: there.map(|(state, time)| (state.to_owned(), time)).collect(),
            host_cpu_s: captured.cpu_time.as_secs_f64(),
            counter_hz: report.boot.counter_hz,
        })
    }
}

/// Cost of one operation: instructions, or nanoseconds of an emulator.
pub fn cost(deterministic: bool, of: &str) -> Quantity {
    let label = if deterministic { format!("instructions {of}") } else { format!("ns {of} (emulated)") };
    Quantity { key: "cost".into(), label, digits: 1, emulated: !deterministic }
}

/// How long something took, which is read in milliseconds: millions of instructions, or an emulator's time.
pub fn time(deterministic: bool, key: &str, what: &str) -> Quantity {
    let unit = if deterministic { "million instructions" } else { "ms (emulated)" };
    Quantity { key: key.into(), label: format!("{what}, {unit}"), digits: 3, emulated: !deterministic }
}

/// A count.
pub fn count(key: &str, label: &str) -> Quantity {
    Quantity { key: key.into(), label: label.into(), digits: 0, emulated: false }
}

impl<'a> Experiment<'a> {
    /// Begins one. `launch` is what QEMU boots for one of the rows.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn begin(args: &'a BenchArgs, about: About, programs: &Programs, launch: &Launch) -> Result<Self> {
        let started = host::now();
        let file = match &args.json {
            Some(path) => path.clone(),
            None => {
                let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(started));
                let name = format!("{}-{date}", about.bench).replace(':', "-");
                let directory = paths::kept("results")?;
                // Two may begin in one second.
                let names = (1..)
                    .map(|n: u32| if n == 1 { format!("{name}.json") } else { format!("{name}-{n}.json") });
                let mut files = names.map(|name| directory.join(name));
                files.find(|file| !file.exists()).context("there are too many results")?
            }
        };
        let results = Results {
            schema: SCHEMA,
            bench: about.bench.into(),
            question: about.question.into(),
            command: args.command.clone(),
            started,
            odometer: Odometer {
                version: env!("CARGO_PKG_VERSION").into(),
                image: paths::sha256(&programs.odometer.image)?,
                guest: paths::sha256(&programs.guest.image)?,
            },
            machine: machine(launch),
            host: Host::this(),
            quantities: about.quantities,
            variants: about.variants,
            trials: Vec::new(),
            shares: about.shares,
            notes: about.notes,
            complete: false,
            failure: None,
        };
        results.write(&file)?;
        Ok(Self { args, file, results })
    }

    /// Runs all jobs `trials` times, a trial of each before the next of any, so that what changes on the host with time falls on all
    /// alike; before these the runs that warm up. At most `at_once` run at a time. Returns what `work` made of each run that counts,
    /// in order.
    ///
    /// # Errors
    /// The first run that fails. What ran before it is in the file, with what went wrong.
    pub fn measure<J: Sync, R: Send>(
        &mut self,
        jobs: &[J],
        name: impl Fn(&J) -> String + Sync,
        at_once: usize,
        trials: u32,
        work: impl Fn(&J, &Run, &mut Step) -> Result<(Vec<Measured>, R)> + Sync,
    ) -> Result<Vec<R>> {
        let rounds =
            (1..=self.args.warmup).map(|trial| (true, trial)).chain((1..=trials).map(|trial| (false, trial)));
        let list: Vec<(bool, u32, &J)> =
            rounds.flat_map(|(warmup, trial)| jobs.iter().map(move |job| (warmup, trial, job))).collect();
        let list: Vec<(usize, (bool, u32, &J))> = list.into_iter().enumerate().collect();
        let progress = Progress::new(list.len());
        let bench = self.results.bench.clone();
        let file = &self.file;
        let logs = &self.args.logs;
        let earlier = self.results.trials.len();
        let done: Mutex<(&mut Results, Vec<usize>)> = Mutex::new((&mut self.results, Vec::new()));
        let outcome = jobs::all(list, at_once, |&(index, (warmup, trial, job))| {
            let kind = if warmup { "warm-up" } else { "trial" };
            let title = format!("{}, {kind} {trial}", name(job));
            let log = logs.as_ref().map(|logs| logs.join(log_name(&bench, &title)));
            let mut step = progress.step(&title);
            let load = host::load();
            let (measured, more) = work(job, &Run { trial, log }, &mut step).context(title)?;
            step.done();
            let mut guard = done.lock().unwrap_or_else(PoisonError::into_inner);
            let (results, order) = &mut *guard;
            // Runs that go on side by side end in any order.
            let place = order.partition_point(|before| *before < index);
            results.note_counter(measured.iter().map(|measured| measured.counter_hz).max().unwrap_or(0));
            let trials = measured.into_iter().map(|measured| Trial {
                variant: measured.variant,
                trial,
                warmup,
                seed: trial,
                bundle: measured.bundle,
                host_load: load,
                host_cpu_s: measured.host_cpu_s,
                values: measured.values,
                exits: measured.exits,
                time_ns: measured.time_ns,
            });
            for (after, trial) in trials.enumerate() {
                results.trials.insert(earlier + place + after, trial);
                order.insert(place + after, index);
            }
            results.write(file)?;
            Ok((warmup, more))
        });
        drop(progress);
        match outcome {
            Ok(all) => Ok(all.into_iter().filter(|(warmup, _)| !warmup).map(|(_, more)| more).collect()),
            Err(error) => {
                self.results.failure = Some(format!("{error:#}"));
                match self.results.write(&self.file) {
                    Ok(()) => eprintln!("what ran before that is in {}", self.file.display()),
                    // What went wrong first is what counts.
                    Err(error) => eprintln!("{error:#}"),
                }
                Err(error)
            }
        }
    }

    /// Adds to what a reader has to know.
    pub fn note(&mut self, note: String) {
        self.results.notes.push(note);
    }

    /// Ends it: the results are whole.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn end(mut self) -> Result<Results> {
        self.results.complete = true;
        self.results.write(&self.file)?;
        eprintln!("results: {}", self.file.display());
        Ok(self.results)
    }
}

/// A run's console log: letters, digits, dots and dashes.
fn log_name(bench: &str, title: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = title.chars().map(plain).collect();
    let words: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
    format!("{bench}-{}.log", words.join("-"))
}

/// The machine that QEMU is.
fn machine(launch: &Launch) -> Machine {
    let mut flags = launch.behaviour();
    flags.extend(launch.machine.qemu.iter().cloned());
    Machine {
        emulated: true,
        qemu: launch.version_text(),
        cpu: launch.machine.cpu.clone(),
        deterministic: launch.machine.deterministic,
        flags,
    }
}

#[cfg(test)]
#[path = "harness_tests.rs"]
mod tests;
