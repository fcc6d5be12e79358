//! `cargo xtask bench readv`: vectored reads of single bytes with each access checked by shadow memory or not (E3).

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::own_guest::OwnGuest;
use super::{BenchArgs, json};
use crate::progress::Progress;
use crate::report::statistics::Sample;
use crate::report::table::{Table, grouped, percent};

/// Vectored reads where none are asked for. The published runs had 300,000.
const CALLS: u32 = 10_000;
/// The rows.
const CHECKING: [&str; 3] = ["off", "full", "page"];

/// What the guest says.
#[derive(Debug, Clone, Deserialize)]
struct Record {
    n: u64,
    time_ns: u64,
    shadow_bytes: u64,
}

/// Measures and prints; returns the data.
///
/// # Errors
/// Anything that keeps the table from being complete.
pub fn run(args: &BenchArgs) -> Result<Value> {
    ensure!(
        args.trials.is_none_or(|trials| trials == 1) && args.threads.is_none(),
        "--trials and --threads are not for `bench readv`: it counts instructions, and those repeat"
    );
    let guest = OwnGuest::build(args)?;
    let n = args.calls.unwrap_or(CALLS);
    let progress = Progress::new(CHECKING.len());
    let mut rows = Vec::new();
    let mut machine = Value::Null;
    for checking in CHECKING {
        let name = format!("readv-{checking}");
        let launch = guest.launch(&name, &args.cpu, true, format!("load=readv n={n} checking={checking}"))?;
        machine = json::machine(&launch);
        let step = progress.step(&name);
        let records: Vec<Record> = guest.records(&launch, &name, "readv", 1).context(name)?;
        rows.extend(records);
        step.done();
    }
    drop(progress);
    println!("{}", text(&rows));
    let data: Vec<Value> = CHECKING
        .iter()
        .zip(&rows)
        .map(|(checking, row)| json!({"checking": checking, "n": row.n, "time_ns": row.time_ns, "shadow_bytes": row.shadow_bytes}))
        .collect();
    Ok(json!({ "schema": json::SCHEMA, "bench": "readv", "machine": machine, "rows": data }))
}

/// The table.
fn text(rows: &[Record]) -> String {
    let mut table = Table::new(["checking", "reads", "instructions a read", "against off", "shadow, bytes"]);
    let cost = |row: &Record| Sample::new([row.time_ns as f64 / row.n.max(1) as f64]);
    for (checking, row) in CHECKING.iter().zip(rows) {
        let against =
            if *checking == "off" { String::new() } else { percent(cost(row).difference(&cost(&rows[0]))) };
        table.row([
            (*checking).to_owned(),
            grouped(row.n as f64),
            grouped(cost(row).mean()),
            against,
            grouped(row.shadow_bytes as f64),
        ]);
    }
    format!(
        "{table}\na read has 1,024 buffers of a byte. Published, other hardware, 300,000 reads: 7.017 s before shadow was kept by page, 8.196 s with it (+16.8 %)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_against_the_unchecked_one() {
        let row = |time_ns, shadow_bytes| Record { n: 10, time_ns, shadow_bytes };
        let table = text(&[row(1000, 0), row(6000, 2_097_152), row(6010, 8192)]);
        assert!(table.contains("+500.00 %") && table.contains("+501.00 %"), "{table}");
        assert!(table.contains("2,097,152"), "{table}");
    }
}
