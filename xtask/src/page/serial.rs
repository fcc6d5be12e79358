//! A console's log from anywhere: a board's serial port, another emulator. It has the same lines.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::qemu::capture::Captured;
use crate::report::records::Report;
use crate::report::summary;
use crate::report::table::Table;

/// What the log says: the hypervisor's summary, and guests' records, a table for each kind. A terminal program's log may have carriage returns
/// and a boot loader's text in it.
///
/// # Errors
/// No records at all. One that is damaged is left out, and named by its line's number.
pub fn text(log: &str) -> Result<String> {
    let mut captured = Captured::default();
    let mut damaged = Vec::new();
    let mut text = String::new();
    for (index, line) in log.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        damaged.extend(captured.add(line).err().map(|error| format!("line {}: {error:#}", index + 1)));
    }
    damaged.extend(captured.finish().err().map(|error| format!("the log's end: {error:#}")));
    ensure!(
        !captured.reports.is_empty() || !captured.guests.is_empty(),
        "has no line of Odometer's (`@odometer {{...}}`) and none of a guest (`@guest {{...}}`)"
    );
    let report = Report::read(&captured.reports)?;
    if !captured.reports.is_empty() {
        text += &summary::text(&report);
        if report.end.is_none() {
            text += "there is no `end` record: the log was cut off, or the run goes on\n";
        }
    }
    for (kind, records) in by_kind(&captured.guests) {
        text += &format!("\n{kind}\n\n{}", table(&records));
    }
    for damaged in damaged {
        text += &format!("warning: {damaged}\n");
    }
    Ok(text)
}

/// A guest's record with its VM's name.
type Record<'a> = (&'a str, &'a Value);

/// Records by their kind; that a guest has ended is of no interest here.
fn by_kind(guests: &[(String, Value)]) -> BTreeMap<&str, Vec<Record<'_>>> {
    let mut kinds: BTreeMap<&str, Vec<Record<'_>>> = BTreeMap::new();
    for (vm, record) in guests {
        let kind = record["kind"].as_str().unwrap_or("?");
        if kind != "end" {
            kinds.entry(kind).or_default().push((vm, record));
        }
    }
    kinds
}

/// A column for each member that any of the records has.
fn table(records: &[Record<'_>]) -> Table {
    let mut members: Vec<&str> = Vec::new();
    for name in records.iter().filter_map(|(_, record)| record.as_object()).flat_map(|object| object.keys()) {
        if !["schema", "kind"].contains(&name.as_str()) && !members.contains(&name.as_str()) {
            members.push(name);
        }
    }
    let mut table = Table::new(["VM"].into_iter().chain(members.iter().copied()));
    for (vm, record) in records {
        let cell = |member: &&str| match &record[*member] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.row([(*vm).to_owned()].into_iter().chain(members.iter().map(cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "U-Boot 2026.01\r\n\x1b[0m=> booti\r\n@odometer {\"schema\":1,\"kind\":\"vm\",\"vm\":\"web\",\"state\":\"off\",\"exits\":{\"total\":2,\
        \"by_reason\":{\"wfi\":{\"count\":2}}}}\r\nweb| @guest {\"schema\":1,\"kind\":\"syscall\",\"isolation\":\"on\",\"call_ns\":64.0,\"ok\":true}\r\n\
        web| @guest {\"kind\":\"end\",\"ok\":true}\r\n@odometer {\"schema\":1,\"kind\":\"end\",\"elapsed_ns\":5000000,\"vms\":1,\"reason\":\"all\"}\r\n";

    #[test]
    fn the_log_of_a_serial_port_is_read() {
        let text = text(LOG).unwrap();
        for part in ["web", "syscall", "isolation", "64.0", "ended after 0.005 s"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("cut off"));
    }

    #[test]
    fn a_log_that_is_cut_or_damaged_or_another_ones_is_told() {
        let cut = &LOG[..LOG.rfind("@odometer").unwrap()];
        assert!(text(cut).unwrap().contains("cut off"));
        let error = |log: &str| format!("{:#}", text(log).unwrap_err());
        let damaged = text(&LOG.replacen("\"schema\":1,\"kind\":\"vm\"", "\"sche", 1)).unwrap();
        assert!(damaged.contains("warning: line 3: ") && damaged.contains("syscall"), "{damaged}");
        let cut = format!("{LOG}@odometer {{\"schema\":1,\"ki");
        assert!(text(&cut).unwrap().contains("warning: line 7: "));
        assert!(error("U-Boot 2026.01\nhello\n").contains("no line of Odometer's"));
        assert!(error("").contains("no line of Odometer's"));
    }
}
