//! Policies, victims and batches compared, with the offline optimum beside them.
//!
//! `VMID_SLICES=100000 cargo test -p odometer --release vmid_comparison -- --nocapture` prints the tables of `docs/vmid.md`.

use super::simulator::{Counts, Load, Shape, optimum, run, with};
use crate::vmid::{Config, Flush, Policy, Victim};

/// Setup 2 of the experiment.
const SETUP_2: Shape =
    Shape { cpus: 8, vms: 40, vcpus: 2, bits: 4, load: Load::Cyclic, slices: 100_000, one_queue: false };

fn reclaim(victim: Victim) -> Config {
    Config { victim, ..Config::from(Policy::Reclaim) }
}

fn line(name: &str, counts: &Counts, merged: &Counts) {
    let n = |count| counts.per_mille(count);
    println!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} % | {} | 0.{:03} |",
        n(counts.slow),
        n(counts.allocations),
        n(counts.full),
        n(counts.targeted),
        n(counts.barriers),
        n(counts.local),
        n(counts.kicks),
        n(counts.lost_back),
        n(counts.lost_running),
        counts.lost() * 100 / merged.lost().max(1),
        counts.longest_wait,
        counts.fairness.min(999),
    );
}

/// A table of everything for one shape.
fn table(shape: &Shape, all: bool) {
    let Shape { cpus, vms, vcpus, bits, load, slices, one_queue } = *shape;
    let queues = if one_queue { "one queue" } else { "a queue for each CPU" };
    println!(
        "\n{load:?}, {vms} VMs x {vcpus} on {cpus} CPUs, {bits} bits, {queues}, {slices} slices, for each 1000:\n"
    );
    println!(
        "| policy | slow | VMIDs given | full | targeted | barriers | local | kicks | lost, back | lost, running | \
         of `merged` | longest wait | Jain |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let (merged, trace) = run(shape, Policy::Merged.into(), 0);
    let print = |name: &str, config: Config, affinity| line(name, &run(shape, config, affinity).0, &merged);
    for policy in [Policy::Global, Policy::V3NoClear, Policy::V3ClearZero] {
        print(policy.name(), policy.into(), 0);
    }
    line("merged", &merged, &merged);
    for policy in [Policy::Clear, Policy::TriState] {
        print(policy.name(), policy.into(), 0);
        if all {
            print(&format!("{policy}, local flush"), with(policy, Flush::Local), 0);
        }
    }
    for &victim in Victim::ALL {
        print(&format!("reclaim, {victim}"), reclaim(victim), 0);
    }
    if all {
        for batch in [1, 4, 7] {
            let config = Config { batch, ..with(Policy::Reclaim, Flush::Broadcast) };
            print(&format!("reclaim, broadcast, {batch} at a time"), config, 0);
        }
        print("reclaim, 4 at a time", Config { batch: 4, ..Config::from(Policy::Reclaim) }, 0);
    }
    print("clear, affinity 4", Policy::Clear.into(), 4);
    for affinity in [1, 2, 4, 8, 16] {
        print(&format!("reclaim, affinity {affinity}"), Policy::Reclaim.into(), affinity);
    }
    line("offline optimum (MIN)", &optimum(shape, &trace), &merged);
}

/// Every configuration goes through every load, for a short time; for as many slices as `VMID_SLICES` says, the tables are worth printing.
#[test]
fn vmid_comparison() {
    let slices = std::env::var("VMID_SLICES").map_or(500, |text| text.parse().unwrap());
    table(&Shape { one_queue: true, slices, ..SETUP_2 }, true);
    for load in Load::ALL {
        table(&Shape { load, slices, ..SETUP_2 }, true);
    }
    for (cpus, vms, bits) in [(2, 20, 4), (8, 64, 5), (16, 128, 6), (32, 256, 7)] {
        for load in [Load::Uniform, Load::Skewed, Load::Bursty] {
            table(&Shape { cpus, vms, bits, load, slices: slices / 2, ..SETUP_2 }, false);
        }
    }
}

/// What was set as the target for setup 2.
#[test]
fn reclaim_never_flushes_all_and_never_touches_what_runs() {
    for load in Load::ALL {
        let shape = Shape { load, slices: 20_000, ..SETUP_2 };
        let merged = run(&shape, Policy::Merged.into(), 0).0;
        let ours = run(&shape, Policy::Reclaim.into(), 0).0;
        assert_eq!((ours.full, ours.lost_running, ours.barriers, ours.kicks), (0, 0, 0, 0), "{load:?}");
        assert!(ours.lost() * 100 <= merged.lost() * 60, "{load:?}: {ours:?} {merged:?}");
    }
}

#[test]
fn with_affinity_it_loses_less_again_and_nobody_starves() {
    let shape = Shape { slices: 20_000, ..SETUP_2 };
    let merged = run(&shape, Policy::Merged.into(), 0).0;
    let ours = run(&shape, Policy::Reclaim.into(), 4).0;
    assert!(ours.lost() * 100 <= merged.lost() * 40, "{ours:?} {merged:?}");
    assert!(ours.longest_wait <= 5 * merged.longest_wait, "{ours:?} {merged:?}");
}

/// The counts that had been predicted for this schedule by another simulator.
#[test]
fn the_simulator_agrees_with_what_was_predicted() {
    let near = |counts: Counts, slow: u64, lost: u64| {
        let (n_slow, n_lost) = (counts.per_mille(counts.slow), counts.per_mille(counts.lost()));
        assert!(n_slow.abs_diff(slow) <= 15 && n_lost.abs_diff(lost) <= 40, "{n_slow} {n_lost} {counts:?}");
    };
    let shape = Shape { one_queue: true, ..SETUP_2 };
    let (merged, trace) = run(&shape, Policy::Merged.into(), 0);
    near(merged, 930, 1682);
    near(run(&shape, Policy::V3NoClear.into(), 0).0, 967, 1768);
    near(optimum(&shape, &trace), 526, 922);
}
