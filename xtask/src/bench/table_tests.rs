//! The whole way from a recorded console to the table, and what is refused on it.

use super::*;
use crate::bench::setups::Setup;
use crate::bench::trial::measured;
use crate::bench::vmid::outcome_of;
use crate::cli::{Cli, Command};
use crate::qemu::capture::Captured;

/// A small setup.
fn setup() -> Setup {
    use clap::Parser;
    let line = "xtask bench --setup 2 --cpus 1 --vms 2 --fds 1 --loops 10 --runs 1";
    let Command::Bench(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!() };
    Setup::wanted(&args).unwrap().remove(0)
}

/// What a run of that setup prints: two guests, one run each.
fn log(time_ns: u64, hvc: u64, slow: u64, rollovers: u64) -> String {
    let mut log = String::from("odometer: starting\n");
    log += r#"@odometer {"schema":1,"kind":"boot","version":"0.1.0","counter_hz":1000000000,"vmid_bits":4}"#;
    for vm in ["vm-0", "vm-1"] {
        log += &format!(
            "\n{vm}| @guest {{\"schema\":1,\"kind\":\"messaging\",\"run\":0,\"messages\":10,\"time_ns\":{time_ns},\"ok\":true}}\
             \n{vm}| @guest {{\"schema\":1,\"kind\":\"end\",\"ok\":true}}\n"
        );
        log += &format!(
            r#"@odometer {{"schema":1,"kind":"vm","vm":"{vm}","exits":{{"total":{},"by_reason":{{"hvc":{{"count":{hvc}}},"wfi":{{"count":5}}}}}}}}"#,
            hvc + 5
        );
    }
    log += &format!(
        "\n@odometer {{\"schema\":1,\"kind\":\"vmid\",\"schedule_ins\":1000,\"fast\":{},\"slow\":{slow},\
         \"rollovers\":{rollovers},\"slow_ticks\":7}}\n",
        1000 - slow
    );
    log + r#"@odometer {"schema":1,"kind":"end","elapsed_ns":5000000000,"vms":2,"reason":"all VMs have ended"}"#
}

fn trial(log: &str) -> anyhow::Result<Trial> {
    measured(&Captured::from_log(log)?, &setup())
}

fn outcome() -> Outcome {
    let row = |policy: &str, logs: [String; 2]| Row {
        name: policy.into(),
        policy: policy.into(),
        trials: logs.iter().map(|log| trial(log).unwrap()).collect(),
    };
    outcome_of(
        setup(),
        vec![
            row("v3-no-clear", [log(2_000_000_000, 95, 300, 220), log(2_100_000_000, 95, 310, 230)]),
            row("v3-clear-zero", [log(3_000_000_000, 115, 1000, 200), log(3_100_000_000, 115, 1000, 201)]),
            row("clear", [log(2_050_000_000, 95, 250, 200), log(2_060_000_000, 95, 251, 202)]),
        ],
    )
}

#[test]
fn a_recorded_console_gives_a_trial() {
    let trial = trial(&log(2_000_000_000, 95, 300, 220)).unwrap();
    assert_eq!((trial.time_s, trial.messages, trial.exits.total), (2.0, 20, 200));
    assert_eq!((trial.vmid.slow, trial.elapsed_s), (300, 5.0));
}

#[test]
fn a_trial_that_is_not_whole_is_refused() {
    let good = log(1, 1, 1, 1);
    let error = |log: &str| format!("{:#}", trial(log).unwrap_err());
    assert!(
        error(&good.replace("\"kind\":\"end\",\"elapsed", "\"kind\":\"x\",\"elapsed")).contains("cut off")
    );
    assert!(error(&good.replacen("\"ok\":true", "\"ok\":false", 1)).contains("vm-0 reports a failure"));
    assert!(
        error(&good.replacen("\"kind\":\"end\",\"ok\"", "\"kind\":\"x\",\"ok\"", 1))
            .contains("1 of 2 guests")
    );
    assert!(
        error(&good.replacen("\"kind\":\"messaging\"", "\"kind\":\"x\"", 1)).contains("1 runs of hackbench")
    );
    assert!(error(&good.replacen("\"messages\":10", "\"messages\":9", 1)).contains("19 messages"));
    assert!(
        error(&good.replace("\"vms\":2,\"reason", "\"vms\":2,\"failed\":1,\"reason"))
            .contains("were stopped")
    );
    assert!(error(&good.replacen("\"total\":6", "\"total\":7", 1)).contains("does not add up"));
    let lost = "vm-0| @guest {\"schema\":1,\"kind\":\"error\",\"message\":\"no memory\"}\n";
    assert!(error(&good.replacen("vm-0| ", &format!("{lost}vm-0| "), 1)).contains("no memory"));
}

#[test]
fn the_table_has_every_column_and_what_ran() {
    let text = text(&outcome());
    for part in [
        "time s (emulated)",
        "2.0500 ± 0.0500",
        "+48.78 %",
        "+20.00 %",
        "no difference (+0.24 %)",
        "10.000",
        "forced exits (kicks)",
        "reserved hits",
        "broadcast barriers",
        "counter ticks in the allocator",
        "  hvc",
        "as expected: more rollovers without the clear (225) than with it (201)",
        "QEMU 10.0.2 (emulated), CPU model max",
        "-accel tcg,thread=single",
        "bundle 0123456789ab; 2 trials",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
}
