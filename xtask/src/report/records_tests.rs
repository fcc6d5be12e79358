//! A recorded run, and what is read from it.

use super::*;
use crate::qemu::capture::Captured;

const LOG: &str = r#"odometer: starting
@odometer {"schema":1,"kind":"boot","version":"0.1.0","cpus":2,"counter_hz":1000000000,"vmid_bits":4,"policy":"clear"}
@odometer {"schema":1,"kind":"start","to_first_guest_ns":900,"zeroing_ns":100,"vms":2,"vm_overhead_bytes":4096}
a| hello
@odometer {"schema":1,"kind":"vmid","policy":"clear","bits":4,"schedule_ins":7,"fast":7}
@odometer {"schema":1,"kind":"vm","vm":"a","exits":{"total":3,"by_reason":{"hvc":{"count":2,"time_ns":20,"max_ns":15},"wfi":{"count":1}}}}
@odometer {"schema":1,"kind":"vm","vm":"b","exits":{"total":1,"by_reason":{"hvc":{"count":1,"max_ns":30}}}}
@odometer {"schema":1,"kind":"cpu","cpu":1,"elapsed_ns":100000,"time_ns":{"guest":60000,"hypervisor":10000,"idle":30050}}
@odometer {"schema":1,"kind":"vmid","policy":"clear","bits":4,"schedule_ins":10,"fast":8,"slow":2,"rollovers":1}
@odometer {"schema":1,"kind":"memory","common":{"frames":512,"most_used":40,"most_users":70}}
@odometer {"schema":1,"kind":"later","what":1}
@odometer {"schema":1,"kind":"end","vms":2,"reason":"all VMs have ended"}"#;

fn report() -> Report {
    Report::read(&Captured::from_log(LOG).unwrap().reports).unwrap()
}

#[test]
fn the_last_of_repeated_records_counts() {
    let report = report();
    assert_eq!((report.vmid.schedule_ins, report.vmid.rollovers), (10, 1));
    assert_eq!(report.common, Common { frames: 512, most_used: 40, most_users: 70 });
    assert_eq!(report.boot.policy, "clear");
    assert_eq!(report.end.as_ref().unwrap().vms, 2);
    assert_eq!(report.inconsistencies(), Vec::<String>::new());
}

#[test]
fn a_vm_that_was_stopped_is_seen() {
    assert!(!report().a_vm_failed());
    assert!(!Report::default().a_vm_failed(), "a run that was left early");
    let log = LOG.replace("\"vms\":2,", "\"vms\":2,\"failed\":1,");
    assert!(Report::read(&Captured::from_log(&log).unwrap().reports).unwrap().a_vm_failed());
}

#[test]
fn exits_are_summed_over_vms() {
    let exits = report().exits();
    assert_eq!(exits.total, 4);
    assert_eq!(exits.by_reason["hvc"], Reason { count: 3, time_ns: 20, max_ns: 30 });
    assert_eq!(exits.by_reason["wfi"].count, 1);
}

#[test]
fn what_does_not_add_up_is_named() {
    let mut report = report();
    report.vmid.fast = 9;
    report.vms.get_mut("a").unwrap().exits.total = 5;
    report.cpus.get_mut(&1).unwrap().time_ns.idle = 40_000;
    let faults = report.inconsistencies().join("\n");
    assert!(
        faults.contains("9 fast + 2 slow")
            && faults.contains("VM a: exits")
            && faults.contains("CPU 1: guest")
    );
}

#[test]
fn another_schema_is_refused() {
    let record = serde_json::json!({"schema": 2, "kind": "boot"});
    assert!(format!("{:#}", Report::read(&[record]).unwrap_err()).contains("schema 2"));
    let record = serde_json::json!({"schema": 1, "kind": "vm", "vm": 7});
    assert!(Report::read(&[record]).is_err());
}
