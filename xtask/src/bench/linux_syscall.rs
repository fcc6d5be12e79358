//! `cargo xtask bench syscall --load linux`: null system calls in a Linux guest, by Debian's perf, with isolation of the kernel's page tables
//! off and on (E4).

use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::BenchArgs;
use super::harness::{About, cost};
use super::own_guest::number;
use super::rows::{self, Row};
use crate::qemu::capture::Captured;
use crate::results::{Published, Results, Variant};
use crate::scenario::{Scenario, Vm};
use crate::{image, linux, run};

/// Calls where none are asked for. The published runs had 10,000,000 and 100,000.
const CALLS: u32 = 100_000;
/// Trials where none are asked for.
const TRIALS: u32 = 3;
/// Memory of the guest: perf and its libraries are in its initramfs.
const MEMORY: u64 = 256 << 20;
/// Isolation off and on, and what was published of a null call, in microseconds, by two programs.
const ROWS: [(bool, [f64; 2]); 2] = [(false, [0.0792, 0.0803]), (true, [0.2025, 0.2024])];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let calls = args.calls.unwrap_or(CALLS);
    let machine = rows::one_cpu(args);
    let programs = image::build()?;
    let packages = linux::packages_with_perf(args.kernel.unwrap_or_default()).context("Linux guests")?;
    let kernel = run::read_kernel(&packages.kernel)?;
    let ramdisk =
        std::fs::read(&packages.initrd).with_context(|| format!("reading {}", packages.initrd.display()))?;
    let ramdisk = Arc::new(ramdisk);
    let about = About {
        bench: "syscall-linux",
        question: "What does a system call of a Linux program cost when the kernel isn't in its map?",
        quantities: vec![cost(machine.deterministic, "a call")],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            format!("{calls} calls of getppid by `perf bench syscall basic`, in one VM with one vCPU."),
            format!("Linux: {}.", packages.description),
            "Published, other hardware: getppid by two programs.".into(),
        ],
    };
    let rows = ROWS.map(|(isolated, published)| {
        let mut vm = Vm::new("linux", kernel.clone());
        vm.memory = args.memory.unwrap_or(MEMORY);
        vm.ramdisk = Some(ramdisk.clone());
        vm.bootargs = linux::append_perf(calls, isolated);
        let scenario = Scenario { machine: machine.clone(), options: Vec::new(), vms: vec![vm] };
        Row { variant: row(isolated, published), scenario }
    });
    rows::measure(args, about, &programs, &rows, TRIALS, |row, captured| {
        let isolated = row.variant.settings.get("kpti").is_some_and(|value| value == "1");
        Ok(vec![("cost", call_ns(captured, isolated)?)])
    })
}

fn row(isolated: bool, published: [f64; 2]) -> Variant {
    let name = |isolated: bool| format!("kpti={}", u8::from(isolated));
    let labels = ["us a call", "us a call, another program"];
    let figure = |(label, value): (&str, f64)| Published { label: label.into(), value };
    Variant {
        name: name(isolated),
        group: "null call in Linux".into(),
        base: isolated.then(|| name(false)),
        settings: [("kpti".to_owned(), u8::from(isolated).to_string())].into(),
        published: labels.into_iter().zip(published).map(figure).collect(),
    }
}

/// Nanoseconds of a call, if the kernel isolates its tables as it was told to.
fn call_ns(captured: &Captured, isolated: bool) -> Result<f64> {
    let record = captured.guests.iter().map(|(_, record)| record).find(|record| record["kind"] == "perf");
    let record = record.context("the guest has said nothing of its system calls")?;
    ensure!(record["ok"] == true, "perf failed in the guest: {record}");
    let found = number(record, "isolated")? > 0.0;
    let state = |isolated| if isolated { "on" } else { "off" };
    ensure!(
        found == isolated,
        "the kernel's log says that isolation of its page tables is {}, and it was told to have it {}",
        state(found),
        state(isolated)
    );
    Ok(number(record, "us")? * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_do_as_it_was_told_is_found() {
        let log = |isolated: u32, ok: bool| {
            let record = format!(
                "{{\"kind\":\"perf\",\"calls\":10,\"us\":0.123456,\"isolated\":{isolated},\"ok\":{ok}}}"
            );
            Captured::from_log(&format!("linux| @guest {record}")).unwrap()
        };
        assert!((call_ns(&log(1, true), true).unwrap() - 123.456).abs() < 1e-9);
        assert!(call_ns(&log(0, true), true).unwrap_err().to_string().contains("is off, and it was told"));
        assert!(call_ns(&log(1, true), false).is_err() && call_ns(&log(0, false), false).is_err());
        assert!(call_ns(&Captured::default(), false).is_err());
    }
}
