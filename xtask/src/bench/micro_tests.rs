//! From recorded consoles to the micro table.

use super::*;

fn log(records: &[&str]) -> Captured {
    let start = r#"@odometer {"schema":1,"kind":"boot","version":"0.1.0","image_bytes":300000}
@odometer {"schema":1,"kind":"start","to_first_guest_ns":5000000,"zeroing_ns":1000000,"vm_overhead_bytes":70000}
"#;
    let lines: Vec<String> = records.iter().map(|record| format!("micro| @guest {record}\n")).collect();
    let end = r#"@odometer {"schema":1,"kind":"end","vms":1,"reason":"all VMs have ended"}"#;
    Captured::from_log(&format!("{start}{}{end}", lines.concat())).unwrap()
}

fn launch(deterministic: bool) -> Launch {
    let boot = Boot { kernel: "o.bin".into(), initrd: None, append: String::new(), virtualization: true };
    let machine = Machine { cpus: 2, deterministic, ..Machine::default() };
    Launch { program: "qemu".into(), version: (10, 0, 2), machine, memory: 1 << 30, boot, typed: Vec::new() }
}

fn micro(deterministic: bool) -> Micro {
    let first = log(&[
        r#"{"kind":"micro","op":"hypercall","n":1000,"unit":"ns","mean":140.0,"min":139,"max":150}"#,
        r#"{"kind":"micro","op":"mmio","n":1000,"unit":"ns","mean":221,"min":221,"max":221}"#,
        r#"{"kind":"micro","op":"vmid_fast","skipped":true,"reason":"no MEASURE"}"#,
        r#"{"kind":"end","ok":true}"#,
    ]);
    let again =
        log(&[r#"{"kind":"micro","op":"hypercall","n":1000,"unit":"ns","mean":141.0,"min":138,"max":149}"#]);
    let native = log(&[r#"{"kind":"micro","op":"hypercall","n":1000,"unit":"ns","mean":7}"#]);
    let runs = [
        (Run::Operations, first),
        (Run::Operations, again),
        (Run::Switch, log(&[r#"{"kind":"micro","op":"vm_switch","n":2000,"mean":700}"#])),
        (Run::BootOne, log(&[])),
        (Run::BootEight, log(&[])),
        (Run::Native, native),
    ];
    merge(&runs, launch(deterministic), "0123456789abcdef".into()).unwrap()
}

#[test]
fn runs_and_trials_come_together() {
    let micro = micro(true);
    let hypercall = &micro.operations["hypercall"];
    assert_eq!(hypercall.means.values, [140.0, 141.0]);
    assert_eq!((hypercall.min, hypercall.max), (Some(138.0), Some(150.0)));
    assert_eq!(micro.operations["vm_switch"].means.mean(), 700.0);
    assert_eq!(micro.native["hypercall"].means.mean(), 7.0);
}

#[test]
fn the_table_judges_instructions_and_shows_the_others() {
    let text = micro_table::text(&micro(true));
    let line = |name: &str| {
        text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}:\n{text}"))
    };
    for part in ["140.5", "pass", "477", "1,421", "7.0"] {
        assert!(line("hypercall").contains(part), "{part}: {text}");
    }
    assert!(line("mmio").contains("OVER"), "{text}");
    assert!(line("vmid_fast").contains("no MEASURE") && !line("vmid_fast").contains("OVER"), "{text}");
    assert!(line("image in RAM").contains("pass"), "{text}");
    assert!(line("memory of a VM").contains("70,000") && line("memory of a VM").contains("OVER"), "{text}");
    assert!(
        line("entry to first guest").contains("4,000,000") && line("entry to").contains("pass"),
        "{text}"
    );
    assert!(text.contains("largest relative deviation 0.50 %"), "{text}");
}

#[test]
fn emulated_time_is_not_judged() {
    let text = micro_table::text(&micro(false));
    assert!(text.contains("ns (emulated)") && text.contains("--deterministic"), "{text}");
    let line = text.lines().find(|line| line.starts_with("mmio")).unwrap();
    assert!(!line.contains("OVER"), "{line}");
}

#[test]
fn each_operation_is_a_row_of_the_results() {
    let rows = rows();
    let captured = log(&[r#"{"kind":"micro","op":"hypercall","n":1000,"mean":140.5}"#]);
    for (run, name) in [(Run::Operations, "hypercall"), (Run::Native, "hypercall, no hypervisor")] {
        let measured = measured(run, &captured).unwrap();
        let found = measured.iter().find(|measured| measured.variant == name).unwrap();
        assert_eq!(found.values["cost"], 140.5);
        assert!(measured.iter().all(|measured| rows.iter().any(|row| row.name == measured.variant)));
    }
    let boot = &measured(Run::BootOne, &log(&[])).unwrap()[0];
    assert_eq!((boot.variant.as_str(), boot.values["cost"]), ("boot_1", 4e6));
    let published = &rows.iter().find(|row| row.name == "hypercall").unwrap().published;
    assert_eq!(published.iter().map(|figure| figure.value).collect::<Vec<_>>(), [477.0, 1421.0]);
}

#[test]
fn failures_are_errors() {
    let failed = log(&[r#"{"kind":"micro","op":"ipi","failed":true,"reason":"the SGI did not come"}"#]);
    let error = merge(&[(Run::Operations, failed)], launch(true), String::new()).map(|_| ()).unwrap_err();
    assert!(format!("{error:#}").contains("ipi failed: the SGI did not come"), "{error:#}");
    let wrong = log(&[r#"{"kind":"error","message":"no such load"}"#]);
    assert!(merge(&[(Run::Operations, wrong)], launch(true), String::new()).is_err());
}
