//! A trace that the hypervisor wrote to its console (`trace=serial`): the records `trace` in a log of the serial port.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use odometer::trace::{Decoded, decode};
use serde_json::Value;

/// Hexadecimal digits of a word.
const DIGITS: usize = 16;
/// The largest trace that there can be: 128 CPUs with 64 MiB each, and its header.
const MOST_BYTES: u64 = (128 << 26) + (1 << 20);

/// Puts the trace together from the hypervisor's records.
///
/// # Errors
/// There is none, a line is missing or damaged, or it is no trace.
pub fn read(records: &[Value]) -> Result<Decoded> {
    let of = |kind: &'static str| records.iter().filter(move |record| record["kind"] == kind);
    let place =
        of("boot").next().context("there is no record `boot`: was the log begun before the machine was?")?;
    let bytes = place["trace"]["bytes"].as_u64();
    let bytes = bytes.context("the machine ran without a trace: give it the option trace=serial")?;
    ensure!(bytes <= MOST_BYTES, "boot: a trace of {bytes} bytes is larger than there can be");
    let end = of("trace_end").next();
    let end = end.context("there is no record `trace_end`: with trace=serial the trace follows the last report, and the log must have all of it")?;
    let mut memory = vec![0; bytes as usize];
    let mut lines = 0;
    for record in of("trace") {
        let number = record["line"].as_u64().context("a record `trace` has no number")?;
        ensure!(number == lines, "line {lines} of the trace is missing: after it comes line {number}");
        put(&mut memory, record).with_context(|| format!("line {number} of the trace"))?;
        lines += 1;
    }
    let written = end["lines"].as_u64().unwrap_or(0);
    ensure!(lines == written, "the trace has {lines} lines here, and {written} were written");
    decode(&memory).map_err(|error| anyhow::anyhow!("the trace in the log: {error}"))
}

/// The VMs' names, by number.
pub fn names(records: &[Value]) -> Vec<String> {
    let vms = records.iter().filter(|record| record["kind"] == "vm");
    let named: BTreeMap<u64, &str> =
        vms.filter_map(|vm| Some((vm["vm_id"].as_u64()?, vm["vm"].as_str()?))).collect();
    // They are numbered without gaps; if one is missing, those after it are shown by number.
    (0..).map_while(|number| named.get(&number).map(|name| (*name).to_owned())).collect()
}

/// Puts a line's words where they were.
fn put(memory: &mut [u8], record: &Value) -> Result<()> {
    let at = record["at"].as_u64().context("it doesn't say where its words were")? as usize;
    let words = record["words"].as_str().context("it has no words")?;
    if !words.is_ascii() || !words.len().is_multiple_of(DIGITS) {
        bail!("{} characters are no words of {DIGITS} digits", words.len());
    }
    for (number, digits) in words.as_bytes().chunks(DIGITS).enumerate() {
        let digits = std::str::from_utf8(digits)?;
        let word = u64::from_str_radix(digits, 16).with_context(|| format!("{digits} is no number"))?;
        let place = at.checked_add(number).and_then(|at| at.checked_mul(8));
        let place = place.and_then(|place| memory.get_mut(place..)?.first_chunk_mut());
        *place.with_context(|| format!("word {} is outside of the trace", at.saturating_add(number)))? =
            word.to_le_bytes();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use odometer::stats::trace_line::write_trace;
    use odometer::trace::{Area, Event, Kind, Layout};
    use serde_json::json;
    use std::sync::atomic::AtomicU64;

    /// What a machine with a trace of some events says.
    fn records() -> Vec<Value> {
        let layout = Layout::new(2, 64).unwrap();
        let words: Vec<AtomicU64> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        let area = Area::new(layout, 62_500_000, &words).unwrap();
        for time in 0..5 {
            let event = Event { time, kind: Kind::Kick, detail: 0, vm: 1, vcpu: 0, value: 7 };
            area.ring(1).unwrap().record(event);
        }
        let mut text = String::new();
        write_trace(&mut text, area.words()).unwrap();
        let mut records = vec![json!({ "kind": "boot", "trace": { "bytes": layout.words() * 8 } })];
        records.extend(text.lines().map(|line| {
            serde_json::from_str(line.strip_prefix("@odometer ").expect("a record")).expect("JSON")
        }));
        records
    }

    #[test]
    fn what_the_hypervisor_writes_is_read() {
        let records = records();
        assert!(records.len() < 2 * 64 * 2 / 16, "lines of zeros are left out");
        let trace = read(&records).unwrap();
        assert_eq!(trace.counter_hz, 62_500_000);
        let times: Vec<u64> = trace.cpus[1].events.iter().map(|event| event.time).collect();
        assert_eq!((trace.cpus[0].events.len(), times), (0, vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn vms_are_named_by_number() {
        let vm = |id: u64, name: &str| json!({ "kind": "vm", "vm": name, "vm_id": id });
        assert_eq!(names(&[vm(1, "b"), vm(0, "a"), vm(0, "a"), vm(3, "d"), json!({})]), ["a", "b"]);
    }

    #[test]
    fn what_is_missing_or_damaged_is_named() {
        let message = |spoil: &dyn Fn(&mut Vec<Value>)| {
            let mut records = records();
            spoil(&mut records);
            format!("{:#}", read(&records).unwrap_err())
        };
        let last = records().len() - 1;
        for (text, says) in [
            (message(&|records| drop(records.remove(0))), "no record `boot`"),
            (message(&|records| records[0]["trace"] = Value::Null), "trace=serial"),
            (
                message(&|records| records[0]["trace"]["bytes"] = json!(8)),
                "line 0 of the trace: word 1 is outside",
            ),
            (
                message(&|records| records[0]["trace"]["bytes"] = json!(1u64 << 60)),
                "larger than there can be",
            ),
            (message(&|records| drop(records.remove(1))), "line 0 of the trace is missing"),
            (message(&|records| drop(records.remove(last))), "no record `trace_end`"),
            (message(&|records| records[last]["lines"] = json!(99)), "and 99 were written"),
            (message(&|records| records[1]["words"] = json!("12")), "no words of 16 digits"),
            (message(&|records| records[1]["words"] = json!("zz00000000000000")), "is no number"),
            (message(&|records| records[1]["at"] = json!(u64::MAX)), "is outside"),
            (message(&|records| records[1]["words"] = json!("0000000000000001")), "ODOTRACE"),
        ] {
            assert!(text.contains(says), "{text}");
        }
    }
}
