//! `cargo xtask test`: every check of the project, one suite after the other. See docs/testing.md.

pub mod cargo;
mod image;
mod libtest;
mod model;
mod outcome;
mod system;
mod traps;
mod tree;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::interrupt;
use outcome::{Report, Summary};
use system::Case;

/// What `cargo xtask test` is asked to do.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// Only what ends within three minutes
    #[arg(long)]
    pub quick: bool,
    /// Only suites and system tests whose name contains this (may be given more than once)
    #[arg(long, value_name = "NAME")]
    pub filter: Vec<String>,
    /// List what there is, and run nothing
    #[arg(long)]
    pub list: bool,
}

impl TestArgs {
    /// Whether a suite, or a test of one (`suite/test`), is wanted.
    fn wants(&self, name: &str, quick: bool) -> bool {
        (quick || !self.quick)
            && (self.filter.is_empty() || self.filter.iter().any(|filter| name.contains(filter.as_str())))
    }
}

/// A suite of tests.
struct Suite {
    name: &'static str,
    /// Whether `--quick` runs it.
    quick: bool,
    run: fn() -> Result<Report>,
}

/// All suites but the system tests, in the order in which they run: what ends soonest first.
const SUITES: [Suite; 11] = [
    Suite { name: "tree", quick: true, run: tree::check },
    Suite { name: "format", quick: true, run: cargo::format },
    Suite { name: "unit-odometer", quick: true, run: || cargo::unit("odometer") },
    Suite { name: "unit-guest", quick: true, run: || cargo::unit("guest") },
    Suite { name: "unit-xtask", quick: true, run: || cargo::unit("xtask") },
    Suite { name: "unit-auditor", quick: true, run: || cargo::unit("auditor") },
    Suite { name: "lint-host", quick: true, run: cargo::lint_host },
    Suite { name: "lint-target", quick: true, run: cargo::lint_target },
    Suite { name: "documentation", quick: false, run: cargo::documentation },
    Suite { name: "loom", quick: false, run: cargo::loom },
    Suite { name: "model", quick: false, run: model::check },
];

/// The images' own suite comes right before the system tests, which need the images.
const IMAGE: Suite = Suite { name: "image", quick: true, run: image::check };

/// Runs the tests; a failure is an exit code other than 0.
///
/// # Errors
/// Ctrl-C, or output that can't be written. A failed test is no error but an exit code.
pub fn run(args: &TestArgs) -> Result<ExitCode> {
    let suites = || SUITES.iter().chain([&IMAGE]).filter(|suite| args.wants(suite.name, suite.quick));
    let cases = system::wanted(&|name, quick| args.wants(name, quick));
    let names: Vec<String> =
        suites().map(|suite| suite.name.to_owned()).chain(cases.iter().map(Case::full_name)).collect();
    for filter in &args.filter {
        ensure!(
            names.iter().any(|name| name.contains(filter)),
            "--filter {filter}: no test that would run has this in its name; `cargo xtask test --list` has all names{}",
            if args.quick { ", and --quick leaves out the slow ones" } else { "" }
        );
    }
    if args.list {
        suites().for_each(|suite| println!("{}", suite.name));
        cases.iter().for_each(|case| println!("{}", case.full_name()));
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::watch()?;
    let mut summary = Summary::default();
    for suite in suites() {
        let start = Instant::now();
        let report = (suite.run)().unwrap_or_else(|error| Report::fail(suite.name, format!("{error:#}")));
        interrupt::check()?;
        say(suite.name, &report, start.elapsed())?;
        summary.add(suite.name, report);
    }
    if !cases.is_empty() {
        let report = system::run(&cases).unwrap_or_else(|error| Report::fail("setup", format!("{error:#}")));
        interrupt::check()?;
        summary.add(system::NAME, report);
    }
    print!("{}", summary.text());
    std::io::stdout().flush()?;
    Ok(if summary.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line for a suite or a system test that has ended.
fn say(name: &str, report: &Report, took: Duration) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", outcome::line(name, report, took))?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(quick: bool, filter: &[&str]) -> TestArgs {
        TestArgs { quick, filter: filter.iter().map(|word| (*word).to_owned()).collect(), list: false }
    }

    #[test]
    fn quick_and_filter_choose() {
        assert!(args(false, &[]).wants("loom", false));
        assert!(!args(true, &[]).wants("loom", false));
        assert!(args(true, &["system/"]).wants("system/boots", true));
        assert!(!args(false, &["unit"]).wants("system/boots", true));
        assert!(args(false, &["nothing", "boots"]).wants("system/boots", false));
    }

    #[test]
    fn a_filter_that_nothing_matches_is_an_error() {
        let error = run(&args(false, &["tree", "no-such-test"])).unwrap_err().to_string();
        assert!(error.contains("--filter no-such-test"), "{error}");
        assert!(run(&args(true, &["loom"])).unwrap_err().to_string().contains("--quick leaves out"));
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<String> = SUITES.iter().map(|suite| suite.name.to_owned()).collect();
        names.extend(system::wanted(&|_, _| true).iter().map(|case| case.full_name()));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
