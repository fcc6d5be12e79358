use super::*;

const A: Who = Who { vm: 0, vcpu: 0 };
const B: Who = Who { vm: 1, vcpu: 2 };

fn event(time: u64, kind: Kind, who: Who, detail: u8, value: u16) -> Event {
    Event { time, kind, detail, vm: who.vm, vcpu: who.vcpu, value }
}

/// A switch from A to B on CPU 0, with an idle time, as the hypervisor writes it: the exit behind the kick of its handler.
pub fn switch() -> Decoded {
    let wfi = Reason::Wfi as u8;
    let events = vec![
        event(5, Kind::ScheduleIn, A, 0, 3),
        event(10, Kind::Enter, A, 0, 0),
        event(22, Kind::Kick, B, 0, 1),
        event(20, Kind::Exit, A, Reason::Sgi as u8, 0),
        event(30, Kind::Enter, A, 0, 0),
        event(40, Kind::Exit, A, wfi, 0),
        event(45, Kind::ScheduleOut, A, 0, 0),
        event(50, Kind::IdleBegin, A, 0, 0),
        event(60, Kind::IdleEnd, A, 0, 0),
        event(62, Kind::VmidSlow, B, 0, 0),
        event(63, Kind::VmidFlush, B, Flush::VmidHere as u8, 4),
        event(65, Kind::ScheduleIn, B, 0, 4),
        event(66, Kind::Inject, B, 0, 27),
        event(70, Kind::Enter, B, 0, 0),
        event(90, Kind::Exit, B, wfi, 0),
    ];
    Decoded { counter_hz: 1_000_000_000, cpus: vec![CpuTrace { events, lost: 0 }] }
}

fn shown(lane: Lane) -> Vec<(What, u64, Option<u64>)> {
    let marks = of(&switch()).into_iter().filter(|mark| mark.lane == lane);
    marks.map(|mark| (mark.what, mark.from, mark.to)).collect()
}

#[test]
fn a_cpu_is_always_at_something() {
    assert_eq!(
        shown(Lane::Cpu(0)),
        [
            (What::Guest(A), 10, Some(20)),
            (What::Exit(Reason::Sgi), 20, Some(30)),
            (What::Kick(1, B), 22, None),
            (What::Guest(A), 30, Some(40)),
            (What::Exit(Reason::Wfi), 40, Some(45)),
            (What::Switch, 45, Some(50)),
            (What::Idle, 50, Some(60)),
            (What::Switch, 60, Some(70)),
            (What::VmidSlow, 62, None),
            (What::Flush(Flush::VmidHere, 4), 63, None),
            (What::Guest(B), 70, Some(90)),
            (What::Exit(Reason::Wfi), 90, Some(90)),
        ]
    );
}

#[test]
fn a_vcpu_is_shown_where_it_has_a_cpu() {
    assert_eq!(
        shown(Lane::Vcpu(A)),
        [
            (What::Has(0), 5, Some(45)),
            (What::Guest(A), 10, Some(20)),
            (What::Exit(Reason::Sgi), 20, Some(30)),
            (What::Guest(A), 30, Some(40)),
            (What::Exit(Reason::Wfi), 40, Some(45)),
        ]
    );
    assert_eq!(
        shown(Lane::Vcpu(B)),
        [
            (What::Has(0), 65, Some(90)),
            (What::Inject(27), 66, None),
            (What::Guest(B), 70, Some(90)),
            (What::Exit(Reason::Wfi), 90, Some(90)),
        ]
    );
}

#[test]
fn a_ring_that_begins_in_the_middle_shows_what_it_has() {
    let events = vec![
        event(7, Kind::Exit, A, Reason::Hvc as u8, 0),
        event(8, Kind::ScheduleOut, A, 0, 0),
        event(9, Kind::IdleBegin, A, 0, 0),
    ];
    let trace = Decoded { counter_hz: 1, cpus: vec![CpuTrace { events, lost: 100 }] };
    let marks = of(&trace);
    assert_eq!(marks.len(), 4, "the exit in both lanes, the switch, idle until the end: {marks:?}");
    assert_eq!(of(&Decoded { counter_hz: 1, cpus: vec![] }), []);
}
