//! The schedule in a trace: which vCPU was put on which CPU, and taken off, in the order of time. The simulation around the VMID
//! allocators reads it (`hypervisor/src/vmid/tests/replay.rs`), so that policies are compared on what a real load has done.

use odometer::trace::{Decoded, Event, Kind};

use super::timeline::in_order;

/// What the file begins with: its form and version.
const HEADER: &str = "# odometer schedule 1";
/// Words on a line.
const WORDS: usize = 16;

/// The text of a schedule: a comment, then words. `3+12.1`: vCPU 1 of VM 12 is put on CPU 3; `3-`: CPU 3 is taken from its vCPU.
pub fn text(trace: &Decoded, about: &str) -> String {
    let mut events: Vec<(usize, Event)> = Vec::new();
    for (cpu, trace) in trace.cpus.iter().enumerate() {
        let moves = |event: &Event| [Kind::ScheduleIn, Kind::ScheduleOut].contains(&event.kind);
        events.extend(in_order(trace).into_iter().filter(moves).map(|event| (cpu, event)));
    }
    // One CPU's stay in their order.
    events.sort_by_key(|(_, event)| event.time);
    let words: Vec<String> = events
        .iter()
        .map(|(cpu, event)| match event.kind {
            Kind::ScheduleIn => format!("{cpu}+{}.{}", event.vm, event.vcpu),
            _ => format!("{cpu}-"),
        })
        .collect();
    let lines: Vec<String> = words.chunks(WORDS).map(|words| words.join(" ")).collect();
    format!("{HEADER}\n# {}\n{}\n", about.replace('\n', " "), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::timeline::tests::switch;
    use super::*;
    use odometer::trace::CpuTrace;

    #[test]
    fn schedule_ins_and_outs_of_all_cpus_are_in_the_order_of_time() {
        let mut trace = switch();
        let event = |time, kind| Event { time, kind, detail: 0, vm: 3, vcpu: 1, value: 9 };
        let events = vec![event(50, Kind::ScheduleIn), event(51, Kind::Enter), event(64, Kind::ScheduleOut)];
        trace.cpus.push(CpuTrace { events, lost: 0 });
        assert_eq!(
            text(&trace, "-M virt\nvmid.bits=4"),
            "# odometer schedule 1\n# -M virt vmid.bits=4\n0+0.0 0- 1+3.1 1- 0+1.2\n"
        );
    }
}
