//! What must be on the console after a run: pure functions over its records.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::case::Outcome;
use crate::qemu::capture::Captured;

/// Largest part of a CPU's elapsed time that may be unaccounted for.
const TIME_TOLERANCE: f64 = 0.001;
/// Most memory for a VM of up to two vCPUs beside its RAM, when it starts.
const OVERHEAD_LIMIT: u64 = 64 << 10;

/// The records of one kind, of everything the last one: with `report.period_ms` there are several reports in a run, and
/// only when all has ended does everything have to fit.
fn records<'a>(captured: &'a Captured, kind: &str) -> Vec<&'a Value> {
    let mut last: Vec<&Value> = Vec::new();
    let key = |record: &Value| ["vm_id", "vcpu", "cpu"].map(|key| record[key].as_u64());
    for record in captured.reports.iter().filter(|record| record["kind"] == kind) {
        match last.iter_mut().find(|other| key(other) == key(record)) {
            Some(other) => *other = record,
            None => last.push(record),
        }
    }
    last
}

/// The only record of a kind.
fn only<'a>(captured: &'a Captured, kind: &str) -> Result<&'a Value> {
    let found: Vec<&Value> = captured.reports.iter().filter(|record| record["kind"] == kind).collect();
    ensure!(found.len() == 1, "{} records `{kind}` on the console, not one", found.len());
    Ok(found[0])
}

/// The record of the VMID allocator.
fn allocator(captured: &Captured) -> Result<&Value> {
    records(captured, "vmid").first().copied().context("no record `vmid` on the console")
}

/// A number at a path of keys, such as `exits.total`.
fn number(record: &Value, path: &str) -> Result<u64> {
    let value = path.split('.').fold(record, |value, key| &value[key]);
    let name = |key: &str| record[key].as_str().map(|text| format!(" {text}")).unwrap_or_default();
    value.as_u64().with_context(|| {
        format!(
            "the record `{}`{} has no number `{path}`",
            record["kind"].as_str().unwrap_or("?"),
            name("vm")
        )
    })
}

/// Says which record it is, for messages.
fn title(record: &Value) -> String {
    let kind = record["kind"].as_str().unwrap_or("?");
    let keys = ["vm", "vcpu", "cpu"].iter().filter(|key| !record[**key].is_null());
    keys.fold(kind.to_owned(), |text, key| format!("{text} {key}={}", record[*key]))
}

/// A scenario ran as it should: every guest is content, all ended, and every counter adds up.
///
/// # Errors
/// Something did not.
pub fn runs_well(outcome: &Outcome<'_>) -> Result<()> {
    all_ended(outcome, 0)?;
    guests_are_content(outcome, &[])?;
    adds_up(outcome)
}

/// The run began, started its guests and ended; `failed` of the VMs did not end by themselves.
///
/// # Errors
/// It did not.
pub fn all_ended(outcome: &Outcome<'_>, failed: u64) -> Result<()> {
    let captured = outcome.captured;
    let boot = only(captured, "boot")?;
    let overhead = number(only(captured, "start")?, "vm_overhead_bytes")?;
    let end = only(captured, "end")?;
    ensure!(captured.reports.last() == Some(end), "records come after `end`");
    ensure!(number(end, "failed")? == failed, "{} VMs failed, not {failed}", number(end, "failed")?);
    if let Some(scenario) = outcome.scenario {
        let (vms, cpus) = (number(end, "vms")?, number(boot, "cpus")?);
        ensure!(vms == scenario.vm_count(), "{vms} VMs ran, not {}", scenario.vm_count());
        let small = scenario.vms.iter().all(|vm| vm.vcpus <= 2);
        ensure!(!small || overhead <= OVERHEAD_LIMIT, "a VM starts with {overhead} bytes beside its RAM");
        let expected = u64::from(scenario.machine.cpus);
        ensure!(cpus == expected, "{cpus} CPUs are in use, not {expected}");
        let reported = records(captured, "cpu").len() as u64;
        ensure!(reported == expected, "{reported} CPUs reported, not {expected}");
    }
    Ok(())
}

/// Every VM but those named printed results that are all `ok`, and one `end`.
///
/// # Errors
/// One did not.
pub fn guests_are_content(outcome: &Outcome<'_>, without: &[&str]) -> Result<()> {
    let names: Vec<String> = match outcome.scenario {
        Some(scenario) => scenario.vms.iter().flat_map(|vm| vm.names()).collect(),
        // A guest without a hypervisor has no name.
        None => vec![String::new()],
    };
    for name in names.iter().filter(|name| !without.contains(&name.as_str())) {
        let own = outcome.captured.guests.iter().filter(|(vm, _)| vm == name).map(|(_, record)| record);
        let own: Vec<&Value> = own.collect();
        if let Some(bad) = own.iter().find(|record| record["ok"] == false) {
            bail!("guest {name}: {bad}");
        }
        let ends = own.iter().filter(|record| record["kind"] == "end" && record["ok"] == true).count();
        ensure!(ends == 1, "guest {name} said {ends} times that it ends well, not once");
    }
    Ok(())
}

/// All counters of the report fit together.
///
/// # Errors
/// Two of them don't.
pub fn adds_up(outcome: &Outcome<'_>) -> Result<()> {
    let captured = outcome.captured;
    for kind in ["vcpu", "vm", "cpu"] {
        records(captured, kind).into_iter().try_for_each(reasons_add_up)?;
    }
    for cpu in records(captured, "cpu") {
        time_adds_up(cpu)?;
    }
    for vm in records(captured, "vm") {
        let own = |vcpu: &&Value| vcpu["vm_id"] == vm["vm_id"];
        let vcpus: Vec<&Value> = records(captured, "vcpu").into_iter().filter(own).collect();
        ensure!(vcpus.len() as u64 == number(vm, "vcpus")?, "{}: {} vCPUs reported", title(vm), vcpus.len());
        for path in ["exits.total", "schedule_ins", "migrations", "kicks"] {
            let sum: u64 = vcpus.iter().map(|vcpu| number(vcpu, path)).sum::<Result<u64>>()?;
            ensure!(
                number(vm, path)? == sum,
                "{}: {path} is {}, its vCPUs' {sum}",
                title(vm),
                number(vm, path)?
            );
        }
        memory_came_back(vm)?;
    }
    vmids_add_up(captured)
}

/// Exits by reason sum to the total, and a histogram's buckets to its reason's count.
fn reasons_add_up(record: &Value) -> Result<()> {
    let total = number(record, "exits.total")?;
    let reasons = record["exits"]["by_reason"].as_object();
    let mut sum = 0;
    for (name, reason) in reasons.into_iter().flatten() {
        let count = number(reason, "count").with_context(|| format!("{}: reason {name}", title(record)))?;
        if let Some(buckets) = reason["hist"].as_array() {
            let histogram: u64 = buckets.iter().filter_map(|pair| pair[1].as_u64()).sum();
            ensure!(
                histogram == count,
                "{}: {name} {count} times, {histogram} in the histogram",
                title(record)
            );
        }
        sum += count;
    }
    ensure!(sum == total, "{}: reasons sum to {sum}, the total is {total}", title(record));
    Ok(())
}

/// Guest, hypervisor and idle time of a CPU make up what elapsed.
fn time_adds_up(cpu: &Value) -> Result<()> {
    let elapsed = number(cpu, "elapsed_ns")?;
    let parts = ["time_ns.guest", "time_ns.hypervisor", "time_ns.idle"];
    let sum: u64 = parts.iter().map(|part| number(cpu, part)).sum::<Result<u64>>()?;
    let off = sum.abs_diff(elapsed) as f64;
    ensure!(
        off <= elapsed as f64 * TIME_TOLERANCE,
        "{}: guest, hypervisor and idle time are {sum} ns, {elapsed} ns elapsed",
        title(cpu)
    );
    Ok(())
}

/// A VM that ended gave back at least the RAM that was there for it alone, and took no more beside it than allowed.
fn memory_came_back(vm: &Value) -> Result<()> {
    let (resident, returned) = (number(vm, "resident_bytes")?, number(vm, "frames_returned")?);
    ensure!(resident > 0, "{}: had no memory of its own", title(vm));
    ensure!(returned * 4096 >= resident, "{}: {returned} frames of {resident} bytes came back", title(vm));
    let overhead = number(vm, "overhead_bytes")?;
    // RAM that appears page by page takes a table for each 2 MiB, as it grows.
    let tables = number(vm, "memory_bytes")?.div_ceil(2 << 20) * 4096;
    if number(vm, "vcpus")? <= 2 {
        ensure!(overhead <= OVERHEAD_LIMIT + tables, "{}: takes {overhead} bytes beside its RAM", title(vm));
    }
    Ok(())
}

/// The allocator's counters fit together, and with the vCPUs'.
fn vmids_add_up(captured: &Captured) -> Result<()> {
    let vmid = allocator(captured)?;
    let get = |key: &str| number(vmid, key);
    let (ins, fast, slow) = (get("schedule_ins")?, get("fast")?, get("slow")?);
    ensure!(fast + slow == ins, "VMIDs: fast {fast} and slow {slow} are not {ins} schedule-ins");
    if let Some(warm) = vmid["warm"].as_u64() {
        let cold = get("cold")?;
        ensure!(warm + cold == ins, "VMIDs: warm {warm} and cold {cold} are not {ins} schedule-ins");
    }
    let (reserved, allocations) = (get("reserved")?, get("allocations")?);
    ensure!(
        reserved + allocations <= slow,
        "VMIDs: reserved {reserved} and allocations {allocations} are more than {slow} slow ones"
    );
    let broadcasts = vmid["flush"] != "local";
    ensure!(
        !broadcasts || get("rollovers")? <= get("tlbi_broadcast")?,
        "VMIDs: a rollover without a broadcast invalidation"
    );
    let vcpus: u64 = records(captured, "vcpu")
        .into_iter()
        .map(|vcpu| number(vcpu, "schedule_ins"))
        .sum::<Result<u64>>()?;
    // A CPU that is called out of a guest schedules its VM in once more.
    let most = vcpus + vmid["kicks"].as_u64().unwrap_or(0);
    ensure!(
        (vcpus..=most).contains(&ins),
        "vCPUs were scheduled in {vcpus} times, the allocator was asked {ins} times"
    );
    Ok(())
}

/// How often a reason occurred, over all CPUs.
fn occurrences(captured: &Captured, reason: &str) -> u64 {
    records(captured, "cpu")
        .into_iter()
        .filter_map(|cpu| cpu["exits"]["by_reason"][reason]["count"].as_u64())
        .sum()
}

/// A reason occurred at least `least` times.
pub fn occurs(reason: &'static str, least: u64) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let count = occurrences(outcome.captured, reason);
        ensure!(count >= least, "{count} exits `{reason}`, expected are {least} or more");
        Ok(())
    }
}

/// Exits that a guest's own scheduling causes, by reason: idle, waking others, ticks.
const SCHEDULING: [&str; 4] = ["sgi", "wfi", "irq_kick", "irq_timer"];

/// QEMU's own log has as many exceptions taken to EL2 as Odometer has counted exits; they are at most `most`, of which `emulation`
/// at most have other reasons than the guest's own scheduling.
pub fn exits_are_what_qemu_logs(most: u64, emulation: u64) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let cpus = records(outcome.captured, "cpu");
        let counted = cpus.into_iter().map(|cpu| number(cpu, "exits.total")).sum::<Result<u64>>()?;
        let logged = outcome.taken_to_el2.context("QEMU's exceptions were not logged")?;
        ensure!(counted == logged, "{counted} exits are counted, but QEMU logged {logged} exceptions to EL2");
        ensure!(counted <= most, "{counted} exits, at most {most} are expected");
        let scheduling = SCHEDULING.iter().map(|reason| occurrences(outcome.captured, reason)).sum::<u64>();
        let others = counted.saturating_sub(scheduling);
        ensure!(
            others <= emulation,
            "{others} exits are not by {SCHEDULING:?}, at most {emulation} are expected"
        );
        Ok(())
    }
}

/// A number of the record `kind` is within bounds.
pub fn within(
    kind: &'static str,
    path: &'static str,
    least: u64,
    most: u64,
) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let record = records(outcome.captured, kind).first().copied();
        let value = number(record.with_context(|| format!("no record `{kind}` on the console"))?, path)?;
        ensure!((least..=most).contains(&value), "{kind}: {path} is {value}, not within {least} to {most}");
        Ok(())
    }
}

/// There were several reports, and no counter of a CPU went down from one to the next.
///
/// # Errors
/// There was one, or one did.
pub fn reports_again(outcome: &Outcome<'_>) -> Result<()> {
    let all =
        |kind: &'static str| outcome.captured.reports.iter().filter(move |record| record["kind"] == kind);
    ensure!(all("vmid").count() >= 2, "one report, not several");
    for last in records(outcome.captured, "cpu") {
        let own: Vec<&Value> = all("cpu").filter(|cpu| cpu["cpu"] == last["cpu"]).collect();
        for pair in own.windows(2) {
            for path in ["exits.total", "schedule_ins", "elapsed_ns", "time_ns.guest", "time_ns.idle"] {
                let (before, after) = (number(pair[0], path)?, number(pair[1], path)?);
                ensure!(before <= after, "{}: {path} went from {before} to {after}", title(last));
            }
        }
    }
    Ok(())
}

/// Pinned vCPUs never moved.
pub fn stays_in_place(outcome: &Outcome<'_>) -> Result<()> {
    for vcpu in records(outcome.captured, "vcpu") {
        ensure!(
            number(vcpu, "migrations")? == 0,
            "{}: moved {} times",
            title(vcpu),
            number(vcpu, "migrations")?
        );
    }
    Ok(())
}

/// Every CPU ran guests.
pub fn all_cpus_work(outcome: &Outcome<'_>) -> Result<()> {
    for cpu in records(outcome.captured, "cpu") {
        ensure!(number(cpu, "time_ns.guest")? > 0, "{}: ran no guest", title(cpu));
    }
    Ok(())
}

/// A VM of this name failed, and its memory came back.
pub fn vm_failed(name: &'static str) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let vm = records(outcome.captured, "vm").into_iter().find(|vm| vm["vm"] == name);
        let vm = vm.with_context(|| format!("no record of the VM {name}"))?;
        ensure!(vm["state"] == "failed", "the VM {name} is {}, not \"failed\"", vm["state"]);
        Ok(())
    }
}

/// The hypervisor faulted, and said where: registers are of EL2, and there is a backtrace.
///
/// # Errors
/// It did not.
pub fn hypervisor_faults(outcome: &Outcome<'_>) -> Result<()> {
    let fault = only(outcome.captured, "fault")?;
    ensure!(fault["el"] == 2, "the fault is of EL{}, not of EL2", fault["el"]);
    let trace = fault["backtrace"].as_array().map_or(0, Vec::len);
    ensure!(trace > 0, "the fault's record has no backtrace");
    Ok(())
}

/// A line of the console has all these words (case doesn't matter).
pub fn says(words: &'static [&'static str]) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let has = |line: &String| {
            let line = line.to_lowercase();
            words.iter().all(|word| line.contains(&word.to_lowercase()))
        };
        ensure!(outcome.captured.lines.iter().any(has), "no line on the console has the words {words:?}");
        Ok(())
    }
}

/// Not one guest was started.
pub fn starts_nothing(outcome: &Outcome<'_>) -> Result<()> {
    ensure!(!outcome.captured.has("start"), "guests were started all the same");
    Ok(())
}

#[cfg(test)]
#[path = "expect_tests.rs"]
mod tests;
