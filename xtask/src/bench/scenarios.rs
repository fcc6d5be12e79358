//! `cargo xtask bench scenario`: any load or boot, as often as is asked for; several against each other.

use anyhow::{Context, Result, ensure};

use super::harness::{About, count, time};
use super::rows::{self, Row};
use super::{BenchArgs, Threads};
use crate::qemu::capture::Captured;
use crate::report::records::Report;
use crate::results::{Results, ShareOf, Variant};
use crate::scenario::Scenario;
use crate::{image, run};

/// Trials where none are asked for.
const TRIALS: u32 = 5;

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    args.refuse_shape("the scenario says all that")?;
    ensure!(args.memory.is_none(), "--memory is not for `bench scenario`: the scenario says it");
    let programs = image::build()?;
    let guest = || run::read_kernel(&programs.guest.image);
    let mut rows: Vec<Row> = Vec::new();
    for file in &args.scenarios {
        let name = file.display().to_string();
        ensure!(
            rows.iter().all(|row| row.variant.name != name),
            "--scenario {name}: is given twice; to compare it with itself give --a and --b"
        );
        let mut scenario = Scenario::load(file, &guest)?;
        adapt(&mut scenario, args);
        scenario.check(&name)?;
        let base = rows.first().map(|row| row.variant.name.clone());
        let variant = Variant { name, group: "scenario".into(), base, ..Variant::default() };
        rows.push(Row { variant, scenario });
    }
    let deterministic = rows.iter().all(|row| row.scenario.machine.deterministic);
    let shares = match (args.share, rows.as_slice()) {
        (true, [floor, with, without]) if args.a.is_empty() && args.b.is_empty() => vec![ShareOf {
            label: "what the third is without".into(),
            floor: floor.variant.name.clone(),
            with: with.variant.name.clone(),
            without: without.variant.name.clone(),
            published: None,
        }],
        (true, _) => anyhow::bail!("--share: can't be given with --a and --b"),
        (false, _) => Vec::new(),
    };
    let time = |key: &str, what: &str| time(deterministic, key, what);
    let about = About {
        bench: "scenario",
        question: "How long does a scenario take?",
        quantities: vec![
            time("elapsed", "from the hypervisor's start to its end"),
            count("exits", "exits"),
            time("load", "what guests say of one run of their loads"),
        ],
        variants: Vec::new(),
        shares,
        notes: Vec::new(),
    };
    rows::measure(args, about, &programs, &rows, TRIALS, |_, captured| values(captured))
}

/// Lets the command line have its way with a scenario.
fn adapt(scenario: &mut Scenario, args: &BenchArgs) {
    let machine = &mut scenario.machine;
    if let Some(threads) = args.threads {
        machine.multi_threaded = threads == Threads::Multi;
        machine.deterministic = false;
    }
    machine.deterministic |= args.deterministic;
    machine.qemu.extend(args.qemu.iter().cloned());
}

/// What a run measured, in milliseconds.
fn values(captured: &Captured) -> Result<Vec<(&'static str, f64)>> {
    let report = Report::read(&captured.reports)?;
    let end =
        report.end.as_ref().context("the hypervisor's report has no `end` record: the run was cut off")?;
    ensure!(end.failed == 0, "{} VMs were stopped by the hypervisor: {}", end.failed, end.reason);
    let mut times = Vec::new();
    for (vm, record) in &captured.guests {
        ensure!(
            record["ok"] != false && record["kind"] != "error",
            "the guest {vm} reports a failure: {record}"
        );
        times.extend(record["time_ns"].as_f64());
    }
    let mut values = vec![("elapsed", end.elapsed_ns as f64 / 1e6), ("exits", report.exits().total as f64)];
    if !times.is_empty() {
        values.push(("load", times.iter().sum::<f64>() / times.len() as f64 / 1e6));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured_by_its_report_and_its_guests() {
        let log = "a| @guest {\"kind\":\"idle\",\"time_ns\":2000000,\"ok\":true}\na| @guest {\"kind\":\"idle\",\"time_ns\":4000000}\n\
                   @odometer {\"schema\":1,\"kind\":\"vm\",\"vm\":\"a\",\"exits\":{\"total\":7}}\n\
                   @odometer {\"schema\":1,\"kind\":\"end\",\"elapsed_ns\":5000000,\"vms\":1,\"reason\":\"all\"}";
        let found = values(&Captured::from_log(log).unwrap()).unwrap();
        assert_eq!(found, [("elapsed", 5.0), ("exits", 7.0), ("load", 3.0)]);
        let cut = log.lines().take(3).collect::<Vec<_>>().join("\n");
        assert!(values(&Captured::from_log(&cut).unwrap()).unwrap_err().to_string().contains("cut off"));
        let failed = log.replace("true", "false");
        assert!(
            values(&Captured::from_log(&failed).unwrap()).unwrap_err().to_string().contains("the guest a")
        );
    }
}
