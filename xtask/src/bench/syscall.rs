//! `cargo xtask bench syscall`: what a system call costs with the kernel in the program's map, without it, and with the switch put off
//! until a call needs it (E4).

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::own_guest::OwnGuest;
use super::{BenchArgs, json};
use crate::progress::Progress;
use crate::report::statistics::Sample;
use crate::report::table::{Table, percent, with_error};

/// Null calls where none are asked for. The published runs had 10,000,000.
const CALLS: u32 = 1_000_000;
/// There is one padded call for so many null ones, as it takes that much longer.
const PADDED_PART: u32 = 50;
/// Off, on, deferred.
const ARRANGEMENTS: usize = 3;
/// Published: null call, in µs, without isolation and with.
const PUBLISHED_US: [f64; 2] = [0.0792, 0.2025];

/// What a guest says of one arrangement and call.
#[derive(Debug, Clone, Deserialize)]
struct Record {
    isolation: String,
    call: String,
    n: u64,
    time_ns: u64,
}

/// The trials of one arrangement and call.
#[derive(Debug)]
struct Row {
    isolation: String,
    call: String,
    n: u64,
    /// Nanoseconds of a call.
    cost: Sample,
}

/// Measures and prints; returns the data.
///
/// # Errors
/// Anything that keeps the table from being complete.
pub fn run(args: &BenchArgs) -> Result<Value> {
    let guest = OwnGuest::build(args)?;
    let calls = args.calls.unwrap_or(CALLS);
    // The host's clock only where it is asked for.
    let deterministic = args.threads.is_none();
    let trials = args.trials.unwrap_or(if deterministic { 1 } else { 5 });
    let mut launches = Vec::new();
    for (call, n) in [("null", calls), ("padded", (calls / PADDED_PART).max(1))] {
        let bootargs = format!("load=syscall isolation=all call={call} n={n}");
        launches.push((call, guest.launch(call, &args.cpu, deterministic, bootargs)?));
    }
    let progress = Progress::new(launches.len() * trials as usize);
    let mut rows = Vec::new();
    for trial in 1..=trials {
        for (call, launch) in &launches {
            let name = format!("{call} call, trial {trial}");
            let step = progress.step(&name);
            let log = format!("syscall-{call}-{trial}");
            enter(&mut rows, guest.records(launch, &log, "syscall", ARRANGEMENTS).context(name)?);
            step.done();
        }
    }
    drop(progress);
    println!("{}", text(&rows, deterministic, trials));
    let data: Vec<Value> = rows
        .iter()
        .map(|row| json!({"isolation": row.isolation, "call": row.call, "n": row.n, "call_ns": row.cost.values}))
        .collect();
    Ok(json!({
        "schema": json::SCHEMA,
        "bench": "syscall",
        "machine": json::machine(&launches[0].1),
        "ticks_are_instructions": deterministic,
        "rows": data,
        "published_us": {"off": PUBLISHED_US[0], "on": PUBLISHED_US[1]},
    }))
}

/// Enters one run's results.
fn enter(rows: &mut Vec<Row>, records: Vec<Record>) {
    for Record { isolation, call, n, time_ns } in records {
        let cost = time_ns as f64 / n.max(1) as f64;
        match rows.iter_mut().find(|row| row.isolation == isolation && row.call == call) {
            Some(row) => row.cost.values.push(cost),
            None => rows.push(Row { isolation, call, n, cost: Sample::new([cost]) }),
        }
    }
}

/// The table.
fn text(rows: &[Row], deterministic: bool, trials: u32) -> String {
    let unit = if deterministic { "instructions a call" } else { "ns a call (emulated)" };
    let mut table =
        Table::new(["call", "isolation", "calls", unit, "extra", "extra, %", "published, us", "extra, %"])
            .left(2);
    for row in rows {
        let off = rows.iter().find(|other| other.call == row.call && other.isolation == "off");
        let first = row.isolation == "off";
        let extra = off.filter(|_| !first).map(|off| row.cost.mean() - off.cost.mean());
        let published = ["off", "on"].iter().position(|name| row.call == "null" && row.isolation == *name);
        let [base, _] = PUBLISHED_US;
        table.row([
            row.call.clone(),
            row.isolation.clone(),
            row.n.to_string(),
            with_error(&row.cost, 1),
            extra.map_or_else(String::new, |extra| format!("{extra:+.1}")),
            if first { String::new() } else { percent(off.and_then(|off| row.cost.difference(&off.cost))) },
            published.map_or_else(String::new, |at| format!("{:.4}", PUBLISHED_US[at])),
            published
                .filter(|at| *at > 0)
                .map_or_else(String::new, |at| percent(Some(100.0 * (PUBLISHED_US[at] - base) / base))),
        ]);
    }
    format!(
        "{table}\n{trials} trial(s); a call's cost has the three instructions of the loop around it. Published: getppid on other hardware, \
         where a switch of the table costs what an emulator doesn't show"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extra_is_over_the_same_call_without_isolation() {
        let row = |isolation: &str, call: &str, cost: f64| Row {
            isolation: isolation.into(),
            call: call.into(),
            n: 10,
            cost: Sample::new([cost]),
        };
        let rows = [
            row("off", "null", 50.0),
            row("on", "null", 60.0),
            row("off", "padded", 2000.0),
            row("on", "padded", 2010.0),
        ];
        let table = text(&rows, true, 1);
        let line = |call: &str, isolation: &str| {
            let start = format!("{call:<6}  {isolation:<9}");
            table
                .lines()
                .find(|line| line.starts_with(&start))
                .unwrap_or_else(|| panic!("{table}"))
                .to_owned()
        };
        assert!(line("null", "on").contains("+20.00 %"), "{table}");
        assert!(line("null", "on").contains("+155.68 %"), "{table}");
        assert!(line("padded", "on").contains("+0.50 %"), "{table}");
        assert!(!line("padded", "on").contains("0.2025"), "{table}");
    }
}
