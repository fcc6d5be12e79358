//! The table of faults that other hypervisors have had (`docs/traps.md`): every test that it names exists, and every test that is named
//! after one of its rows is in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::system;
use crate::paths;

/// The table.
const TABLE: &str = "docs/traps.md";
/// How many rows it has.
const ROWS: u32 = 41;
/// How tests are named after rows: `trap_13_...`, of several rows `trap_11_12_...`.
const PREFIX: &str = "trap_";

/// All tests that there are.
#[derive(Debug, Default)]
struct Tests {
    /// Functions with `#[test]`.
    functions: Vec<String>,
    /// `system/...`.
    cases: Vec<String>,
    /// What the sources of the image suite and of the guest's self-check name in quotes.
    image: String,
    selftest: String,
}

impl Tests {
    fn has(&self, name: &str) -> bool {
        let quoted = |text: &str, name: &str| text.contains(&format!("\"{name}\""));
        match name.split_once('/') {
            Some(("system", _)) => self.cases.iter().any(|case| case == name),
            Some(("image", check)) => quoted(&self.image, check),
            Some(("selftest", check)) => quoted(&self.selftest, check),
            _ => self.functions.iter().any(|function| function == name),
        }
    }
}

/// Compares the table with the tests in `files`.
pub fn check(files: &[PathBuf]) -> Result<()> {
    let root = paths::workspace();
    let mut tests = Tests {
        cases: system::wanted(&|_, _| true).iter().map(|case| case.full_name()).collect(),
        ..Tests::default()
    };
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        tests.functions.extend(functions(&text));
        let is_in = |directory: &str| {
            file.strip_prefix(root).is_ok_and(|path| path.starts_with(Path::new(directory)))
        };
        if is_in("xtask/src/test/image.rs") {
            tests.image += &text;
        } else if is_in("guest/src/loads/selftest") || is_in("guest/src/arch/features.rs") {
            tests.selftest += &text;
        }
    }
    let table = fs::read_to_string(root.join(TABLE)).with_context(|| format!("reading {TABLE}"))?;
    let found = compare(&table, &tests);
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// What does not fit.
fn compare(table: &str, tests: &Tests) -> Vec<String> {
    let rows = rows(table);
    let mut found = Vec::new();
    for number in 1..=ROWS {
        match rows.get(&number).map(Vec::as_slice) {
            None => found.push(format!("{TABLE}: there is no row {number}")),
            Some([names]) => {
                let missing = names.iter().filter(|name| !tests.has(name));
                found.extend(missing.map(|name| format!("{TABLE}: row {number}: there is no test {name}")));
            }
            Some(_) => found.push(format!("{TABLE}: there are several rows {number}")),
        }
    }
    for function in tests.functions.iter().filter(|function| function.starts_with(PREFIX)) {
        for number in numbers(function) {
            let in_row = |names: &Vec<String>| names.contains(function);
            if !rows.get(&number).is_some_and(|rows| rows.iter().any(in_row)) {
                found.push(format!("{TABLE}: row {number} does not name {function}"));
            }
        }
    }
    found
}

/// The rows of the table by number: the names between backquotes in the last column of each, which is empty where none applies.
fn rows(table: &str) -> BTreeMap<u32, Vec<Vec<String>>> {
    let mut rows: BTreeMap<u32, Vec<Vec<String>>> = BTreeMap::new();
    for line in table.lines() {
        let columns: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
        let [number, .., names] = columns.as_slice() else { continue };
        let Ok(number) = number.trim().parse() else { continue };
        let names = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        rows.entry(number).or_default().push(names);
    }
    rows
}

/// The rows that a test is named after.
fn numbers(function: &str) -> Vec<u32> {
    let words = function.strip_prefix(PREFIX).into_iter().flat_map(|rest| rest.split('_'));
    words.map_while(|word| word.parse().ok()).collect()
}

/// The functions of a source file that are tests.
fn functions(text: &str) -> Vec<String> {
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if is_test && let Some(rest) = line.strip_prefix("fn ") {
            found.push(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            is_test = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(functions: &[&str]) -> Tests {
        Tests {
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            cases: vec!["system/smp-1".into()],
            image: "of(\"size\", x)".into(),
            selftest: "(\"timer_masked\", ok)".into(),
        }
    }

    /// A table whose first row names these.
    fn table(names: &str) -> String {
        let rest = (2..=ROWS).map(|number| format!("| {number} | a fault | nothing | does not apply |\n"));
        format!(
            "| # | fault | guard | tests |\n|---|---|---|---|\n| 1 | `not this` | that | {names} |\n{}",
            rest.collect::<String>()
        )
    }

    #[test]
    fn each_kind_of_test_is_found() {
        let all = "`a_test`, `system/smp-1`, `image/size`, `selftest/timer_masked`, `trap_1_x`";
        assert_eq!(compare(&table(all), &tests(&["a_test", "trap_1_x"])), Vec::<String>::new());
        for missing in ["b_test", "system/smp-3", "image/weight", "selftest/timer"] {
            let found = compare(&table(&format!("`{missing}`")), &tests(&[]));
            assert_eq!(found, [format!("docs/traps.md: row 1: there is no test {missing}")]);
        }
    }

    #[test]
    fn tests_that_are_named_after_a_row_must_be_in_it() {
        let found = compare(&table("`trap_1_2_x`"), &tests(&["trap_1_2_x"]));
        assert_eq!(found, ["docs/traps.md: row 2 does not name trap_1_2_x"]);
        let twice = format!("{}| 7 | again | x | |\n", table(""));
        assert_eq!(compare(&twice, &tests(&[])), ["docs/traps.md: there are several rows 7"]);
        assert_eq!(compare("", &tests(&[])).len(), ROWS as usize);
    }

    #[test]
    fn functions_are_tests_after_the_attribute_alone() {
        let text = "fn a() {}\n#[test]\nfn b() {\n}\nproptest! {\n    /// Says.\n    #[test]\n    fn c(x in 0..1) {}\n}\n#[test]\n#[should_panic]\nfn d() {}\nfn e() {}";
        assert_eq!(functions(text), ["b", "c", "d"]);
    }
}
