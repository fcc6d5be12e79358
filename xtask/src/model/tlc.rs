//! Running TLC on a configuration, and reading what it says.
//!
//! With `-tool` each message comes between `@!@!@STARTMSG code:severity @!@!@` and `@!@!@ENDMSG code @!@!@`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::story::Step;
use crate::setup::{Tlc, command};

/// Messages that say that a property doesn't hold (tlc2.output.EC): an invariant in the first state and later, an action
/// property in the first step and later, a temporal property.
const VIOLATIONS: [u32; 5] = [2107, 2110, 2108, 2112, 2116];
/// A state of a counterexample.
const STATE: u32 = 2217;
/// From here on a counterexample stands still, or goes back to an earlier state.
const STUTTERING: u32 = 2218;
const BACK_TO_STATE: u32 = 2122;
/// How many states there were.
const STATISTICS: u32 = 2199;
/// All states were looked at.
const SUCCESS: u32 = 2193;

/// What TLC is to check.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// The module's name.
    pub module: String,
    /// The text of the configuration file.
    pub configuration: String,
    /// Threads.
    pub workers: u32,
    /// Memory for Java in MiB.
    pub memory: u32,
    /// Whether it runs for minutes or hours.
    pub long: bool,
    /// Longest time.
    pub limit: Duration,
}

/// What TLC has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The property that does not hold, if there is one; the temporal ones are all called `temporal`.
    pub broken: Option<String>,
    /// The counterexample.
    pub steps: Vec<Step>,
    /// What follows its last state, if that is not the end.
    pub ending: Option<String>,
    /// Different states that were found.
    pub states: u64,
}

/// Checks a configuration: `directory` is for the module and what TLC writes.
///
/// # Errors
/// TLC says that something is wrong with the module or the configuration, or takes too long.
pub fn check(tlc: &Tlc, task: &Task, directory: &Path) -> Result<Verdict> {
    let file = directory.join(format!("{}.cfg", task.module));
    std::fs::write(&file, &task.configuration).with_context(|| format!("writing {}", file.display()))?;
    let mut java = Command::new(&tlc.java);
    // TLC writes its standard modules there under their own names, each time it starts: two that run at once must not do so over each other.
    let mut own = OsString::from("-Djava.io.tmpdir=");
    own.push(directory);
    java.arg(own)
        .arg(format!("-Xmx{}m", task.memory))
        .args(["-XX:+UseParallelGC", "-XX:ParallelGCThreads=2"])
        // What runs for seconds takes less CPU without the second compiler.
        .args((!task.long).then_some("-XX:TieredStopAtLevel=1"))
        .arg("-cp")
        .arg(&tlc.jar)
        // The same order of states, and so the same counterexample, each time.
        .args(["tlc2.TLC", "-tool", "-deadlock", "-fp", "1", "-metadir", "states", "-workers"])
        .arg(task.workers.to_string())
        .arg(&task.module)
        .current_dir(directory);
    for (name, value) in &tlc.envs {
        java.env(name, value);
    }
    let output = command::capture(&mut java, task.limit)?;
    read(&output.stdout).with_context(|| {
        let said = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
        format!("`{}` ended with {}:\n{}", command::shown(&java), output.status, command::tail(said, 20))
    })
}

/// A configuration file: what to check, and the constants.
pub fn configuration(
    specification: &str,
    symmetric: bool,
    invariants: &[&str],
    properties: &[&str],
    constants: &[(String, String)],
) -> String {
    let mut text = format!("SPECIFICATION {specification}\n");
    if symmetric {
        text.push_str("SYMMETRY Symmetry\n");
    }
    for (keyword, names) in [("INVARIANT", invariants), ("PROPERTY", properties)] {
        names.iter().for_each(|name| _ = writeln!(text, "{keyword} {name}"));
    }
    text.push_str("CONSTANTS\n");
    let mut declared = HashSet::new();
    for (name, value) in constants {
        _ = writeln!(text, "    {name} = {value}");
        // The elements of a set of model values are constants, too.
        let set = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let elements = set.into_iter().flat_map(|set| set.split(',')).map(str::trim);
        for element in elements.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())) {
            // A set may be part of another.
            if !declared.insert(element) {
                continue;
            }
            _ = writeln!(text, "    {element} = {element}");
        }
    }
    text
}

/// Reads TLC's messages.
fn read(output: &str) -> Result<Verdict> {
    let mut verdict = Verdict { broken: None, steps: Vec::new(), ending: None, states: 0 };
    let mut complete = false;
    let mut error = None;
    for (code, severity, text) in messages(output) {
        match code {
            code if VIOLATIONS.contains(&code) => verdict.broken = Some(broken(code, text)),
            STATE => verdict.steps.push(Step::parse(text)?),
            STUTTERING => verdict.ending = Some("from here on nothing more happens".to_owned()),
            BACK_TO_STATE => {
                let number = text.split_whitespace().find_map(|word| word.trim_end_matches(':').parse().ok());
                let number: u32 = number.context("TLC goes back to a state without a number")?;
                verdict.ending = Some(format!("from here on it goes on as after step {}", number.max(1) - 1));
            }
            STATISTICS => verdict.states = distinct(text).context("TLC says no number of states")?,
            SUCCESS => complete = true,
            _ if severity == 1 && error.is_none() => error = Some(text.trim().to_owned()),
            _ => {}
        }
    }
    match (&verdict.broken, error) {
        (Some(_), _) if !verdict.steps.is_empty() => Ok(verdict),
        (None, None) if complete => Ok(verdict),
        (_, Some(error)) => bail!("TLC: {error}"),
        _ => bail!("TLC did not come to an end"),
    }
}

/// The messages in TLC's output: code, severity (1: error, 4: state), text.
fn messages(output: &str) -> impl Iterator<Item = (u32, u32, &str)> {
    output.split("@!@!@STARTMSG ").skip(1).filter_map(|part| {
        let (head, rest) = part.split_once(" @!@!@\n")?;
        let (code, severity) = head.split_once(':')?;
        let text = rest.split("@!@!@ENDMSG").next()?;
        Some((code.parse().ok()?, severity.parse().ok()?, text))
    })
}

/// `Invariant NAME is violated.`, `Action property NAME is violated.`, `Temporal properties were violated.`
fn broken(code: u32, text: &str) -> String {
    if code == 2116 {
        return "temporal".to_owned();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let name = words.windows(2).find(|pair| pair[1] == "is").map(|pair| pair[0]);
    name.unwrap_or_else(|| text.trim()).to_owned()
}

/// `584463 states generated, 236954 distinct states found, 0 states left on queue.`
fn distinct(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "distinct")?;
    words.get(at.checked_sub(1)?)?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u32, severity: u32, text: &str) -> String {
        format!("noise\n@!@!@STARTMSG {code}:{severity} @!@!@\n{text}\n@!@!@ENDMSG {code} @!@!@\n")
    }

    #[test]
    fn a_complete_search_is_told_from_one_that_broke_off() {
        let statistics = message(
            STATISTICS,
            0,
            "584463 states generated, 236954 distinct states found, 0 states left on queue.",
        );
        let whole = message(SUCCESS, 0, "Model checking completed. No error has been found.") + &statistics;
        let verdict = read(&whole).unwrap();
        assert_eq!((verdict.broken, verdict.states), (None, 236_954));
        assert!(read(&statistics).is_err(), "nothing says that all was looked at");
        assert!(read("").is_err());
        let wrong = message(1000, 1, "Unknown operator: `X'.");
        assert!(read(&wrong).unwrap_err().to_string().contains("Unknown operator"));
        assert!(read(&(whole + &wrong)).is_err(), "an error counts whatever else was said");
    }

    #[test]
    fn a_broken_property_has_a_name_and_states() {
        let state = message(STATE, 4, "1: <Initial predicate>\n/\\ pc = (0 :> \"idle\")\n");
        for (code, text, name) in [
            (2110, "Invariant NoSharedId is violated.", "NoSharedId"),
            (2112, "Action property OnlyTheLockRevives is violated.", "OnlyTheLockRevives"),
            (2116, "Temporal properties were violated.", "temporal"),
        ] {
            let verdict = read(&(message(code, 1, text) + &state)).unwrap();
            assert_eq!(verdict.broken.as_deref(), Some(name));
            assert_eq!(verdict.steps.len(), 1);
            assert!(read(&message(code, 1, text)).is_err(), "a counterexample without a state");
        }
    }

    #[test]
    fn constants_declare_their_model_values() {
        let constants = [
            ("Vms".to_owned(), "{A, B}".to_owned()),
            ("Pinned".to_owned(), "{A}".to_owned()),
            ("Cpus".to_owned(), "{0, 1}".to_owned()),
            ("Edits".to_owned(), "{\"host\"}".to_owned()),
            ("None".to_owned(), "None".to_owned()),
        ];
        let text = configuration("Spec", true, &["I"], &["P"], &constants);
        assert_eq!(
            text,
            "SPECIFICATION Spec\nSYMMETRY Symmetry\nINVARIANT I\nPROPERTY P\nCONSTANTS\n    Vms = {A, B}\n    A = A\n    \
             B = B\n    Pinned = {A}\n    Cpus = {0, 1}\n    Edits = {\"host\"}\n    None = None\n"
        );
    }
}
