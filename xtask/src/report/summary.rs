//! The report of one run as a person reads it: a line for each VM, the commonest exits, the allocator.

use std::fmt::Write;

use super::records::{Exits, Report};
use super::table::{Table, grouped};

/// VMs beyond this number are summed in one line.
const SHOWN_VMS: usize = 16;
/// Reasons shown.
const SHOWN_REASONS: usize = 12;

/// The summary; empty for a run that reported nothing.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    if report.vms.is_empty() {
        return text;
    }
    let mut table =
        Table::new(["VM", "state", "guest ms", "hypervisor ms", "ready ms", "schedule-ins", "exits"]);
    for (name, vm) in report.vms.iter().take(SHOWN_VMS) {
        let time = &vm.time_ns;
        let milliseconds = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
        table.row([
            name.clone(),
            vm.state.clone(),
            milliseconds(time.guest),
            milliseconds(time.hypervisor),
            milliseconds(time.ready),
            grouped(vm.schedule_ins as f64),
            grouped(vm.exits.total as f64),
        ]);
    }
    let _ = write!(text, "\n{table}");
    if report.vms.len() > SHOWN_VMS {
        let _ = writeln!(text, "... and {} more VMs", report.vms.len() - SHOWN_VMS);
    }
    let _ = write!(text, "\n{}", reasons(&report.exits()));
    let vmid = &report.vmid;
    let _ = writeln!(
        text,
        "\nVMIDs ({}, {} bits): {} schedule-ins, {} fast, {} slow, {} reserved, {} allocated, {} rollovers",
        vmid.policy,
        vmid.bits,
        vmid.schedule_ins,
        vmid.fast,
        vmid.slow,
        vmid.reserved,
        vmid.allocations,
        vmid.rollovers
    );
    if let Some(end) = &report.end {
        let failed = if end.failed == 0 { String::new() } else { format!(", {} failed", end.failed) };
        let _ = writeln!(text, "ended after {:.3} s: {}{failed}", end.elapsed_ns as f64 / 1e9, end.reason);
    }
    for fault in report.inconsistencies() {
        let _ = writeln!(text, "warning: the report does not add up: {fault}");
    }
    text
}

/// The commonest reasons, with what each cost.
fn reasons(exits: &Exits) -> Table {
    let mut list: Vec<_> = exits.by_reason.iter().filter(|(_, reason)| reason.count > 0).collect();
    list.sort_by_key(|(_, reason)| std::cmp::Reverse(reason.count));
    let mut table = Table::new(["exit", "count", "share", "mean ns", "max ns"]);
    for (name, reason) in list.into_iter().take(SHOWN_REASONS) {
        table.row([
            name.clone(),
            grouped(reason.count as f64),
            format!("{:.1} %", 100.0 * reason.count as f64 / exits.total.max(1) as f64),
            grouped(reason.time_ns as f64 / reason.count as f64),
            grouped(reason.max_ns as f64),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_reported_nothing_has_no_summary() {
        assert_eq!(text(&Report::default()), "");
    }

    #[test]
    fn the_summary_has_vms_reasons_and_the_allocator() {
        let records: Vec<serde_json::Value> = [
            r#"{"schema":1,"kind":"vm","vm":"web","state":"off","time_ns":{"guest":2000000},
               "exits":{"total":4,"by_reason":{"hvc":{"count":3,"time_ns":300,"max_ns":200},"wfi":{"count":1}}}}"#,
            r#"{"schema":1,"kind":"vmid","policy":"clear","bits":8,"schedule_ins":5,"fast":4,"slow":1}"#,
            r#"{"schema":1,"kind":"end","elapsed_ns":1500000000,"vms":1,"reason":"all VMs have ended"}"#,
        ]
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
        let text = text(&Report::read(&records).unwrap());
        for part in
            ["web", "75.0 %", "100", "(clear, 8 bits): 5 schedule-ins, 4 fast, 1 slow", "1.500 s: all VMs"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("warning"), "{text}");
    }
}
