//! What a run printed, with records told from text and lines put together that the hypervisor's console had to cut.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use super::console::{Line, continued, whose};

/// How many of the last lines are shown when something goes wrong.
const SHOWN_LINES: usize = 25;
/// How much of each.
const SHOWN_CHARS: usize = 200;

/// What a run printed.
#[derive(Debug, Clone, Default)]
pub struct Captured {
    /// All lines as they came, records too.
    pub lines: Vec<String>,
    /// The hypervisor's records, in order.
    pub reports: Vec<Value>,
    /// Guests' records, in order, with the VM's name.
    pub guests: Vec<(String, Value)>,
    /// How long QEMU ran on the host.
    pub elapsed: Duration,
    /// Processor time that QEMU took on the host; 0 where it isn't known.
    pub cpu_time: Duration,
    /// The last line of each VM, put together, by the VM's name.
    last: HashMap<String, String>,
    /// Records that aren't whole yet, by the VM's name, with what is wrong with them so far.
    unfinished: HashMap<String, String>,
}

impl Captured {
    /// Takes a line in.
    ///
    /// # Errors
    /// A record that is damaged, and not only cut where the next line of its VM goes on.
    pub fn add(&mut self, text: &str) -> Result<()> {
        self.lines.push(text.into());
        if let Some((vm, rest)) = continued(text) {
            self.unfinished.remove(vm);
            let mut whole = self.last.remove(vm).unwrap_or_else(|| format!("{vm}| "));
            whole.push_str(rest);
            return self.take(&whole);
        }
        if let Some(vm) = whose(text) {
            self.complete(vm)?;
        }
        self.take(text)
    }

    /// Takes in a line that begins where lines begin.
    fn take(&mut self, text: &str) -> Result<()> {
        let vm = whose(text);
        match (Line::parse(text), vm) {
            (Line::Report(record), _) => self.reports.push(record),
            (Line::Guest { vm, record }, _) => self.guests.push((vm, record)),
            (Line::Damaged { error, .. }, Some(vm)) => {
                self.unfinished.insert(vm.into(), error);
            }
            (Line::Damaged { error, .. }, None) => {
                bail!("a record on the console is damaged ({error}): {text}")
            }
            (Line::Text(_), _) => {}
        }
        if let Some(vm) = vm {
            self.last.insert(vm.into(), text.into());
        }
        Ok(())
    }

    /// A new line of a VM ends what was unfinished of it.
    fn complete(&mut self, vm: &str) -> Result<()> {
        match self.unfinished.remove(vm) {
            None => Ok(()),
            Some(error) => {
                let line = self.last.get(vm).map_or("", String::as_str);
                bail!("a record on the console is damaged ({error}): {line}")
            }
        }
    }

    /// No more lines will come.
    ///
    /// # Errors
    /// A record that was never finished.
    pub fn finish(&mut self) -> Result<()> {
        match self.unfinished.keys().next().cloned() {
            Some(vm) => self.complete(&vm),
            None => Ok(()),
        }
    }

    /// Whether a record of this kind is among the hypervisor's.
    pub fn has(&self, kind: &str) -> bool {
        self.reports.iter().any(|record| record["kind"] == kind)
    }

    /// The end of the console for an error message.
    pub fn last_lines(&self) -> String {
        let lines = &self.lines;
        if lines.is_empty() {
            return "the console stayed empty".into();
        }
        let first = lines.len().saturating_sub(SHOWN_LINES);
        let shown: Vec<String> = lines[first..]
            .iter()
            .map(|line| {
                let cut = if line.chars().count() > SHOWN_CHARS { "..." } else { "" };
                format!("    {}{cut}", line.chars().take(SHOWN_CHARS).collect::<String>())
            })
            .collect();
        format!("the console's last lines were\n{}", shown.join("\n"))
    }

    /// An error about what came on the console, with its end.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        anyhow::anyhow!("{error:#}\n{}", self.last_lines())
    }

    /// What a log of the console gives.
    ///
    /// # Errors
    /// As of a run.
    pub fn from_log(log: &str) -> Result<Self> {
        let mut captured = Self::default();
        log.lines().try_for_each(|line| captured.add(line))?;
        captured.finish()?;
        Ok(captured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_the_console_cut_are_put_together() {
        let log = "a| @guest {\"kind\":\nb| hello\na|+ \"end\"\nb|+  there\na|+ }\na| text\n@odometer {\"kind\":\"x\"}";
        let captured = Captured::from_log(log).unwrap();
        assert_eq!(captured.guests, [("a".to_string(), serde_json::json!({"kind": "end"}))]);
        assert_eq!(captured.lines.len(), 7);
        let captured = Captured::from_log("a| @gue\na|+ st {\"kind\":\"end\"}").unwrap();
        assert_eq!(captured.guests.len(), 1, "the marker itself may be cut");
    }

    #[test]
    fn records_that_stay_damaged_are_errors() {
        let error = |log: &str| Captured::from_log(log).unwrap_err().to_string();
        assert!(error("a| @guest {\"kind\":\na| next").contains("damaged"));
        assert!(error("a| @guest {\"kind\":\nb| next").contains("a| @guest {\"kind\":"));
        assert!(error("@odometer {\"kind\":").contains("damaged"));
        assert!(error("@guest {\"kind\":").contains("damaged"));
    }
}
