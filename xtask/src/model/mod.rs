//! `cargo xtask model`: TLC checks the models in docs/model, the ones that must fail among them.

mod cases;
mod modules;
mod story;
mod tlc;
mod value;

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::setup::{self, Tlc};
use crate::{interrupt, paths};
pub use cases::Size;
use cases::{Case, Expected};
use modules::MACHINE;
use tlc::{Task, Verdict};

/// What `cargo xtask model` is asked to do.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Only configurations whose name begins with this (may be given more than once)
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// How large a system is looked at
    #[arg(long, value_enum, default_value = "small")]
    pub size: Size,
    /// List the configurations, and check nothing
    #[arg(long)]
    pub list: bool,
    /// Do not print the counterexamples
    #[arg(long)]
    pub brief: bool,
    /// Write the modules and configuration files there, for a TLC of one's own, and check nothing
    #[arg(long, value_name = "DIRECTORY")]
    pub write: Option<PathBuf>,
}

/// What came out of a configuration.
#[derive(Debug)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Nothing, if it was what was expected; else in which way not.
    pub wrong: Option<String>,
    text: String,
    story: Vec<String>,
}

/// Checks what the arguments ask for and prints a table, and the counterexamples.
///
/// # Errors
/// No TLC, no Java, or a name that begins no configuration's.
pub fn run(args: &ModelArgs) -> Result<ExitCode> {
    let cases = chosen(&args.names, args.size)?;
    if args.list {
        cases.iter().for_each(|case| println!("{:<26} {}", case.name, case.about));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &args.write {
        return write_all(&cases, args.size, directory).map(|()| ExitCode::SUCCESS);
    }
    interrupt::watch()?;
    let tlc = setup::tlc()?;
    let start = Instant::now();
    println!("{:<26} {:>9} {:>8}  result", "configuration", "states", "seconds");
    let outcomes = check(&tlc, &cases, args.size, &|outcome| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", outcome.text)?;
        if !args.brief || outcome.wrong.is_some() {
            outcome.story.iter().try_for_each(|line| writeln!(out, "      {line}"))?;
        }
        Ok(out.flush()?)
    })?;
    let wrong = outcomes.iter().filter(|outcome| outcome.wrong.is_some()).count();
    println!(
        "\n{} as expected, {wrong} not, in {:.0} s",
        outcomes.len() - wrong,
        start.elapsed().as_secs_f64()
    );
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All configurations of the small size, for `cargo xtask test`.
///
/// # Errors
/// No TLC or no Java.
pub fn check_small() -> Result<Vec<Outcome>> {
    check(&setup::tlc()?, &chosen(&[], Size::Small)?, Size::Small, &|_| Ok(()))
}

/// Whether a configuration breaks as it must.
///
/// # Errors
/// No TLC or no Java, no such configuration, or no answer.
pub fn breaks(name: &str) -> Result<bool> {
    let case = cases::all().into_iter().find(|case| case.name == name);
    let case = case.with_context(|| format!("no configuration is called {name}"))?;
    let (verdict, _) = attempt(&setup::tlc()?, &case, Size::Small, 1)??;
    Ok(matches!(case.expected, Expected::Breaks(property) if verdict.broken.as_deref() == Some(property)))
}

/// Whether there is such a configuration, and it has to break.
#[cfg(test)]
pub fn must_break(name: &str) -> bool {
    cases::all().iter().any(|case| case.name == name && matches!(case.expected, Expected::Breaks(_)))
}

/// The configurations whose names begin so.
fn chosen(names: &[String], size: Size) -> Result<Vec<Case>> {
    let all: Vec<Case> = cases::all().into_iter().filter(|case| case.from <= size).collect();
    if let Some(name) = names.iter().find(|name| !all.iter().any(|case| case.name.starts_with(name.as_str())))
    {
        let known: Vec<&str> = all.iter().map(|case| case.name).collect();
        bail!("no configuration of this size begins with `{name}`; there are: {}", known.join(", "));
    }
    let wanted =
        |case: &Case| names.is_empty() || names.iter().any(|name| case.name.starts_with(name.as_str()));
    Ok(all.into_iter().filter(wanted).collect())
}

/// Checks the cases, as many at once as there are CPUs; `each` hears of every one that is done.
fn check(
    tlc: &Tlc,
    cases: &[Case],
    size: Size,
    each: &(dyn Fn(&Outcome) -> Result<()> + Sync),
) -> Result<Vec<Outcome>> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // A thread of TLC's own for each case keeps the order of states, and so the counterexample, the same every time. A large case
    // takes so long that all CPUs go to one.
    let (at_once, workers) = if size == Size::Large { (1, cpus as u32) } else { (cpus.min(4), 1) };
    let left = Mutex::new(cases.iter().collect::<VecDeque<_>>());
    let next = || left.lock().unwrap_or_else(|broken| broken.into_inner()).pop_front();
    let done = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        while let Some(case) = next() {
            interrupt::check()?;
            let outcome = outcome(case, size, attempt(tlc, case, size, workers)?);
            each(&outcome)?;
            done.lock().unwrap_or_else(|broken| broken.into_inner()).push(outcome);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let mut results = threads.into_iter().map(|thread| thread.join());
        results.try_for_each(|result| result.unwrap_or_else(|_| bail!("a thread has panicked")))
    })?;
    Ok(done.into_inner().unwrap_or_else(|broken| broken.into_inner()))
}

/// A run of TLC: what it found and how long it took; or why it could not say.
type Attempt = Result<(Verdict, Duration)>;

fn attempt(tlc: &Tlc, case: &Case, size: Size, workers: u32) -> Result<Attempt> {
    let scratch = paths::scratch()?;
    let start = Instant::now();
    let (memory, limit) = match size {
        Size::Small => (1500, Duration::from_secs(600)),
        Size::Large => (12_000, Duration::from_secs(12 * 3600)),
    };
    let task = Task {
        module: case.module.name.to_owned(),
        configuration: configuration(case, size),
        workers,
        memory,
        long: size == Size::Large,
        limit,
    };
    write_module(case, scratch.path())?;
    let verdict = tlc::check(tlc, &task, scratch.path());
    interrupt::check()?;
    Ok(verdict.map(|verdict| (verdict, start.elapsed())))
}

fn configuration(case: &Case, size: Size) -> String {
    let specification = if case.liveness { "FairSpec" } else { "Spec" };
    let constants = case.constants(size);
    tlc::configuration(specification, !case.liveness, &case.invariants(), &case.properties, &constants)
}

/// A case's module, and what it extends.
fn write_module(case: &Case, directory: &std::path::Path) -> Result<()> {
    for (name, text) in [MACHINE, (case.module.name, case.module.text)] {
        let file = directory.join(format!("{name}.tla"));
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn write_all(cases: &[Case], size: Size, directory: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    for case in cases {
        write_module(case, directory)?;
        let name = format!("{}.cfg", case.name.replace('/', "-"));
        let file = directory.join(&name);
        std::fs::write(&file, configuration(case, size))
            .with_context(|| format!("writing {}", file.display()))?;
        println!("java -cp tla2tools.jar tlc2.TLC -deadlock -config {name} {}", case.module.name);
    }
    Ok(())
}

/// Judges what came out of a case.
fn outcome(case: &Case, size: Size, attempt: Attempt) -> Outcome {
    let (verdict, took) = match attempt {
        Ok(found) => found,
        Err(error) => {
            let text = format!("{:<26} {:>9} {:>8}  NO ANSWER: {error:#}", case.name, "", "");
            return Outcome {
                name: case.name.into(),
                wrong: Some(format!("{error:#}")),
                text,
                story: Vec::new(),
            };
        }
    };
    let found = verdict.broken.as_deref();
    let wrong = match (case.expected, found) {
        (Expected::Holds, None) => None,
        (Expected::Holds, Some(property)) => Some(format!("{property} does not hold")),
        (Expected::Breaks(expected), None) => Some(format!("{expected} was to break, and nothing does")),
        // Several threads come to states in another order each time, and so to another of the properties that break.
        (Expected::Breaks(expected), Some(property)) if expected == property || size == Size::Large => None,
        (Expected::Breaks(expected), Some(property)) => {
            Some(format!("{expected} was to break, and {property} does"))
        }
    };
    let result = match (&wrong, found) {
        (Some(wrong), _) => format!("WRONG: {wrong}"),
        (None, None) => "holds".to_owned(),
        (None, Some(property)) => {
            format!("breaks {property}, as it must, after {} steps", verdict.steps.len() - 1)
        }
    };
    let text = format!(
        "{:<26} {:>9} {:>8.1}  {result} ({})",
        case.name,
        verdict.states,
        took.as_secs_f64(),
        case.about
    );
    let mut story = story::tell(&verdict.steps);
    story.extend(verdict.ending);
    Outcome { name: case.name.into(), wrong, text, story }
}
