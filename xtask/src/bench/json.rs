//! The VMID experiment's data as JSON: the same numbers as the table's.
//!
//! `{schema, bench, setup, machine, rows}`. Where both setups ran, `setup` is the list of both and each row has its
//! setup's name. Counts are means over the trials, rounded; each row's `trials` has the exact numbers of each.

use serde_json::{Map, Value, json};

use super::quantities::{ALLOCATOR, GHOST, Quantity, ticks_are_instructions};
use super::table::{reason, reasons, signs};
use super::trial::Trial;
use super::vmid::{Outcome, Row};
use crate::qemu::Launch;
use crate::report::statistics::Sample;

/// The version of this shape.
pub const SCHEMA: u32 = 1;

/// The data of all setups that ran.
pub fn vmid(outcomes: &[Outcome]) -> Value {
    let one_or_all = |mut values: Vec<Value>| match values.len() {
        1 => values.remove(0),
        _ => Value::Array(values),
    };
    let mut machine = outcomes.first().map_or(Value::Null, |outcome| machine(&outcome.launch));
    machine["version"] = outcomes.first().map_or(Value::Null, |outcome| json!(boot(outcome).version));
    json!({
        "schema": SCHEMA,
        "bench": "vmid",
        "setup": one_or_all(outcomes.iter().map(setup).collect()),
        "machine": machine,
        "rows": outcomes.iter().flat_map(|outcome| outcome.rows.iter().map(|r| row(outcome, r))).collect::<Vec<_>>(),
    })
}

/// What the measurement ran on.
pub fn machine(launch: &Launch) -> Value {
    let mut flags = launch.behaviour();
    flags.extend(launch.machine.qemu.iter().cloned());
    json!({
        "emulated": true,
        "qemu": launch.version_text(),
        "cpu": launch.machine.cpu,
        "deterministic": launch.machine.deterministic,
        "flags": flags,
    })
}

/// What booted in the first trial.
fn boot(outcome: &Outcome) -> crate::report::records::Boot {
    outcome
        .rows
        .first()
        .and_then(|row| row.trials.first())
        .map(|trial| trial.boot.clone())
        .unwrap_or_default()
}

fn setup(outcome: &Outcome) -> Value {
    let setup = &outcome.setup;
    let load = &setup.hackbench;
    let options: Map<String, Value> =
        setup.options.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    json!({
        "name": setup.name,
        "cpus": setup.cpus,
        "vms": setup.vms,
        "vcpus": setup.vcpus,
        "vm_memory_bytes": setup.memory,
        "memory_bytes": outcome.launch.memory,
        "vmid_bits": boot(outcome).vmid_bits,
        "options": options,
        "load": format!("{:?}", setup.load).to_lowercase(),
        "groups": load.groups, "fds": load.fds, "loops": load.loops, "size": load.size, "runs": load.runs,
        "guest": setup.linux.as_ref().map(|linux| &linux.description),
        "bundle": outcome.bundle,
        "signs": signs(outcome).iter().map(|sign| json!({"expected": sign.text, "seen": sign.seen})).collect::<Vec<_>>(),
    })
}

/// A sample's mean, standard error and number of trials.
fn sample(sample: &Sample) -> Value {
    json!({
        "mean": sample.mean(),
        "sem": sample.standard_error(),
        "trials": sample.values.len(),
        "relative_deviation_percent": sample.relative_deviation(),
    })
}

fn row(outcome: &Outcome, row: &Row) -> Value {
    let first = &outcome.rows[0];
    let mean = |of: &dyn Fn(&Trial) -> u64| row.sample(|trial| of(trial) as f64).mean().round() as u64;
    // Sums of rounded numbers, so that they add up.
    let by_reason: Map<String, Value> = reasons(&outcome.rows)
        .iter()
        .map(|name| (name.clone(), json!(mean(&|trial| reason(trial, name)))))
        .collect();
    let exits: u64 = by_reason.values().filter_map(Value::as_u64).sum();
    let mut vmid = quantities(|quantity| mean(&quantity.of));
    vmid["schedule_ins"] = json!(vmid["fast"].as_u64().unwrap_or(0) + vmid["slow"].as_u64().unwrap_or(0));
    let instructions = ticks_are_instructions(outcome.launch.machine.deterministic, boot(outcome).counter_hz)
        .then(|| vmid["slow_ticks"].clone());
    let difference = |of: &dyn Fn(&Trial) -> f64| {
        let (this, base) = (row.sample(of), first.sample(of));
        json!({ "percent": this.difference(&base), "no_difference": this.overlaps(&base) })
    };
    json!({
        "setup": outcome.setup.name,
        "policy": row.policy,
        "time_s": sample(&row.sample(|trial| trial.time_s)),
        "exits": { "total": exits, "by_reason": by_reason },
        "exits_statistics": sample(&row.sample(|trial| trial.exits.total as f64)),
        "exits_per_message": row.sample(|trial| trial.exits.total as f64 / trial.messages.max(1) as f64).mean(),
        "messages": mean(&|trial| trial.messages),
        "elapsed_s": sample(&row.sample(|trial| trial.elapsed_s)),
        "host_cpu_s": sample(&row.sample(|trial| trial.host_cpu_s)),
        "memory": {
            "ram_bytes": mean(&|trial| trial.memory.memory_bytes),
            "resident_bytes": mean(&|trial| trial.memory.resident_bytes),
            "shared_bytes": mean(&|trial| trial.memory.shared_bytes),
            "copied_pages": mean(&|trial| trial.memory.copied_pages),
            "overhead_bytes": mean(&|trial| trial.memory.overhead_bytes),
            "bundle_bytes": outcome.bundle_bytes,
            "common_frames": mean(&|trial| trial.common.frames),
            "common_most_used": mean(&|trial| trial.common.most_used),
            "common_most_users": mean(&|trial| trial.common.most_users),
        },
        "vmid": vmid,
        "allocator_instructions": instructions,
        "vs_first": {
            "time_s": difference(&|trial| trial.time_s),
            "exits": difference(&|trial| trial.exits.total as f64),
        },
        "trials": row.trials.iter().map(trial).collect::<Vec<_>>(),
    })
}

/// What `value` says of each quantity of the allocator and of its ghost.
fn quantities(value: impl Fn(&Quantity) -> u64) -> Map<String, Value> {
    let all = ALLOCATOR.iter().chain(GHOST);
    all.map(|quantity| (quantity.key.into(), json!(value(quantity)))).collect()
}

/// One trial's own numbers.
fn trial(trial: &Trial) -> Value {
    let by_reason: Map<String, Value> =
        trial.exits.by_reason.iter().map(|(name, reason)| (name.clone(), json!(reason.count))).collect();
    let vmid = quantities(|quantity| (quantity.of)(trial));
    json!({
        "time_s": trial.time_s,
        "exits": { "total": trial.exits.total, "by_reason": by_reason },
        "vmid": vmid,
        "elapsed_s": trial.elapsed_s,
        "host_cpu_s": trial.host_cpu_s,
    })
}
