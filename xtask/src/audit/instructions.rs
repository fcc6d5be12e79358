//! What exits cost, counted from outside: the instructions from a vector's first to the `eret`.
//!
//! Odometer times an exit by the counter, which it reads a little after the vector and a little before the way back. Where one
//! instruction is one nanosecond, what it doesn't see is the difference. Only exits that went straight back count: others hold a switch, or
//! a time without anything to do, which are not the exit's by Odometer's clock.

use std::fmt;

use anyhow::{Result, ensure};

use super::Record;
use super::classes::CLASSES;
use crate::report::records::Report;
use crate::report::table::{Table, grouped};
use crate::scenario::Machine;

/// Ticks of a counter that counts instructions.
const GIGAHERTZ: u64 = 1_000_000_000;

/// One class of exits.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    what: &'static str,
    exits: u64,
    /// Of these, how many went straight back.
    straight: u64,
    /// For one of those.
    instructions: f64,
    /// By Odometer's clock; where a nanosecond is an instruction, and all went straight back.
    clock: Option<f64>,
}

/// The classes of exits that there were.
#[derive(Debug, Clone)]
pub struct Costs {
    rows: Vec<Row>,
}

/// Whether the plugin can count instructions on a machine: each CPU must have a thread of its own.
///
/// # Errors
/// It can't; the message says what would help.
pub fn allowed(machine: &Machine) -> Result<()> {
    ensure!(
        machine.cpus == 1 || machine.multi_threaded,
        "--instructions: {} CPUs in one thread can't be told apart at each instruction; give one CPU (--cpus 1), or \
         `threads = \"multi\"` in the scenario's [machine] without `deterministic`",
        machine.cpus
    );
    Ok(())
}

impl Costs {
    /// The costs of a run on `machine`.
    pub fn of(report: &Report, record: &Record, machine: &Machine) -> Self {
        let is_exact = machine.deterministic && machine.cpus == 1 && report.boot.counter_hz == GIGAHERTZ;
        let rows = CLASSES.iter().filter_map(|class| {
            let exits: u64 = report.cpus.values().map(|cpu| class.count(cpu)).sum();
            let time: u64 = report.cpus.values().map(|cpu| class.time_ns(cpu)).sum();
            let spent = record.spent(class.event);
            (spent.exits > 0).then(|| Row {
                what: class.what,
                exits,
                straight: spent.exits,
                instructions: spent.instructions as f64 / spent.exits as f64,
                clock: (is_exact && spent.exits == exits).then(|| time as f64 / exits as f64),
            })
        });
        Self { rows: rows.collect() }
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "exits",
            "number",
            "straight back",
            "instructions",
            "by Odometer's clock",
            "outside of it",
        ]);
        for row in &self.rows {
            let clock = row.clock.map_or(["-".into(), "-".into()], |clock| {
                [clock, row.instructions - clock].map(|number| format!("{number:.1}"))
            });
            let [clock, outside] = clock;
            let instructions = format!("{:.1}", row.instructions);
            let numbers = [row.exits, row.straight].map(|number| grouped(number as f64));
            table.row([row.what.into()].into_iter().chain(numbers).chain([instructions, clock, outside]));
        }
        write!(formatter, "{table}")?;
        writeln!(
            formatter,
            "Odometer's clock counts instructions with --deterministic --cpus 1 and a counter of 1 GHz; it can be compared where all went \
             straight back."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::record::Spent;
    use crate::report::records::{Reason, Tally};

    fn run(deterministic: bool, straight: u64) -> String {
        let machine = Machine { cpus: 1, deterministic, ..Machine::default() };
        let mut report = Report::default();
        report.boot.counter_hz = GIGAHERTZ;
        let mut cpu = Tally::default();
        cpu.exits.by_reason.insert("hvc".into(), Reason { count: 10, time_ns: 1000, max_ns: 100 });
        report.cpus.insert(0, cpu);
        let mut record = Record::default();
        record.spent.insert("exit_hvc".into(), Spent { exits: straight, instructions: 1525 });
        Costs::of(&report, &record, &machine).to_string()
    }

    #[test]
    fn what_the_clock_does_not_see_is_the_difference() {
        let cells = |text: String| {
            let row = text.lines().find(|line| line.starts_with("HVC")).map(str::to_owned).unwrap();
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(cells(run(true, 10)), "HVC 10 10 152.5 100.0 52.5");
        assert_eq!(cells(run(true, 9)), "HVC 10 9 169.4 - -", "of one it isn't known");
        assert_eq!(cells(run(false, 10)), "HVC 10 10 152.5 - -");
        assert!(!run(true, 10).contains("SMC"));
    }

    #[test]
    fn several_cpus_need_their_own_threads() {
        let mut machine = Machine { cpus: 2, multi_threaded: false, ..Machine::default() };
        assert!(allowed(&machine).unwrap_err().to_string().contains("2 CPUs in one thread"));
        machine.multi_threaded = true;
        assert!(allowed(&machine).is_ok());
        machine = Machine { cpus: 1, multi_threaded: false, ..machine };
        assert!(allowed(&machine).is_ok());
    }
}
