//! The VMID experiment's table: the published columns first, then every counter with its difference.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::quantities::{ALLOCATOR, GHOST, ticks_are_instructions};
use super::trial::Trial;
use super::vmid::{Outcome, Row};
use crate::fit::short_hash;
use crate::report::statistics::Sample;
use crate::report::table::{Table, grouped, verdict, with_error};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The table of one setup, with what ran.
pub fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Setup {}: {}\n", outcome.setup.name, outcome.setup.describe());
    let _ = writeln!(text, "{}", main_table(&outcome.rows));
    let _ = writeln!(text, "{}", counters(outcome));
    let _ = writeln!(text, "{}", memory(outcome));
    for sign in signs(outcome) {
        let _ =
            writeln!(text, "{} {}", if sign.seen { "as expected:" } else { "NOT AS EXPECTED:" }, sign.text);
    }
    text + &what_ran(outcome)
}

/// Time and exits, with differences from the first row.
fn main_table(rows: &[Row]) -> Table {
    let head = [
        "policy",
        "time s (emulated)",
        "rel. dev.",
        "exits",
        "rel. dev.",
        "exits/message",
        "time vs first",
        "exits vs first",
        "host CPU s",
    ];
    let mut table = Table::new(head);
    let time = |row: &Row| row.sample(|trial| trial.time_s);
    let exits = |row: &Row| row.sample(|trial| trial.exits.total as f64);
    for (index, row) in rows.iter().enumerate() {
        let against = |of: &dyn Fn(&Row) -> Sample| match index {
            0 => String::new(),
            _ => verdict(&of(row), &of(&rows[0])),
        };
        table.row([
            row.name.clone(),
            with_error(&time(row), 4),
            spread(&time(row)),
            with_error(&exits(row), 0),
            spread(&exits(row)),
            format!(
                "{:.3}",
                row.sample(|trial| trial.exits.total as f64 / trial.messages.max(1) as f64).mean()
            ),
            against(&time),
            against(&exits),
            with_error(&row.sample(|trial| trial.host_cpu_s), 1),
        ]);
    }
    table
}

/// Every counter of the allocator and every reason for exits, a policy in each column.
fn counters(outcome: &Outcome) -> Table {
    let rows = &outcome.rows;
    let mut head = vec!["mean of each trial".to_string()];
    for (index, row) in rows.iter().enumerate() {
        head.push(row.name.clone());
        if index > 0 {
            head.push("vs first".into());
        }
    }
    let mut table = Table::new(head);
    let mut line = |label: String, of: &dyn Fn(&Trial) -> u64| {
        let mut cells = vec![label];
        let first = rows[0].sample(|trial| of(trial) as f64);
        for (index, row) in rows.iter().enumerate() {
            let sample = row.sample(|trial| of(trial) as f64);
            cells.push(grouped(sample.mean()));
            if index > 0 {
                cells.push(verdict(&sample, &first));
            }
        }
        table.row(cells);
    };
    let instructions = rows[0].trials.first().is_some_and(|trial| {
        ticks_are_instructions(outcome.launch.machine.deterministic, trial.boot.counter_hz)
    });
    for quantity in ALLOCATOR {
        let label = match quantity.key {
            "slow_ticks" if instructions => "instructions in the allocator",
            _ => quantity.label,
        };
        line(label.into(), &quantity.of);
    }
    if rows.iter().flat_map(|row| &row.trials).any(|trial| trial.vmid.cold > 0) {
        for quantity in GHOST {
            line(quantity.label.into(), &quantity.of);
        }
    }
    line("exits".into(), &|trial| trial.exits.total);
    for name in reasons(rows) {
        line(format!("  {name}"), &|trial| reason(trial, &name));
    }
    table
}

/// What the VMs' memory took, and what it would have taken with images of its own and all of its RAM for each.
fn memory(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        "MiB, mean of each trial",
        "VMs' RAM",
        "touched",
        "private",
        "shared",
        "copied from images",
        "common, most",
        "in frames",
        "images",
        "tables etc.",
        "taken in all",
        "saved",
    ]);
    for row in &outcome.rows {
        let mean = |of: &dyn Fn(&Trial) -> u64| row.sample(|trial| of(trial) as f64).mean();
        let ram = mean(&|t| t.memory.memory_bytes);
        let private = mean(&|t| t.memory.resident_bytes);
        let tables = mean(&|t| t.memory.overhead_bytes);
        let images = outcome.bundle_bytes as f64;
        let taken = private + tables + images + mean(&|t| t.common.frames * PAGE);
        let saved = ram + tables + images - taken;
        let mib = |bytes: f64| grouped(bytes / f64::from(1 << 20));
        table.row([
            row.name.clone(),
            mib(ram),
            mib(mean(&|t| t.memory.resident_bytes + t.memory.shared_bytes)),
            mib(private),
            mib(mean(&|t| t.memory.shared_bytes)),
            mib(mean(&|t| t.memory.copied_pages * PAGE)),
            mib(mean(&|t| t.common.most_users * PAGE)),
            mib(mean(&|t| t.common.most_used * PAGE)),
            mib(images),
            mib(tables),
            mib(taken),
            format!("{} ({:.0} %)", mib(saved), 100.0 * saved / ram.max(1.0)),
        ]);
    }
    table
}

/// The reasons that occurred in any trial.
pub fn reasons(rows: &[Row]) -> BTreeSet<String> {
    let trials = rows.iter().flat_map(|row| &row.trials);
    trials.flat_map(|trial| trial.exits.by_reason.keys().cloned()).collect()
}

/// Exits of one reason in a trial.
pub fn reason(trial: &Trial, name: &str) -> u64 {
    trial.exits.by_reason.get(name).map_or(0, |reason| reason.count)
}

/// The relative deviation.
fn spread(sample: &Sample) -> String {
    sample.relative_deviation().map_or("-".into(), |deviation| format!("{deviation:.2} %"))
}

/// Something that the experiment is expected to show.
pub struct Sign {
    /// What.
    pub text: String,
    /// Whether it did.
    pub seen: bool,
}

/// The signs that the published experiment leads to expect, where this setup and these policies can show them.
pub fn signs(outcome: &Outcome) -> Vec<Sign> {
    let row = |policy: &str| outcome.rows.iter().find(|row| row.policy == policy);
    let mean = |row: &Row, of: fn(&Trial) -> u64| row.sample(|trial| of(trial) as f64).mean();
    let mut signs = Vec::new();
    match outcome.setup.name {
        "1" => {
            for found in &outcome.rows {
                let (slow, all) = (mean(found, |t| t.vmid.slow), mean(found, |t| t.vmid.schedule_ins));
                let cleared = found.policy == "v3-clear-zero";
                // Each VM has to be given its first VMID, and its other vCPUs may come by meanwhile.
                let (few, many) = (slow <= 2.0 * f64::from(outcome.setup.vms), slow == all);
                let what = if cleared { "every schedule-in takes" } else { "few schedule-ins take" };
                signs.push(Sign {
                    text: format!(
                        "{}: {what} the slow path ({} of {})",
                        found.policy,
                        grouped(slow),
                        grouped(all)
                    ),
                    seen: if cleared { many } else { few },
                });
            }
            let rollovers: f64 = outcome.rows.iter().map(|found| mean(found, |t| t.vmid.rollovers)).sum();
            signs.push(Sign { text: "no rollover anywhere".into(), seen: rollovers == 0.0 });
        }
        "2" => {
            if let (Some(kept), Some(cleared)) = (row("v3-no-clear"), row("clear")) {
                let (kept, cleared) = (mean(kept, |t| t.vmid.rollovers), mean(cleared, |t| t.vmid.rollovers));
                signs.push(Sign {
                    text: format!(
                        "more rollovers without the clear ({}) than with it ({})",
                        grouped(kept),
                        grouped(cleared)
                    ),
                    seen: kept > cleared,
                });
            }
            let rollovers = |found: &&Row| mean(found, |t| t.vmid.rollovers);
            let (reclaims, rolls_over): (Vec<&Row>, Vec<&Row>) =
                outcome.rows.iter().partition(|found| found.policy == "reclaim");
            if let Some(least) = rolls_over.iter().map(rollovers).reduce(f64::min) {
                signs.push(Sign {
                    text: "rollovers by the hundred where there are generations".into(),
                    seen: least >= 100.0,
                });
            }
            if let Some(most) = reclaims.iter().map(rollovers).reduce(f64::max) {
                signs.push(Sign { text: "no rollover with reclaim".into(), seen: most == 0.0 });
            }
        }
        _ => {}
    }
    signs
}

/// What ran, so that the table can be trusted and repeated.
fn what_ran(outcome: &Outcome) -> String {
    let launch = &outcome.launch;
    let boot = outcome.rows[0].trials.first().map(|trial| trial.boot.clone()).unwrap_or_default();
    let trials = outcome.rows[0].trials.len();
    let mut flags = launch.behaviour();
    flags.extend(launch.machine.qemu.iter().cloned());
    format!(
        "\nodometer {}, VMIDs of {} bits, slices of {} us; QEMU {} (emulated), CPU model {}\n\
         flags: {}, {} MiB; bundle {}; {trials} trial{}; times and counts: mean ± standard error; \"no difference\": the \
         95 % intervals overlap\n",
        boot.version,
        boot.vmid_bits,
        boot.slice_us,
        launch.version_text(),
        launch.machine.cpu,
        flags.join(" "),
        launch.memory >> 20,
        short_hash(&outcome.bundle),
        if trials == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
