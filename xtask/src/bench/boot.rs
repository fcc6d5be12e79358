//! `cargo xtask bench boot`: trials of a boot (E2), with more or less on the console and with shadow memory or without (E3).
//!
//! A boot lasts from the guest's first instruction until its VM ends: because init, or our guest's load, powers it off as soon as it runs, or
//! because the marker line has come on the console (`vm.until`). The first is the same in all rows, a console or none.

use anyhow::{Context, Result, ensure};

use super::BenchArgs;
use super::harness::{About, count, time};
use super::rows::{self, Row};
use crate::qemu::capture::Captured;
use crate::report::records::Report;
use crate::results::{Published, Results, Variant};
use crate::scenario::{Scenario, Vm};
use crate::{image, linux, run};

/// Trials where none are asked for; published were 50.
const TRIALS: u32 = 3;
/// Linux with its console, and what others measured of a boot with and without output, in seconds: a heavy configuration without stack traces.
const CONSOLES: [(&str, &str, Option<f64>); 3] = [
    ("suppressed", "console=null", Some(1.861_823_869)),
    ("reduced", "console=ttyAMA0 quiet", None),
    ("on", "console=ttyAMA0 loglevel=8", Some(4.585_750_154)),
];
/// The same of our guest, which writes two records.
const OWN_CONSOLES: [(&str, &str); 3] = [("suppressed", "off"), ("reduced", "reduced"), ("on", "on")];
/// Our guest with its shadow memory. Published: a boot to a marker line, in seconds, before shadow was kept by page and with it.
const SHADOWS: [(&str, Option<f64>); 3] = [("off", None), ("full", Some(2.493)), ("page", Some(7.234))];
/// What our guest writes when its load is done, where a boot lasts until a marker line.
const OWN_MARKER: &str = "\"kind\":\"readv\"";
/// Bytes of memory of our guest.
const OWN_MEMORY: u64 = 16 << 20;
/// Exits for the console's sake.
const CONSOLE_EXITS: [&str; 2] = ["mmio_uart", "mmio_virtio_console"];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    args.refuse_shape("it has one guest with one vCPU")?;
    ensure!(
        args.marker.is_none() || args.options.iter().all(|(key, _)| key != "vm.until"),
        "--marker and --set vm.until can't be given together"
    );
    let machine = rows::one_cpu(args);
    let programs = image::build()?;
    let own_guest = run::read_kernel(&programs.guest.image)?;
    let packages = linux::packages(args.kernel.unwrap_or_default()).context("Linux guests")?;
    let kernel = run::read_kernel(&packages.kernel)?;
    let ramdisk =
        std::fs::read(&packages.initrd).with_context(|| format!("reading {}", packages.initrd.display()))?;
    let ramdisk = std::sync::Arc::new(ramdisk);

    let mut list: Vec<Row> = Vec::new();
    let mut add = |variant: Variant, vm: Vm, marker: &str| {
        let mut scenario = Scenario { machine: machine.clone(), options: Vec::new(), vms: vec![vm] };
        if args.marker.is_some() {
            scenario.set_option("vm.until", &marker.replace(' ', "_"));
        }
        list.push(Row { variant, scenario });
    };
    let marker = args.marker.as_deref().unwrap_or_default();
    for (console, words, published) in CONSOLES {
        // Without a console there is no line to wait for.
        if args.marker.is_some() && console == "suppressed" {
            continue;
        }
        let mut vm = Vm::new("linux", kernel.clone());
        vm.memory = args.memory.unwrap_or(linux::MEMORY);
        vm.ramdisk = Some(ramdisk.clone());
        vm.bootargs = linux::append_boot(words);
        add(
            row("Linux, console", console, CONSOLES[usize::from(args.marker.is_some())].0, published),
            vm,
            marker,
        );
    }
    for (console, word) in OWN_CONSOLES.into_iter().filter(|_| args.marker.is_none()) {
        let mut vm = Vm::new("guest", own_guest.clone());
        vm.memory = OWN_MEMORY;
        vm.bootargs = format!("load=idle seconds=0 console={word}");
        add(row("our guest, console", console, "suppressed", None), vm, marker);
    }
    for (shadow, published) in SHADOWS {
        let mut vm = Vm::new("guest", own_guest.clone());
        vm.memory = OWN_MEMORY;
        vm.bootargs = format!("load=readv n=1 checking={shadow}");
        // Our guest doesn't write what Linux does.
        add(row("our guest, shadow memory", shadow, "off", published), vm, OWN_MARKER);
    }

    let about = About {
        bench: "boot",
        question: "How long does a boot take, and what part of it is console output?",
        quantities: vec![
            time(machine.deterministic, "boot", "boot"),
            count("exits", "exits"),
            count("console", "of them, for the console"),
            count("shadow", "shadow memory, bytes"),
        ],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            match &args.marker {
                Some(marker) => format!("From the guest's first instruction to `{marker}` on its console, our guest's to its load's record."),
                None => "From the guest's first instruction until it powers off, which is the first that its init, or its load, does.".into(),
            },
            "Time is the system counter's: waiting for a timer is in it.".into(),
            format!("Linux: {}.", packages.description),
            "Published, other hardware: a boot of a heavy configuration without and with console output; a boot to a marker line without and with \
             shadow memory by page."
                .into(),
        ],
    };
    rows::measure(args, about, &programs, &list, TRIALS, |row, captured| {
        let marker = row.scenario.options.iter().find(|(key, _)| key == "vm.until");
        values(captured, marker.map(|(_, marker)| marker.as_str()))
    })
}

fn row(group: &str, name: &str, first: &str, published: Option<f64>) -> Variant {
    let full = |name: &str| format!("{group} {name}");
    Variant {
        name: full(name),
        group: group.into(),
        base: (name != first).then(|| full(first)),
        published: published.map(|value| Published { label: "s".into(), value }).into_iter().collect(),
        ..Variant::default()
    }
}

/// What a run measured, in milliseconds.
fn values(captured: &Captured, marker: Option<&str>) -> Result<Vec<(&'static str, f64)>> {
    let report = Report::read(&captured.reports)?;
    let end =
        report.end.as_ref().context("the hypervisor's report has no `end` record: the run was cut off")?;
    ensure!(end.failed == 0, "the guest was stopped by the hypervisor: {}", end.reason);
    if let Some(marker) = marker {
        let plain = |text: &str| text.replace(' ', "_");
        ensure!(
            captured.lines.iter().any(|line| plain(line).contains(&plain(marker))),
            "--marker {marker}: the guest has powered off and never written this to its console (with `quiet` a kernel writes hardly anything: take what \
             init writes, `Odometer's init`)"
        );
    }
    let boot = end.elapsed_ns.saturating_sub(report.start.to_first_guest_ns) as f64 / 1e6;
    let exits = report.exits();
    let console =
        CONSOLE_EXITS.iter().filter_map(|name| exits.by_reason.get(*name)).map(|reason| reason.count);
    let mut values =
        vec![("boot", boot), ("exits", exits.total as f64), ("console", console.sum::<u64>() as f64)];
    // Our guest says it; Linux has none.
    let shadow = captured.guests.iter().find_map(|(_, record)| record["shadow_bytes"].as_f64());
    values.extend(shadow.map(|bytes| ("shadow", bytes)));
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"linux| [0.1] Run /init as init process
@odometer {"schema":1,"kind":"start","to_first_guest_ns":1000000}
@odometer {"schema":1,"kind":"vm","vm":"linux","exits":{"total":9,"by_reason":{"mmio_uart":{"count":7},"wfi":{"count":2}}}}
@odometer {"schema":1,"kind":"end","elapsed_ns":5000000,"vms":1,"reason":"all"}"#;

    #[test]
    fn a_boot_lasts_from_the_first_guest_instruction_to_the_end() {
        let captured = Captured::from_log(LOG).unwrap();
        assert_eq!(values(&captured, None).unwrap(), [("boot", 4.0), ("exits", 9.0), ("console", 7.0)]);
        assert!(values(&captured, Some("Run_/init")).is_ok() && values(&captured, Some("Run /init")).is_ok());
        let error = values(&captured, Some("login:")).unwrap_err().to_string();
        assert!(error.contains("--marker login:"), "{error}");
        let own = format!("guest| @guest {{\"kind\":\"readv\",\"shadow_bytes\":4096,\"ok\":true}}\n{LOG}");
        let found = values(&Captured::from_log(&own).unwrap(), None).unwrap();
        assert_eq!(found.last(), Some(&("shadow", 4096.0)));
        let cut = Captured::from_log(&LOG.lines().take(3).collect::<Vec<_>>().join("\n")).unwrap();
        assert!(values(&cut, None).unwrap_err().to_string().contains("cut off"));
    }
}
