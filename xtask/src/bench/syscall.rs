//! `cargo xtask bench syscall`: what a system call costs with the kernel in the program's map, without it, and with the switch put off
//! until a call needs it (E4).

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BenchArgs, LoadName, Threads, json};
use crate::progress::Progress;
use crate::qemu::capture::{Captured, Limits, capture};
use crate::report::statistics::Sample;
use crate::report::table::{Table, percent};
use crate::scenario::{Machine, Scenario, Vm};
use crate::{fit, image, paths, run};

/// Null calls where none are asked for. The published runs had 10,000,000.
const CALLS: u32 = 1_000_000;
/// There is one padded call for so many null ones, as it takes that much longer.
const PADDED_PART: u32 = 50;
/// Memory of the VM.
const MEMORY: u64 = 16 << 20;
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
    let shaped = [args.cpus, args.vms, args.vcpus, args.setup].iter().any(Option::is_some);
    let loaded = [args.groups, args.fds, args.loops, args.runs].iter().any(Option::is_some);
    ensure!(
        !shaped && !loaded && args.memory.is_none() && args.load == LoadName::Messaging,
        "--setup, --load, --cpus, --vms, --vcpus, --memory and hackbench's parameters are not for `bench syscall`: it has one guest \
         with one vCPU; --calls says how often"
    );
    let calls = args.calls.unwrap_or(CALLS);
    let programs = image::build()?;
    let guest = run::read_kernel(&programs.guest.image)?;
    let scratch = paths::scratch()?;
    // The host's clock only where it is asked for.
    let deterministic = args.threads.is_none();
    let trials = args.trials.unwrap_or(if deterministic { 1 } else { 5 });
    let mut launches = Vec::new();
    for (call, n) in [("null", calls), ("padded", (calls / PADDED_PART).max(1))] {
        let machine = Machine {
            cpus: 1,
            cpu: args.cpu.clone(),
            deterministic,
            multi_threaded: args.threads == Some(Threads::Multi),
            qemu: args.qemu.clone(),
            ..Machine::default()
        };
        let bootargs = format!("load=syscall isolation=all call={call} n={n}");
        let vms = vec![Vm { vcpus: 1, memory: MEMORY, bootargs, ..Vm::new("syscall", guest.clone()) }];
        let scenario = Scenario { machine, options: args.options.clone(), vms };
        scenario.check("the command line")?;
        let path = scratch.path().join(format!("{call}.itb"));
        fit::write(&scenario)?.write(&path)?;
        launches.push((call, run::launch(&programs, &scenario, &path)?));
    }
    let progress = Progress::new(launches.len() * trials as usize);
    let mut rows = Vec::new();
    for trial in 1..=trials {
        for (call, launch) in &launches {
            let name = format!("{call} call, trial {trial}");
            let step = progress.step(&name);
            let log = args.logs.as_ref().map(|logs| logs.join(format!("syscall-{call}-{trial}.log")));
            let captured =
                capture(launch, &Limits::default(), log.as_deref(), &mut |_| ()).context(name.clone())?;
            enter(&mut rows, &captured).context(name)?;
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
fn enter(rows: &mut Vec<Row>, captured: &Captured) -> Result<()> {
    let records = captured.guests.iter().map(|(_, record)| record);
    for record in records.clone() {
        ensure!(record["ok"] != false, "the guest reports a failure: {record}");
    }
    let isolated = records.clone().filter(|record| record["kind"] == "isolation").count();
    ensure!(isolated == 3, "{isolated} arrangements of maps were checked by the guest, not 3");
    let mut seen = 0;
    for record in records.filter(|record| record["kind"] == "syscall") {
        let record = Record::deserialize(record).with_context(|| format!("the guest's record {record}"))?;
        let cost = record.time_ns as f64 / record.n.max(1) as f64;
        match rows.iter_mut().find(|row| row.isolation == record.isolation && row.call == record.call) {
            Some(row) => row.cost.values.push(cost),
            None => rows.push(Row {
                isolation: record.isolation,
                call: record.call,
                n: record.n,
                cost: Sample::new([cost]),
            }),
        }
        seen += 1;
    }
    ensure!(seen == 3, "{seen} results of `syscall` on the console, not 3");
    Ok(())
}

/// The table.
fn text(rows: &[Row], deterministic: bool, trials: u32) -> String {
    let unit = if deterministic { "instructions a call" } else { "ns a call (emulated)" };
    let mut table =
        Table::new(["call", "isolation", "calls", unit, "extra", "extra, %", "published, us", "extra, %"])
            .left(2);
    for row in rows {
        let off = rows.iter().find(|other| other.call == row.call && other.isolation == "off");
        let cost = match row.cost.standard_error() {
            Some(error) => format!("{:.1} ± {error:.1}", row.cost.mean()),
            None => format!("{:.1}", row.cost.mean()),
        };
        let first = row.isolation == "off";
        let extra = off.filter(|_| !first).map(|off| row.cost.mean() - off.cost.mean());
        let published = ["off", "on"].iter().position(|name| row.call == "null" && row.isolation == *name);
        let [base, _] = PUBLISHED_US;
        table.row([
            row.call.clone(),
            row.isolation.clone(),
            row.n.to_string(),
            cost,
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
