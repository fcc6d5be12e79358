//! `cargo xtask bench stacktrace`: what part of a load's time goes into stack traces, by frame pointers and by a shadow call stack, and
//! what pointer authentication costs in the emulator (E2).

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::own_guest::OwnGuest;
use super::{BenchArgs, json};
use crate::progress::Progress;
use crate::report::statistics::Sample;
use crate::report::table::{Table, percent};

/// Calls of each tree where none are asked for.
const CALLS: u32 = 10_000;
/// Trials by the emulator's clock where none are asked for.
const TRIALS: u32 = 5;
/// Depths of the trees.
const DEPTHS: [u32; 5] = [4, 8, 16, 32, 64];
/// The depth at which pointer authentication is measured.
const SIGNED_DEPTH: u32 = 64;
/// What a tree does, in the order of the guest's records: floor, work, work with traces by frames, by shadow call stack.
const METHODS: [&str; 4] = ["floor", "none", "frames", "shadow"];

/// What a guest says of one tree.
#[derive(Debug, Clone, Deserialize)]
struct Record {
    method: String,
    n: u64,
    time_ns: u64,
}

/// Properties of `-cpu max` for QEMU's own algorithm and for the architecture's. Since QEMU 10.0 `pauth-impdef=off` leaves the
/// default, which is QEMU's own by then.
fn algorithms(version: (u32, u32, u32)) -> [&'static str; 2] {
    ["pauth-impdef=on", if version >= (10, 0, 0) { "pauth-qarma5=on" } else { "pauth-impdef=off" }]
}

/// The share of what makes `b` into `a`, of all that is above the floor `f`.
fn share(a: f64, b: f64, f: f64) -> Option<f64> {
    (a > f).then(|| 100.0 * ((a - f) - (b - f)) / (a - f))
}

/// Costs of the four trees in ns for a call.
fn costs(guest: &OwnGuest<'_>, launch: &crate::qemu::Launch, log: &str) -> Result<[f64; 4]> {
    let records: Vec<Record> = guest.records(launch, log, "stacktrace", METHODS.len())?;
    let mut costs = [0.0; 4];
    for ((cost, method), record) in costs.iter_mut().zip(METHODS).zip(records) {
        ensure!(record.method == method, "the guest measured `{}` where `{method}` was due", record.method);
        *cost = record.time_ns as f64 / record.n.max(1) as f64;
    }
    Ok(costs)
}

/// Measures and prints; returns the data.
///
/// # Errors
/// Anything that keeps the tables from being complete.
pub fn run(args: &BenchArgs) -> Result<Value> {
    ensure!(
        args.cpu == "max" && args.threads.is_none(),
        "--cpu and --threads are not for `bench stacktrace`: it sets both"
    );
    let guest = OwnGuest::build(args)?;
    let n = args.calls.unwrap_or(CALLS);
    let trials = args.trials.unwrap_or(TRIALS);
    let progress = Progress::new(DEPTHS.len() + 4 * trials as usize);
    let mut by_depth = Vec::new();
    let mut version = (0, 0, 0);
    for depth in DEPTHS {
        let name = format!("depth-{depth}");
        let launch = guest
            .launch(&name, "max", true, format!("load=stacktrace n={n} depth={depth}"))
            .context("depths")?;
        version = launch.version;
        let step = progress.step(&name);
        by_depth.push((depth, costs(&guest, &launch, &name).context(name)?));
        step.done();
    }
    let [quick, architected] = algorithms(version);
    let settings = [("off", quick), ("on", quick), ("off", architected), ("on", architected)];
    let mut launches = Vec::new();
    for (signed, property) in settings {
        let bootargs = format!("load=stacktrace n={n} depth={SIGNED_DEPTH} work=0 pauth={signed}");
        let name = format!("signed-{signed}-{property}");
        launches.push(guest.launch(&name, &format!("max,{property}"), false, bootargs)?);
    }
    let mut by_setting = vec![Vec::new(); settings.len()];
    // In turn, so that the host's other work falls on all alike.
    for trial in 1..=trials {
        for ((launch, (signed, property)), values) in launches.iter().zip(settings).zip(&mut by_setting) {
            let name = format!("signed-{signed}-{property}-{trial}");
            let step = progress.step(&name);
            // Without work, this is the tree alone.
            values.push(costs(&guest, launch, &name).context(name)?[1]);
            step.done();
        }
    }
    drop(progress);
    let samples: Vec<Sample> = by_setting.into_iter().map(Sample::new).collect();
    println!("{}\n{}", depths_text(&by_depth), signed_text(&settings, &samples, trials));
    let depths: Vec<Value> =
        by_depth.iter().map(|(depth, costs)| json!({"depth": depth, "instructions": costs})).collect();
    let signed: Vec<Value> = settings
        .iter()
        .zip(&samples)
        .map(|((on, property), sample)| json!({"pauth": on, "cpu": property, "call_ns": sample.values}))
        .collect();
    Ok(json!({
        "schema": json::SCHEMA,
        "bench": "stacktrace",
        "machine": json::machine(&launches[0]),
        "calls": n,
        "methods": METHODS,
        "depths": depths,
        "signed": signed,
    }))
}

/// The table of depths, in instructions.
fn depths_text(rows: &[(u32, [f64; 4])]) -> String {
    let mut table = Table::new([
        "depth",
        "floor f",
        "work b",
        "+ frames a",
        "+ shadow a",
        "share, frames",
        "share, shadow",
    ]);
    for (depth, costs) in rows {
        let [floor, none, frames, shadow] = *costs;
        let mut cells = vec![depth.to_string()];
        cells.extend(costs.map(|cost| format!("{cost:.1}")));
        cells.extend([frames, shadow].map(|with| percent(share(with, none, floor))));
        table.row(cells);
    }
    format!(
        "{table}\ninstructions for a call of the tree; share = ((a - f) - (b - f)) / (a - f). Published, other hardware and load: 9.03 % by frames, \
         4.19 % by shadow call stack; with console output 1.64 % and 0.62 %\n"
    )
}

/// The table of pointer authentication, by the emulator's clock.
fn signed_text(settings: &[(&str, &str)], samples: &[Sample], trials: u32) -> String {
    let mut table = Table::new(["signed", "-cpu max,", "ns a call (emulated)", "against unsigned"]).left(2);
    for ((signed, property), sample) in settings.iter().zip(samples) {
        let base = settings.iter().position(|setting| *setting == ("off", *property)).map(|at| &samples[at]);
        let error = sample.standard_error().map_or_else(String::new, |error| format!(" ± {error:.0}"));
        let against = base.filter(|_| *signed == "on").map(|base| percent(sample.difference(base)));
        table.row([
            (*signed).to_owned(),
            (*property).to_owned(),
            format!("{:.0}{error}", sample.mean()),
            against.unwrap_or_default(),
        ]);
    }
    format!(
        "{table}\ndepth {SIGNED_DEPTH}, no other work, no traces; {trials} trial(s), in turn, by the emulator's clock"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published times of E2, in seconds.
    #[test]
    fn the_share_is_the_published_formulas() {
        let (floor, heavy, without, shadow) = (0.523245952, 1.994692366, 1.861823869, 1.920300410);
        let near = |share: Option<f64>, right: f64| share.is_some_and(|share| (share - right).abs() < 0.005);
        assert!(near(share(heavy, without, floor), 9.03));
        assert!(near(share(shadow, without, floor), 4.19));
        assert_eq!(share(1.0, 1.0, 1.0), None);
    }

    #[test]
    fn signed_rows_are_against_the_unsigned_of_the_same_setting() {
        let [quick, architected] = algorithms((10, 0, 2));
        assert_ne!(algorithms((9, 2, 0))[1], architected);
        let settings = [("off", quick), ("on", quick), ("off", architected), ("on", architected)];
        let samples = [100.0, 150.0, 100.0, 900.0].map(|value| Sample::new([value]));
        let table = signed_text(&settings, &samples, 1);
        assert!(table.contains("+50.00 %") && table.contains("+800.00 %"), "{table}");
    }
}
