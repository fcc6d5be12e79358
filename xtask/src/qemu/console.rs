//! The serial console as a stream of lines: whose they are, and which of them are records.
//!
//! Records are the lines behind `@odometer ` and `@guest `, one JSON object each. A line of a guest begins with the VM's
//! name and `| `, unless the prefix is off; what goes on with an earlier line begins with the name and `|+ `.

use serde_json::Value;

/// The marker of the hypervisor's records.
const ODOMETER: &str = "@odometer ";
/// The marker of guests' records.
const GUEST: &str = "@guest ";
/// A longer line is cut here: no record is, and a guest that never ends its line must not fill the memory.
const MAX_LINE: usize = 1 << 20;

/// A line of the console.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A record of the hypervisor.
    Report(Value),
    /// A record of a guest.
    Guest {
        /// The VM's name; empty where lines have no prefix.
        vm: String,
        /// The record.
        record: Value,
    },
    /// A record that can't be read.
    Damaged {
        /// The line.
        text: String,
        /// What is wrong with it.
        error: String,
    },
    /// Anything else.
    Text(String),
}

impl Line {
    /// Tells what a line is.
    pub fn parse(line: &str) -> Self {
        let (marker, vm, json) = if let Some(json) = line.strip_prefix(ODOMETER) {
            (ODOMETER, "", json)
        } else if let Some(json) = line.strip_prefix(GUEST) {
            (GUEST, "", json)
        } else if let Some((vm, json)) =
            line.split_once("| ").and_then(|(vm, rest)| Some((vm, rest.strip_prefix(GUEST)?)))
        {
            (GUEST, vm, json)
        } else {
            return Self::Text(line.into());
        };
        match serde_json::from_str(json) {
            Ok(record @ Value::Object(_)) if marker == ODOMETER => Self::Report(record),
            Ok(record @ Value::Object(_)) => Self::Guest { vm: vm.into(), record },
            Ok(_) => Self::Damaged { text: line.into(), error: "not a JSON object".into() },
            Err(error) => Self::Damaged { text: line.into(), error: error.to_string() },
        }
    }
}

/// The VM that a line is of: what stands before `| `, if that can be a name.
pub fn whose(line: &str) -> Option<&str> {
    line.split_once("| ").map(|(vm, _)| vm).filter(|vm| is_name(vm))
}

/// The VM and the text of a line that goes on with an earlier one of that VM: `name|+ `.
pub fn continued(line: &str) -> Option<(&str, &str)> {
    line.split_once("|+ ").filter(|(vm, _)| is_name(vm))
}

/// Whether a text can be a VM's name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".,_+-".contains(&byte))
}

/// Cuts a stream of bytes into lines. Ends of lines are `\n`; a `\r` before it belongs to it.
#[derive(Debug, Default)]
pub struct Splitter {
    rest: Vec<u8>,
}

impl Splitter {
    /// Takes the next bytes; calls `each` with every line that is complete.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(String)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE.saturating_sub(self.rest.len());
            self.rest.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                each(text(&std::mem::take(&mut self.rest)));
            }
        }
    }

    /// What came after the last line's end, if anything did.
    pub fn finish(self) -> Option<String> {
        (!self.rest.is_empty()).then(|| text(&self.rest))
    }
}

fn text(bytes: &[u8]) -> String {
    let line = String::from_utf8_lossy(bytes);
    line.trim_end_matches(['\n', '\r']).trim_start_matches('\r').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_the_bytes_arrive() {
        let stream = b"one\r\ntwo\n\n\xff three\r\nrest";
        for size in 1..stream.len() {
            let mut splitter = Splitter::default();
            let mut lines = Vec::new();
            stream.chunks(size).for_each(|chunk| splitter.push(chunk, |line| lines.push(line)));
            assert_eq!(lines, ["one", "two", "", "\u{fffd} three"]);
            assert_eq!(splitter.finish().as_deref(), Some("rest"));
        }
    }

    #[test]
    fn a_line_without_end_does_not_grow_without_bounds() {
        let mut splitter = Splitter::default();
        for _ in 0..3 {
            splitter.push(&vec![b'x'; MAX_LINE], |_| panic!("no line ended"));
        }
        let mut lines = 0;
        splitter.push(b"\nnext\n", |line| {
            lines += 1;
            assert!(line.len() == MAX_LINE || line == "next", "{}", line.len());
        });
        assert_eq!(lines, 2);
    }

    #[test]
    fn records_are_told_from_text() {
        let record = serde_json::json!({"kind": "end"});
        assert_eq!(Line::parse(r#"@odometer {"kind":"end"}"#), Line::Report(record.clone()));
        assert_eq!(
            Line::parse(r#"web-0| @guest {"kind":"end"}"#),
            Line::Guest { vm: "web-0".into(), record: record.clone() }
        );
        assert_eq!(Line::parse(r#"@guest {"kind":"end"}"#), Line::Guest { vm: String::new(), record });
        assert_eq!(Line::parse("web-0| hello | there"), Line::Text("web-0| hello | there".into()));
        assert_eq!(Line::parse("odometer: hello"), Line::Text("odometer: hello".into()));
    }

    /// A guest can print what it likes; only the hypervisor's own lines are its records.
    #[test]
    fn a_guest_cannot_forge_the_hypervisors_records() {
        assert!(matches!(Line::parse(r#"web| @odometer {"kind":"end"}"#), Line::Text(_)));
    }

    #[test]
    fn damaged_records_are_not_lost() {
        assert!(matches!(Line::parse("@odometer {\"kind\":"), Line::Damaged { .. }));
        assert!(matches!(Line::parse("a| @guest 7"), Line::Damaged { .. }));
    }
}
