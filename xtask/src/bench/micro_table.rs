//! The operations of the `micro` bench: what each may cost at most, what others' hypervisors cost on the same
//! emulator, and the table.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::fit::short_hash;
use crate::qemu::Launch;
use crate::report::statistics::Sample;
use crate::report::table::{Table, grouped};

/// An operation that is measured.
pub struct Operation {
    /// Its name in the results and in the guest's bootargs.
    pub name: &'static str,
    /// What it is.
    pub label: &'static str,
    /// Instructions that it may take.
    pub at_most: f64,
    /// Xen 4.17, measured the same way.
    pub xen: &'static str,
    /// KVM in VHE mode, measured the same way.
    pub kvm: &'static str,
    /// No hypervisor.
    pub none: &'static str,
}

const fn operation(
    name: &'static str,
    label: &'static str,
    at_most: f64,
    others: [&'static str; 3],
) -> Operation {
    Operation { name, label, at_most, xen: others[0], kvm: others[1], none: others[2] }
}

/// All operations, in the table's order.
pub const OPERATIONS: [Operation; 13] = [
    operation("hypercall", "PSCI_VERSION by HVC", 150.0, ["477", "1,421", "7"]),
    operation("gic_trap", "read of GICD_TYPER", 220.0, ["601", "2,207", "3"]),
    operation("mmio", "read of the PL011's flag register", 220.0, ["625", "6,887", "3"]),
    operation("sysreg_trap", "read of a trapped ID register", 180.0, ["434", "1,719", "3"]),
    operation("sgi_self", "SGI to its handler", 350.0, ["1,112", "2,891", "16"]),
    operation("ipi", "SGI to a spinning vCPU, to its handler", 700.0, ["1,639", "4,697", "22"]),
    operation("ipi_wfi", "the same, target in WFI", 1000.0, ["1,819 to 4,759", "11,104", "22"]),
    operation("timer", "expiry to handler, spinning", 400.0, ["1,097", "2,416", "14"]),
    operation("timer_wfi", "the same, in WFI", 1000.0, ["1,098 to 7,333", "9,289", "15"]),
    operation("irq_completion", "acknowledge and complete, no exit", 25.0, ["21", "21", "21"]),
    operation("cpu_on", "CPU_ON to the first instruction", 2500.0, ["5,475", "35,552", "9"]),
    operation("vm_switch", "yield between two VMs on one CPU", 800.0, ["2,600 to 3,799", "", ""]),
    operation("vmid_fast", "the VMID allocator, nothing stale", 20.0, ["", "", ""]),
];

/// The trials of an operation.
#[derive(Debug, Clone, Default)]
pub struct Trials {
    /// Each trial's mean, in ns of the guest's clock.
    pub means: Sample,
    /// The least of all.
    pub min: Option<f64>,
    /// The most of all.
    pub max: Option<f64>,
    /// Operations in a trial.
    pub n: u64,
    /// Why it couldn't be measured.
    pub skipped: Option<String>,
}

/// Something else with an upper bound.
#[derive(Debug, Clone)]
pub struct Bounded {
    /// What it is.
    pub label: &'static str,
    /// Its value.
    pub value: Sample,
    /// What it may be at most.
    pub at_most: f64,
    /// Xen's.
    pub xen: &'static str,
    /// Whether it is a count of instructions, exact only with a clock that they drive.
    pub instructions: bool,
}

/// Everything that the bench measured.
pub struct Micro {
    /// With Odometer, by name.
    pub operations: BTreeMap<String, Trials>,
    /// Without a hypervisor, by name.
    pub native: BTreeMap<String, Trials>,
    /// Sizes and the boot.
    pub bounded: Vec<Bounded>,
    /// How QEMU was called for the operations.
    pub launch: Launch,
    /// Odometer's version.
    pub version: String,
    /// The bundle's hash.
    pub bundle: String,
}

impl Micro {
    /// Whether nanoseconds are instructions.
    fn exact(&self) -> bool {
        self.launch.machine.deterministic
    }

    /// Whether a value is within its bound; nothing can be said of emulated time.
    fn passes(&self, value: f64, at_most: f64, instructions: bool) -> Option<bool> {
        (self.exact() || !instructions).then_some(value <= at_most)
    }
}

/// The table.
pub fn text(results: &Micro) -> String {
    let unit = if results.exact() { "instructions" } else { "ns (emulated)" };
    let mut table =
        Table::new(["operation", "", unit, "min", "max", "at most", "", "Xen", "KVM", "none", "none, here"])
            .left(2);
    let optional = |value: Option<f64>| value.map_or(String::new(), grouped);
    for operation in &OPERATIONS {
        let measured = results.operations.get(operation.name).cloned().unwrap_or_default();
        let native = results.native.get(operation.name).filter(|native| native.skipped.is_none());
        let there = !measured.means.values.is_empty();
        let mean = measured.means.mean();
        let verdict = results.passes(mean, operation.at_most, true).filter(|_| there);
        table.row([
            operation.name.to_string(),
            measured.skipped.clone().unwrap_or_else(|| operation.label.into()),
            if there { format!("{mean:.1}") } else { "-".into() },
            optional(measured.min),
            optional(measured.max),
            grouped(operation.at_most),
            mark(verdict).into(),
            operation.xen.into(),
            operation.kvm.into(),
            operation.none.into(),
            native.map_or(String::new(), |native| format!("{:.1}", native.means.mean())),
        ]);
    }
    let mut text = format!("{table}\n");
    let mut table = Table::new(["beside", "here", "at most", "", "Xen"]);
    for bounded in &results.bounded {
        let mean = bounded.value.mean();
        table.row([
            bounded.label.to_string(),
            grouped(mean),
            grouped(bounded.at_most),
            mark(results.passes(mean, bounded.at_most, bounded.instructions)).into(),
            bounded.xen.into(),
        ]);
    }
    let machine = &results.launch.machine;
    let mut flags = results.launch.behaviour();
    flags.extend(machine.qemu.iter().cloned());
    let trials = results.operations.values().map(|measured| measured.means.values.len()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "{table}\nodometer {}; QEMU {} (emulated), CPU model {}\nflags: {}; bundle {}; {trials} trial{}, largest \
         relative deviation {}",
        results.version,
        results.launch.version_text(),
        machine.cpu,
        flags.join(" "),
        short_hash(&results.bundle),
        if trials == 1 { "" } else { "s" },
        largest_deviation(results).map_or("unknown".into(), |deviation| format!("{deviation:.2} %")),
    );
    if !results.exact() {
        text +=
            "Emulated time says nothing about hardware: --deterministic counts instructions, and judges.\n";
    }
    text
}

/// The word beside a value.
fn mark(verdict: Option<bool>) -> &'static str {
    match verdict {
        Some(true) => "pass",
        Some(false) => "OVER",
        None => "",
    }
}

/// How much the trials of any operation spread at most.
fn largest_deviation(results: &Micro) -> Option<f64> {
    results.operations.values().filter_map(|measured| measured.means.relative_deviation()).reduce(f64::max)
}
