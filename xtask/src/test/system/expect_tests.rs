//! Tests of the checks, on reports made by hand.

use super::*;

/// A report that is in order.
const GOOD: &str = r#"
odometer: booting
@odometer {"schema":1,"kind":"boot","cpus":1,"slice_us":10000}
@odometer {"schema":1,"kind":"start","vms":1,"vm_overhead_bytes":4096}
@guest {"schema":1,"kind":"messaging","run":0,"ok":true}
@guest {"schema":1,"kind":"end","ok":true}
@odometer {"schema":1,"kind":"vcpu","vm":"a","vm_id":0,"vcpu":0,"schedule_ins":3,"migrations":0,"kicks":1,"exits":{"total":5,"by_reason":{"wfi":{"count":3,"hist":[[7,1],[8,2]]},"hvc":{"count":2}}}}
@odometer {"schema":1,"kind":"vm","vm":"a","vm_id":0,"vcpus":1,"state":"off","memory_bytes":65536,"resident_bytes":8192,"overhead_bytes":4096,"frames_returned":3,"schedule_ins":3,"migrations":0,"kicks":1,"exits":{"total":5,"by_reason":{"wfi":{"count":3},"hvc":{"count":2}}}}
@odometer {"schema":1,"kind":"cpu","cpu":0,"elapsed_ns":1000000,"time_ns":{"guest":500000,"hypervisor":300000,"idle":199500},"schedule_ins":3,"exits":{"total":5,"by_reason":{"wfi":{"count":3},"hvc":{"count":2}}}}
@odometer {"schema":1,"kind":"vmid","schedule_ins":3,"fast":1,"slow":2,"reserved":0,"allocations":1,"rollovers":0,"tlbi_broadcast":1}
@odometer {"schema":1,"kind":"end","vms":1,"failed":0,"reason":"all VMs have ended"}
"#;

fn judge(log: &str, check: impl Fn(&Outcome<'_>) -> Result<()>) -> Result<(), String> {
    let captured = Captured::from_log(log).expect("records can be read");
    check(&Outcome { captured: &captured, scenario: None, taken_to_el2: None, audit: None, trace: None })
        .map_err(|error| format!("{error:#}"))
}

/// The message about a report in which `from` became `to`.
fn fault(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    judge(&GOOD.replace(from, to), runs_well).expect_err("it must be found")
}

#[test]
fn a_good_report_passes() {
    assert_eq!(judge(GOOD, runs_well), Ok(()));
    assert_eq!(judge(GOOD, stays_in_place), Ok(()));
    assert_eq!(judge(GOOD, all_cpus_work), Ok(()));
    assert_eq!(judge(GOOD, occurs("wfi", 3)), Ok(()));
    assert_eq!(judge(GOOD, within("vmid", "slow", 2, 2)), Ok(()));
    assert_eq!(judge(GOOD, says(&["ODOMETER", "booting"])), Ok(()));
}

#[test]
fn missing_and_late_records_are_found() {
    assert!(fault(r#""kind":"start""#, r#""kind":"other""#).contains("0 records `start`"));
    assert!(judge("", runs_well).is_err());
    let late = format!("{GOOD}@odometer {{\"schema\":1,\"kind\":\"vm\"}}\n");
    assert!(judge(&late, runs_well).unwrap_err().contains("after `end`"));
}

#[test]
fn guests_that_fail_or_say_nothing_are_found() {
    assert!(fault(r#""run":0,"ok":true"#, r#""run":0,"ok":false"#).contains("messaging"));
    assert!(fault(r#""kind":"end","ok":true"#, r#""kind":"note","ok":true"#).contains("0 times"));
    assert!(fault(r#""failed":0"#, r#""failed":1"#).contains("1 VMs failed"));
}

#[test]
fn sums_that_are_off_are_found() {
    assert!(fault(r#"[8,2]"#, r#"[8,3]"#).contains("in the histogram"));
    assert!(fault(r#"{"count":2}}}}"#, r#"{"count":3}}}}"#).contains("reasons sum to 6"));
    assert!(fault(r#""idle":199500"#, r#""idle":190000"#).contains("elapsed"));
    assert!(
        fault(r#""vcpu":0,"schedule_ins":3"#, r#""vcpu":0,"schedule_ins":4"#).contains("schedule_ins is 3")
    );
    assert!(fault(r#""frames_returned":3"#, r#""frames_returned":1"#).contains("came back"));
    assert!(fault(r#""overhead_bytes":4096"#, r#""overhead_bytes":170000"#).contains("beside its RAM"));
    assert!(fault(r#""fast":1"#, r#""fast":2"#).contains("schedule-ins"));
    assert!(fault(r#""vcpus":1"#, r#""vcpus":2"#).contains("1 vCPUs reported"));
}

#[test]
fn of_several_reports_the_last_must_fit_and_counters_only_grow() {
    let vmid = "@odometer {\"kind\":\"vmid\",\"fast\":9}\n";
    let early = |exits: u64| {
        format!(
            "{vmid}@odometer {{\"kind\":\"cpu\",\"cpu\":0,\"elapsed_ns\":9,\"schedule_ins\":1,\
             \"time_ns\":{{\"guest\":1,\"idle\":1}},\"exits\":{{\"total\":{exits}}}}}{GOOD}"
        )
    };
    assert_eq!(judge(&early(5), runs_well), Ok(()));
    assert_eq!(judge(&early(5), reports_again), Ok(()));
    assert!(judge(&early(6), reports_again).unwrap_err().contains("exits.total went from 6 to 5"));
    assert!(judge(GOOD, reports_again).unwrap_err().contains("not several"));
}

#[test]
fn other_checks_fail_where_they_should() {
    assert!(judge(GOOD, occurs("sgi", 1)).is_err());
    assert!(judge(GOOD, within("vmid", "slow", 3, 9)).is_err());
    assert!(judge(GOOD, vm_failed("a")).unwrap_err().contains("not \"failed\""));
    assert!(judge(GOOD, vm_failed("b")).unwrap_err().contains("no record"));
    assert!(judge(GOOD, says(&["gicv2"])).is_err());
    assert!(judge(GOOD, starts_nothing).is_err());
    assert!(judge(GOOD, hypervisor_faults).is_err());
    let fault = "@odometer {\"kind\":\"fault\",\"el\":2,\"backtrace\":[\"0x40\"]}";
    assert_eq!(judge(fault, hypervisor_faults), Ok(()));
    assert!(judge(&fault.replace(":2", ":1"), hypervisor_faults).is_err());
    assert_eq!(judge("odometer: no bundle", starts_nothing), Ok(()));
}
