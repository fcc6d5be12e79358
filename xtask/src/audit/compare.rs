//! Odometer's counters beside the auditor's. Not one may be off.
//!
//! When QEMU ends, Odometer has printed its last report, all VMs have ended, and no CPU is in a guest: after that report nothing
//! happens that either of them counts. So each pair is of one moment, and is compared without a tolerance.

use std::fmt;

use anyhow::{Result, ensure};

use super::Record;
use super::classes::{CLASSES, Class};
use super::record::Met;
use crate::report::records::{Report, Tally};
use crate::report::table::{Table, grouped};

/// A number of Odometer's, and the auditor's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pair {
    odometer: u64,
    auditor: u64,
}

/// One thing that both have counted.
#[derive(Debug, Clone)]
struct Row {
    what: String,
    /// Which counters of Odometer's report.
    counter: String,
    /// The sum.
    sum: Pair,
    /// CPUs on which they differ.
    differing: Vec<(u64, Pair)>,
}

/// All that both have counted.
#[derive(Debug, Clone)]
pub struct Comparison {
    rows: Vec<Row>,
    met: Met,
}

/// What is counted for each CPU: what it is called, Odometer's counter, its value, and the auditor's event.
type PerCpu = (&'static str, &'static str, fn(&Tally) -> u64, &'static str);

/// A kind of TLB invalidation.
macro_rules! tlbi {
    ($kind:literal) => {
        (
            concat!("tlbi ", $kind),
            concat!("cpu: tlbi.", $kind),
            |cpu| cpu.translations.tlbi.get($kind).copied().unwrap_or(0),
            $kind,
        )
    };
}

const PER_CPU: [PerCpu; 13] = [
    ("exits from guests", "cpu: exits.total", |cpu| cpu.exits.total, "exit"),
    // Each guest that was entered has been left, as no CPU is in one any more.
    ("entries into guests", "cpu: exits.total", |cpu| cpu.exits.total, "entry"),
    ("writes of VTTBR_EL2", "cpu: vttbr_writes", |cpu| cpu.translations.vttbr_writes, "vttbr_write"),
    tlbi!("alle1is"),
    tlbi!("alle1"),
    tlbi!("vmalls12e1is"),
    tlbi!("vmalls12e1"),
    tlbi!("ipas2e1is"),
    tlbi!("vmalle1is"),
    tlbi!("vmalle1"),
    ("barriers after broadcasts", "cpu: tlbi_barriers", |cpu| cpu.translations.tlbi_barriers, "barrier"),
    ("other TLBIs of guests", "none", |_| 0, "other_tlbi"),
    ("exceptions of EL2 itself", "none", |_| 0, "own_exception"),
];

impl Comparison {
    /// Compares a run's report with the auditor's record.
    ///
    /// # Errors
    /// The run had no end, or not as many CPUs as the auditor saw.
    pub fn of(report: &Report, record: &Record) -> Result<Self> {
        ensure!(report.end.is_some(), "the run has no last report, so there is nothing to compare");
        ensure!(
            report.cpus.keys().eq(record.cpus.keys()),
            "Odometer reports on {} CPUs, the auditor on {}",
            report.cpus.len(),
            record.cpus.len()
        );
        let [exits, others @ ..] = PER_CPU;
        let each = |(what, counter, own, event): PerCpu| {
            let row = Row::new(what.into(), counter.into());
            row.per_cpu(report, own, |cpu| record.count(cpu, event))
        };
        let classes = CLASSES.iter().map(|class| of_class(class, report, record));
        let rows = [each(exits)].into_iter().chain(classes).chain(others.into_iter().map(each));
        Ok(Self { rows: rows.chain(of_the_machine(report, record)).collect(), met: record.met })
    }

    /// Whether every number is the same on both sides.
    pub fn agrees(&self) -> bool {
        self.rows.iter().all(Row::agrees)
    }

    /// An error that shows all of them, if one is not.
    ///
    /// # Errors
    /// One is not.
    pub fn require(&self) -> Result<()> {
        ensure!(self.agrees(), "Odometer and the auditor have not counted the same:\n{self}");
        Ok(())
    }

    /// How often both have counted what is called `what`, where they agree.
    pub fn agreed(&self, what: &str) -> Option<u64> {
        self.rows.iter().find(|row| row.what == what && row.agrees()).map(|row| row.sum.odometer)
    }
}

impl Row {
    fn new(what: String, counter: String) -> Self {
        Row { what, counter, sum: Pair::default(), differing: Vec::new() }
    }

    /// Adds what each CPU has.
    fn per_cpu(mut self, report: &Report, own: impl Fn(&Tally) -> u64, seen: impl Fn(u64) -> u64) -> Self {
        for (number, cpu) in &report.cpus {
            let pair = Pair { odometer: own(cpu), auditor: seen(*number) };
            self.sum.odometer += pair.odometer;
            self.sum.auditor += pair.auditor;
            if pair.odometer != pair.auditor {
                self.differing.push((*number, pair));
            }
        }
        self
    }

    fn agrees(&self) -> bool {
        self.sum.odometer == self.sum.auditor && self.differing.is_empty()
    }
}

fn of_class(class: &Class, report: &Report, record: &Record) -> Row {
    let row = Row::new(format!("  {}", class.what), format!("cpu: {}", class.shown));
    row.per_cpu(report, |cpu| class.count(cpu), |cpu| record.count(cpu, class.event))
}

/// Counters that are kept for VMs, or for the VMID allocator, and not for CPUs.
fn of_the_machine(report: &Report, record: &Record) -> [Row; 6] {
    let seen = |events: &[&str]| {
        let each = |cpu: &u64| events.iter().map(|event| record.count(*cpu, event)).sum::<u64>();
        record.cpus.keys().map(each).sum::<u64>()
    };
    let cpus = || report.cpus.values().map(|cpu| &cpu.translations);
    // Invalidations that are not the allocator's.
    let of_stage2: u64 = cpus().map(|cpu| cpu.tlbi_of_stage2).sum();
    let pages: u64 = cpus().filter_map(|cpu| cpu.tlbi.get("ipas2e1is")).sum();
    let row = |what: &str, counter: &str, odometer, auditor| Row {
        sum: Pair { odometer, auditor },
        ..Row::new(what.into(), counter.into())
    };
    let vmid = &report.vmid;
    let met = record.met;
    [
        row("VMs put on a CPU", "vmid: schedule_ins", vmid.schedule_ins, met.warm + met.cold + met.stale),
        row("  another's entries left there", "none", 0, met.stale),
        row(
            "exits of all VMs",
            "vm: exits.total",
            report.vms.values().map(|vm| vm.exits.total).sum(),
            seen(&["exit"]),
        ),
        row(
            "broadcasts by VMID or for all",
            "vmid: tlbi_broadcast, cpu: tlbi_of_stage2",
            vmid.tlbi_broadcast + of_stage2,
            seen(&["alle1is", "vmalls12e1is"]),
        ),
        row(
            "local invalidations",
            "vmid: tlbi_local",
            vmid.tlbi_local,
            seen(&["alle1", "vmalls12e1", "vmalle1"]),
        ),
        row(
            "barriers of allocator and stage 2",
            "vmid: broadcast_barriers, cpu: tlbi_of_stage2, tlbi.ipas2e1is",
            // A page's invalidation has one between its two TLBIs, too.
            vmid.broadcast_barriers + of_stage2 + 2 * pages,
            seen(&["barrier"]),
        ),
    ]
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(["counted", "Odometer's counters", "Odometer", "auditor", "difference"]).left(2);
        let cells = |pair: Pair| {
            let difference = i128::from(pair.odometer) - i128::from(pair.auditor);
            let sign = if difference > 0 { "+" } else { "" };
            [
                grouped(pair.odometer as f64),
                grouped(pair.auditor as f64),
                format!("{sign}{}", grouped(difference as f64)),
            ]
        };
        for row in &self.rows {
            table.row([row.what.clone(), row.counter.clone()].into_iter().chain(cells(row.sum)));
            for (cpu, pair) in &row.differing {
                table.row([format!("  on CPU {cpu}"), String::new()].into_iter().chain(cells(*pair)));
            }
        }
        write!(formatter, "{table}")?;
        let Met { warm, cold, .. } = self.met;
        writeln!(
            formatter,
            "When a VM was put on a CPU, entries of its own may have been left there {} times, and were not {} times.",
            grouped(warm as f64),
            grouped(cold as f64)
        )?;
        let differing = self.rows.iter().filter(|row| !row.agrees()).count();
        match differing {
            0 => writeln!(formatter, "Odometer and the auditor agree."),
            _ => {
                writeln!(formatter, "Odometer and the auditor differ in {differing} of {}.", self.rows.len())
            }
        }
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
