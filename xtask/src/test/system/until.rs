//! `vm.until`: a VM ends when its guest has said what was waited for, and no other does.

use anyhow::{Result, ensure};

use super::case::{Case, Outcome};
use super::cases::{MESSAGING, scenario, vm};
use super::expect::{adds_up, all_ended, guests_are_content};

/// A guest that would pass messages for hours, two that do so once, and what the first says when it has done so twice.
pub fn case() -> Case {
    let endless = MESSAGING.replace("runs=1", "runs=10000");
    let vms = [
        vm("endless", 2, &endless, ""),
        vm("once", 2, MESSAGING, ""),
        vm("quiet", 1, "load=idle seconds=0.01 console=reduced", ""),
    ];
    Case::scenario("until", scenario("cpus = 2", "\"vm.until\" = '\"run\":1,'", &vms))
        .expect(|outcome| all_ended(outcome, 0))
        .expect(|outcome| guests_are_content(outcome, &["endless"]))
        .expect(adds_up)
        .expect(ended_in_time)
        .expect(reduced)
        .quick()
}

/// A guest that is to write no more than how it ended does so.
fn reduced(outcome: &Outcome<'_>) -> Result<()> {
    let kinds =
        outcome.captured.guests.iter().filter(|(vm, _)| vm == "quiet").map(|(_, record)| &record["kind"]);
    let kinds: Vec<_> = kinds.collect();
    ensure!(kinds == ["end"], "the guest wrote records {kinds:?}, not its end alone");
    Ok(())
}

/// The first guest had said it, and not much more, when its VM ended.
fn ended_in_time(outcome: &Outcome<'_>) -> Result<()> {
    let runs = outcome
        .captured
        .guests
        .iter()
        .filter(|(vm, record)| vm == "endless" && record["kind"] == "messaging");
    let runs = runs.count();
    ensure!((2..10).contains(&runs), "the guest ran its load {runs} times until its VM ended, not twice");
    Ok(())
}
