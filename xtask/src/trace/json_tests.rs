use super::super::timeline;
use super::super::timeline::tests::switch;
use super::*;
use std::collections::BTreeMap;

fn written() -> Value {
    let trace = switch();
    let marks = timeline::of(&trace);
    let vms = ["talk".to_string()];
    let mut out = Vec::new();
    write(&mut out, &trace, &marks, &Names { vms: &vms }, &json!({ "flags": "-M \"virt\"" })).unwrap();
    serde_json::from_slice(&out).expect("valid JSON")
}

fn events(file: &Value) -> &Vec<Value> {
    file["traceEvents"].as_array().unwrap()
}

#[test]
fn cpus_and_vcpus_have_lanes_with_names() {
    let file = written();
    let names: Vec<(u64, u64, &str)> = events(&file)
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| {
            let number = |key: &str| event[key].as_u64().unwrap();
            (number("pid"), number("tid"), event["args"]["name"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        names,
        [
            (1, 1, "CPUs"),
            (1, 1, "CPU 0"),
            (2, 1, "VM talk"),
            (2, 1, "vCPU 0"),
            // Its name isn't known.
            (3, 3, "VM VM 1"),
            (3, 3, "vCPU 2"),
        ]
    );
    assert_eq!(file["otherData"]["flags"], "-M \"virt\"");
}

/// What the viewers rely on: in each lane time goes on, and a span is within another or apart from it.
#[test]
fn spans_nest_and_time_goes_on() {
    let file = written();
    let mut lanes: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut last = 0.0;
    for event in events(&file).iter().filter(|event| event["ph"] != "M") {
        let ts = event["ts"].as_f64().unwrap();
        assert!(ts >= last, "{event}");
        last = ts;
        let lane = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let open = lanes.entry(lane).or_default();
        while open.last().is_some_and(|(_, end)| *end <= ts) {
            open.pop();
        }
        let end = ts + event["dur"].as_f64().unwrap_or(0.0);
        assert!(open.last().is_none_or(|(_, outer)| end <= outer + 1e-9), "{event} sticks out of its span");
        match event["ph"].as_str() {
            Some("X") => open.push((ts, end)),
            Some("i") => assert_eq!(event["s"], "t"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lanes.len(), 3);
}

#[test]
fn times_are_microseconds_from_the_first_event() {
    let file = written();
    let named = |name: &str| events(&file).iter().find(|event| event["name"] == name).unwrap().clone();
    assert_eq!(named("on CPU 0")["ts"], 0.0);
    assert_eq!(named("idle")["ts"], 0.045);
    assert_eq!(named("idle")["dur"], 0.01);
    assert_eq!(named("kick")["args"], json!({ "cpu": 1, "for": "VM 1/2" }));
    assert_eq!(named("talk/0")["pid"], CPUS);
}
