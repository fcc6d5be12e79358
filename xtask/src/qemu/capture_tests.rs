//! Tests of captured runs, with a shell script in QEMU's place.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::qemu::Boot;
use crate::scenario::Machine;

/// A launch of a script that stands for QEMU.
fn launch(directory: &tempfile::TempDir, script: &str) -> Launch {
    let program = directory.path().join("qemu");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let boot =
        Boot { kernel: PathBuf::from("none.bin"), initrd: None, append: String::new(), virtualization: true };
    Launch {
        program,
        version: (10, 0, 0),
        machine: Machine::default(),
        memory: 1 << 30,
        boot,
        typed: Vec::new(),
    }
}

fn run(script: &str, limits: &Limits) -> Result<Captured> {
    let directory = tempfile::tempdir().unwrap();
    patient(&launch(&directory, script), limits)
}

/// Another test's fork may hold the freshly written script open for a moment, and then it can't be started yet.
fn patient(launch: &Launch, limits: &Limits) -> Result<Captured> {
    loop {
        match capture(launch, limits, None, &mut |_| {}) {
            Err(error) if format!("{error:#}").contains("Text file busy") => {
                thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

#[test]
fn records_come_apart_from_text_and_in_order() {
    let script = r#"echo 'odometer: hello'; echo '@odometer {"kind":"boot"}'; echo 'a| @guest {"kind":"end"}'
printf '@odometer {"kind":"end"}'"#;
    let captured = run(script, &Limits::default()).unwrap();
    assert_eq!(captured.lines.len(), 4);
    assert_eq!(captured.guests, [("a".to_string(), serde_json::json!({"kind": "end"}))]);
    assert!(captured.has("boot") && captured.has("end"), "a last line without its end counts");
}

#[test]
fn an_error_of_qemu_shows_what_it_said() {
    let error = run("echo booting; echo 'bad cpu model' >&2; exit 3", &Limits::default()).unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains("bad cpu model") && text.contains("booting") && text.contains("exit status: 3"),
        "{text}"
    );
}

#[test]
fn silence_and_length_are_bounded_and_nothing_is_left_running() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let script = format!("echo $$ > {}; echo start; exec sleep 100", pid.display());
    let limits = Limits { silence: Duration::from_millis(500), total: Duration::from_secs(50) };
    let error = format!("{:#}", patient(&launch(&directory, &script), &limits).unwrap_err());
    assert!(error.contains("nothing came on the console") && error.contains("start"), "{error}");
    assert!(error.contains("did not answer"), "{error}");
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());

    let limits = Limits { silence: Duration::from_secs(2), total: Duration::from_millis(500) };
    let error = format!("{:#}", run("while :; do echo tick; sleep 0.1; done", &limits).unwrap_err());
    assert!(error.contains("took more than"), "{error}");
}

#[test]
fn damaged_records_end_the_run() {
    let error = format!("{:#}", run("echo '@odometer {\"kind'; sleep 100", &Limits::default()).unwrap_err());
    assert!(error.contains("damaged"), "{error}");
}

#[test]
fn a_fault_of_the_hypervisor_is_an_error_with_its_addresses() {
    let script = r#"echo '@odometer {"schema":1,"kind":"fault","base":"0x1000","pc":"0x1040","backtrace":["0x1080"]}'"#;
    let error = format!("{:#}", run(script, &Limits::default()).unwrap_err());
    assert!(error.contains("faulted") && error.contains("0x1040") && error.contains("0x1080"), "{error}");
}

#[test]
fn a_missing_program_names_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let mut launch = launch(&directory, "");
    launch.program = "/nonexistent/qemu".into();
    let error = format!("{:#}", capture(&launch, &Limits::default(), None, &mut |_| {}).unwrap_err());
    assert!(error.contains("/nonexistent/qemu") && error.contains("xtask setup"), "{error}");
}
