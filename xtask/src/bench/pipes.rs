//! `cargo xtask bench pipes`: pipes opened and closed with each access checked by shadow memory or not, and the two causes of the published
//! regression (E3).

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::own_guest::OwnGuest;
use super::{BenchArgs, json};
use crate::progress::Progress;
use crate::report::statistics::Sample;
use crate::report::table::{Table, grouped, percent};

/// Rounds where none are asked for, as in the published runs.
const CALLS: u32 = 10_000;
/// Pipes in a round, as in the published runs.
const PIPES: u32 = 10;
/// The rows: checking, poisoned, allocator.
const ROWS: [[&str; 3]; 6] = [
    ["off", "own", "unchecked"],
    ["full", "own", "unchecked"],
    ["page", "own", "unchecked"],
    ["page", "own", "checked"],
    ["page", "common", "unchecked"],
    ["page", "common", "checked"],
];
/// The row that all are compared with, and the one that those with the two causes are compared with.
const OFF: usize = 0;
const PAGE: usize = 2;

/// What the guest says.
#[derive(Debug, Clone, Deserialize)]
struct Record {
    opens: u64,
    closes: u64,
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
        "--trials and --threads are not for `bench pipes`: it counts instructions, and those repeat"
    );
    let n = args.calls.unwrap_or(CALLS);
    ensure!(n <= 100_000_000, "--calls {n}: `bench pipes` takes 1 to 100000000 rounds");
    let guest = OwnGuest::build(args)?;
    let progress = Progress::new(ROWS.len());
    let mut rows = Vec::new();
    let mut machine = Value::Null;
    for [checking, poisoned, allocator] in ROWS {
        let name = format!("pipes-{checking}-{poisoned}-{allocator}");
        let bootargs = format!(
            "load=pipes pipes={PIPES} n={n} checking={checking} poisoned={poisoned} allocator={allocator}"
        );
        let launch = guest.launch(&name, &args.cpu, true, bootargs)?;
        machine = json::machine(&launch);
        let step = progress.step(&name);
        let records: Vec<Record> = guest.records(&launch, &name, "pipes", 1).context(name.clone())?;
        for record in &records {
            let opens = u64::from(PIPES) * u64::from(n);
            ensure!(
                (record.opens, record.closes) == (opens, 2 * opens),
                "{name}: {} pipes were opened and {} descriptors closed, not {opens} and {}",
                record.opens,
                record.closes,
                2 * opens
            );
        }
        rows.extend(records);
        step.done();
    }
    drop(progress);
    println!("{}", text(&rows));
    let data: Vec<Value> = ROWS
        .iter()
        .zip(&rows)
        .map(|([checking, poisoned, allocator], row)| {
            json!({
                "checking": checking, "poisoned": poisoned, "allocator": allocator, "opens": row.opens,
                "closes": row.closes, "time_ns": row.time_ns, "shadow_bytes": row.shadow_bytes,
            })
        })
        .collect();
    Ok(json!({ "schema": json::SCHEMA, "bench": "pipes", "machine": machine, "rows": data }))
}

/// The table.
fn text(rows: &[Record]) -> String {
    let head = [
        "checking",
        "poisoned",
        "allocator",
        "pipes",
        "instructions a pipe",
        "against off",
        "against page",
        "shadow, bytes",
    ];
    let mut table = Table::new(head).left(3);
    let cost = |row: &Record| Sample::new([row.time_ns as f64 / row.opens.max(1) as f64]);
    for (i, (names, row)) in ROWS.iter().zip(rows).enumerate() {
        let against = |other: usize| {
            if i > other { percent(cost(row).difference(&cost(&rows[other]))) } else { String::new() }
        };
        let mut cells = names.map(str::to_owned).to_vec();
        cells.extend([
            grouped(row.opens as f64),
            grouped(cost(row).mean()),
            against(OFF),
            against(PAGE),
            grouped(row.shadow_bytes as f64),
        ]);
        table.row(cells);
    }
    format!(
        "{table}\na pipe is one open and two closes. Published, other hardware, 10 pipes 10,000 times: 5.685 s before shadow was kept by page, 8.383 s with it (+47.5 %), \
         nothing left when two causes were mended: the common poisoned page, the allocator's own memory"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_against_the_unchecked_one_and_the_causes_against_page() {
        let row = |time_ns| Record { opens: 10, closes: 20, time_ns, shadow_bytes: 12_288 };
        let table = text(&[1000, 3000, 4000, 5000, 6000, 8000].map(row));
        let lines: Vec<&str> = table.lines().collect();
        let line = |start: &[&str]| {
            let found = lines.iter().find(|line| line.split_whitespace().take(3).eq(start.iter().copied()));
            *found.expect("the row")
        };
        assert!(!line(&ROWS[0]).contains('%'));
        assert!(line(&ROWS[1]).contains("+200.00 %"));
        assert_eq!(line(&ROWS[2]).matches('%').count(), 1);
        assert!(line(&ROWS[5]).contains("+700.00 %") && line(&ROWS[5]).contains("+100.00 %"));
    }
}
