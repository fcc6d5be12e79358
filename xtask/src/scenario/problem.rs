//! What is wrong with a scenario: where, what, and what to do about it.

use std::collections::BTreeMap;
use std::fmt;

/// The line of each key of a scenario file, by the key's path (`machine.cpus`, `vm.0.kernel`).
pub type Lines = BTreeMap<String, usize>;

/// One fault in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the key: `machine.cpus`; `vm.0.kernel` is the key `kernel` of the first `[[vm]]`.
    pub key: String,
    /// What is wrong, with the value.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// A fault at this key.
    pub fn new(key: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into(), remedy: remedy.into() }
    }
}

/// Everything that is wrong with a scenario.
#[derive(Debug, Clone)]
pub struct Problems {
    /// The file, or what stands in its place (a command line).
    pub source: String,
    /// Where the keys are in it.
    pub lines: Lines,
    /// At least one.
    pub list: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{}", self.source)?;
            if let Some(line) = line_of(&self.lines, &problem.key) {
                write!(formatter, ":{line}")?;
            }
            write!(formatter, ": {}{}\n    remedy: {}", spoken(&problem.key), problem.what, problem.remedy)?;
        }
        Ok(())
    }
}

/// The line of a key, or else of the table that it should be in.
fn line_of(lines: &Lines, key: &str) -> Option<usize> {
    let mut key = key;
    loop {
        if let Some(line) = lines.get(key) {
            return Some(*line);
        }
        key = key.rsplit_once('.')?.0;
    }
}

/// The key as a reader of the file knows it.
fn spoken(key: &str) -> String {
    let vm = key.strip_prefix("vm.").map(|rest| rest.split_once('.').unwrap_or((rest, "")));
    match vm {
        Some((index, name)) => {
            let number =
                index.parse::<usize>().map_or_else(|_| index.to_string(), |index| (index + 1).to_string());
            if name.is_empty() {
                format!("[[vm]] {number}: ")
            } else {
                format!("[[vm]] {number}, `{name}`: ")
            }
        }
        None if key.is_empty() => String::new(),
        None => format!("`{key}`: "),
    }
}

/// The known word that a misspelt one was probably meant to be.
pub fn did_you_mean<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, taken out or changed to make one word of another.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_words_find_their_neighbour() {
        let known = ["kernel", "initrd", "vcpus", "memory"];
        assert_eq!(did_you_mean("kernal", &known), Some("kernel"));
        assert_eq!(did_you_mean("vcpu", &known), Some("vcpus"));
        assert_eq!(did_you_mean("memroy", &known), Some("memory"));
        assert_eq!(did_you_mean("network", &known), None);
    }

    #[test]
    fn a_problem_names_file_line_key_and_remedy() {
        let problems = Problems {
            source: "a.toml".into(),
            lines: Lines::from([("vm.1".into(), 7), ("vm.1.vcpus".into(), 9)]),
            list: vec![
                Problem::new("vm.1.vcpus", "9 vCPUs", "write 8"),
                Problem::new("vm.1.kernel", "is missing", "add it"),
            ],
        };
        let text = problems.to_string();
        assert_eq!(
            text,
            "a.toml:9: [[vm]] 2, `vcpus`: 9 vCPUs\n    remedy: write 8\n\
             a.toml:7: [[vm]] 2, `kernel`: is missing\n    remedy: add it"
        );
    }
}
