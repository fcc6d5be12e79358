//! Reading what `cargo test` prints: sums, names of failed tests, and what they said.

use super::outcome::{Failure, Report};
use crate::setup::command::tail;

/// Lines kept of what a failed test printed.
const SHOWN: usize = 12;

/// Reads the output of `cargo test`. `success` is its exit status, `errors` its standard error, where a compiler's
/// messages are.
pub fn parse(output: &str, errors: &str, success: bool) -> Report {
    let mut report = Report::default();
    for line in output.lines() {
        if let Some(rest) = line.strip_prefix("test result: ") {
            report.passed += count(rest, "passed");
        } else if let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = name.trim_end_matches(" - should panic");
            if verdict == "FAILED" {
                report.failed.push(Failure { name: name.to_owned(), why: said(output, name) });
            } else if let Some(reason) = verdict.strip_prefix("ignored") {
                let reason = reason.trim_start_matches([',', ' ']);
                let reason = if reason.is_empty() { "marked #[ignore]" } else { reason };
                report.skipped.push((name.to_owned(), reason.to_owned()));
            }
        }
    }
    if !success && report.failed.is_empty() {
        // It didn't compile, or a test ended the whole process.
        let why = if errors.trim().is_empty() { output } else { errors };
        report.failed.push(Failure { name: "cargo test".into(), why: tail(why, 25) });
    } else if success && report.passed == 0 {
        report.failed.push(Failure { name: "cargo test".into(), why: "no test ran".into() });
    }
    report
}

/// The number before a word: 9 of `ok. 9 passed; 0 failed`.
fn count(text: &str, word: &str) -> u32 {
    let words: Vec<&str> = text.split([' ', ';']).filter(|part| !part.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// What a failed test printed: the section `---- name stdout ----`.
fn said(output: &str, name: &str) -> String {
    let header = format!("---- {name} stdout ----");
    let lines = output.lines().skip_while(|line| *line != header).skip(1);
    let section: Vec<&str> =
        lines.take_while(|line| !line.starts_with("---- ") && *line != "failures:").collect();
    let text = section.iter().filter(|line| !line.starts_with("note: run with")).take(SHOWN);
    text.copied().collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILING: &str = "
running 3 tests
test a::works ... ok
test a::fails ... FAILED
test a::slow ... ignored, takes an hour
test a::panics - should panic ... ok

failures:

---- a::fails stdout ----

thread 'a::fails' panicked at src/a.rs:9:5:
left is not right
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    a::fails

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests a

running 1 test
test src/a.rs - f (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn sums_over_all_programs_and_names_of_failures() {
        let report = parse(FAILING, "error: test failed", false);
        assert_eq!(report.passed, 3);
        assert_eq!(report.failed.len(), 1);
        assert_eq!(report.failed[0].name, "a::fails");
        let why = &report.failed[0].why;
        assert!(why.contains("left is not right") && !why.contains("RUST_BACKTRACE"), "{why}");
        assert_eq!(report.skipped, [("a::slow".to_owned(), "takes an hour".to_owned())]);
    }

    #[test]
    fn what_does_not_compile_is_one_failure() {
        let report = parse("", "error[E0308]: mismatched types\n --> src/x.rs", false);
        assert_eq!((report.passed, report.failed.len()), (0, 1));
        assert!(report.failed[0].why.contains("mismatched types"));
    }

    #[test]
    fn a_suite_without_tests_is_a_failure() {
        let output = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(parse(output, "", true).failed[0].why, "no test ran");
    }

    #[test]
    fn a_process_that_dies_is_a_failure() {
        let report = parse(
            "running 2 tests\ntest a ... ok\n",
            "error: process didn't exit successfully (signal: 6)",
            false,
        );
        assert_eq!(report.failed.len(), 1);
        assert!(report.failed[0].why.contains("signal: 6"));
    }
}
