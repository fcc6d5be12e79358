//! What a suite found, and the summary over all of them.

use std::time::Duration;

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its name within the suite.
    pub name: String,
    /// What went wrong.
    pub why: String,
}

/// What one suite found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed.
    pub failed: Vec<Failure>,
    /// Tests that could not run here: name and reason.
    pub skipped: Vec<(String, String)>,
}

impl Report {
    /// One test that passed.
    pub fn pass() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    /// One test that failed.
    pub fn fail(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { failed: vec![Failure { name: name.into(), why: why.into() }], ..Self::default() }
    }

    /// One test that could not run.
    pub fn skip(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { skipped: vec![(name.into(), reason.into())], ..Self::default() }
    }

    /// One test that went as this result says.
    pub fn of<T>(name: &str, result: &anyhow::Result<T>) -> Self {
        match result {
            Ok(_) => Self::pass(),
            Err(error) => Self::fail(name, format!("{error:#}")),
        }
    }

    /// Adds what another one found.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

/// All suites that ran.
#[derive(Debug, Default)]
pub struct Summary {
    total: Report,
}

impl Summary {
    /// Takes a suite's report in; names are told apart by the suite's.
    pub fn add(&mut self, suite: &str, report: Report) {
        let within = |name: &str| if name == suite { name.to_owned() } else { format!("{suite}/{name}") };
        self.total.add(Report {
            passed: report.passed,
            failed: report
                .failed
                .into_iter()
                .map(|f| Failure { name: within(&f.name), why: f.why })
                .collect(),
            skipped: report.skipped.into_iter().map(|(name, why)| (within(&name), why)).collect(),
        });
    }

    /// Whether all is well: something ran, and nothing failed.
    pub fn success(&self) -> bool {
        self.total.failed.is_empty() && self.total.passed > 0
    }

    /// The end of the output: skips with their reasons, failures with theirs, and the sums alone on the last line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.total.skipped.is_empty() {
            text.push_str("\nSkipped:\n");
            for (name, reason) in &self.total.skipped {
                text.push_str(&format!("  {name}: {reason}\n"));
            }
        }
        if !self.total.failed.is_empty() {
            text.push_str("\nFailed:\n");
            for Failure { name, why } in &self.total.failed {
                text.push_str(&format!("  {name}\n{}\n", indented(why)));
            }
        }
        let Report { passed, failed, skipped } = &self.total;
        let skipped = match skipped.len() {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        text.push_str(&format!("\n{passed} passed, {} failed{skipped}\n", failed.len()));
        text
    }
}

/// The line about a suite that has ended.
pub fn line(suite: &str, report: &Report, took: Duration) -> String {
    let verdict = match (report.failed.len(), report.passed, report.skipped.len()) {
        (0, 0, 0) => "nothing ran".to_owned(),
        (0, 0, _) => "skipped".to_owned(),
        (0, passed, _) => format!("ok, {passed} passed"),
        (failed, passed, _) => format!("FAILED: {failed} of {}", failed + passed as usize),
    };
    format!("{suite:<34} {verdict:<22} {:7.1} s", took.as_secs_f64())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_sums_alone() {
        let mut summary = Summary::default();
        summary.add("unit", Report { passed: 3, ..Report::default() });
        assert!(summary.success());
        assert_eq!(summary.text().lines().last(), Some("3 passed, 0 failed"));
        summary.add("system", Report::skip("old-qemu", "no package"));
        assert_eq!(summary.text().lines().last(), Some("3 passed, 0 failed, 1 skipped"));
        summary.add("elf", Report::fail("elf", "an FP instruction\nat 0x0"));
        let text = summary.text();
        assert_eq!(text.lines().last(), Some("3 passed, 1 failed, 1 skipped"));
        assert!(text.contains("  system/old-qemu: no package\n"), "{text}");
        assert!(text.contains("  elf\n      an FP instruction\n      at 0x0\n"), "{text}");
        assert!(!summary.success());
    }

    #[test]
    fn a_run_in_which_nothing_ran_is_no_success() {
        let mut summary = Summary::default();
        assert!(!summary.success());
        summary.add("system", Report::skip("x", "y"));
        assert!(!summary.success());
    }

    #[test]
    fn a_suites_line_says_how_many() {
        let took = Duration::from_millis(1500);
        let mut report = Report { passed: 2, ..Report::default() };
        assert!(line("a", &report, took).contains("ok, 2 passed"));
        report.add(Report::fail("x", "y"));
        assert!(line("a", &report, took).contains("FAILED: 1 of 3"));
        assert!(line("a", &Report::skip("a", "b"), took).contains("skipped"));
        assert!(line("a", &Report::default(), took).contains("nothing ran"));
        assert!(line("a", &report, took).ends_with("1.5 s"));
    }
}
