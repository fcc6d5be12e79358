//! The traced exit path as it stands, on simulated CPUs (`arch/fake`): the events are what the counters have counted.

use super::super::*;
use crate::arch::fake::machine::Outcome;
use crate::arch::fake::program::Do;
use crate::stats::{ExitSnapshot, Reason};
use crate::system::fake::{Ran, Setup, free, run};
use crate::vmid::{Config, Flush as Way, Policy};
use proptest::prelude::*;

/// VMs of two vCPUs on two CPUs that send each other interrupts and sleep, with fewer VMIDs than VMs.
fn crowd(policy: &str, flush: Option<Way>, seed: u64) -> Ran {
    let vmid = Config { flush, ..Config::from(Policy::parse(policy).expect("a policy")) };
    let setup = Setup { usable: 3, vmid, seed, traced: true, ..Setup::new(2) };
    let vm = || {
        let round = |n| vec![Do::Send(1, 0b10), Do::Await(2, n), Do::Sleep(300)];
        let first = [vec![Do::cpu_on(1)], (1..6).flat_map(round).collect(), vec![Do::system_off()]].concat();
        let second = (1..6).flat_map(|n| vec![Do::Await(1, n), Do::Fp, Do::Send(2, 0b01)]).collect();
        vec![free(first), free(second)]
    };
    let ran = run(setup, (0..5).map(|_| vm()).collect());
    assert_eq!(ran.outcome, Outcome::Off, "{:#?}", ran.states());
    ran.adds_up();
    ran
}

fn trace_of(ran: &Ran) -> Decoded {
    let area = ran.system.trace.as_ref().expect("a trace");
    let trace = decode(&super::rings::copy(area.words())).expect("a trace");
    assert!(trace.cpus.iter().all(|cpu| cpu.lost == 0));
    trace
}

fn count(trace: &Decoded, wanted: impl Fn(&Event) -> bool) -> u64 {
    trace.cpus.iter().flat_map(|cpu| &cpu.events).filter(|event| wanted(event)).count() as u64
}

fn agrees(ran: &Ran) {
    let trace = trace_of(ran);
    for (cpu, shared) in trace.cpus.iter().zip(&ran.system.cpus) {
        let mut exits = ExitSnapshot::default();
        exits.add(&shared.stats.exits);
        for reason in Reason::ALL {
            let is_it = |event: &&Event| event.kind == Kind::Exit && event.detail == reason as u8;
            let events = cpu.events.iter().filter(is_it).count() as u64;
            assert_eq!(events, exits.reason(reason).count(), "{} on {}", reason.name(), shared.id);
        }
        let ways = cpu.events.iter().filter(|event| [Kind::Enter, Kind::Exit].contains(&event.kind));
        let mut inside = None;
        for event in ways {
            let who = (event.vm, event.vcpu);
            let expected = if event.kind == Kind::Exit { Some(who) } else { None };
            assert_eq!(inside, expected, "{event:?}");
            inside = if event.kind == Kind::Enter { Some(who) } else { None };
        }
    }
    let vmids = ran.system.vmids.counters();
    let kind = |kind| count(&trace, |event| event.kind == kind);
    assert_eq!(kind(Kind::ScheduleIn), vmids.schedule_ins);
    assert_eq!(kind(Kind::VmidSlow), vmids.slow);
    assert_eq!(kind(Kind::VmidRollover), vmids.rollovers);
    assert_eq!(kind(Kind::VmidReclaim), vmids.reclaimed);
    let flush =
        |flush: Flush| count(&trace, |event| event.kind == Kind::VmidFlush && event.detail == flush as u8);
    assert_eq!(flush(Flush::All) + flush(Flush::Vmids), vmids.broadcast_barriers);
    assert!(vmids.rollovers + vmids.reclaimed > 0, "there were VMIDs enough");
    let vcpus = ran.system.vcpus.get().into_iter().flatten();
    let kicks: u64 = vcpus.map(|vcpu| vcpu.stats.kicks.get()).sum();
    // The machine's end may come to a CPU between counting a kick and recording it.
    assert!(kind(Kind::Kick) + trace.cpus.len() as u64 >= kicks + vmids.kicks && kicks > 0);
    // Every interrupt that a guest has taken was injected.
    assert!(count(&trace, |event| event.kind == Kind::Inject && event.value == 1) >= 5 * 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn events_are_what_was_counted(
        seed in any::<u64>(),
        policy in prop::sample::select(&["clear", "global", "reclaim", "v3-no-clear"][..]),
        flush in prop::sample::select(&[None, Some(Way::Local)][..]),
    ) {
        agrees(&crowd(policy, flush, seed));
    }
}

#[test]
fn a_machine_without_a_trace_has_none() {
    let ran = run(Setup::new(1), vec![vec![free(vec![Do::system_off()])]]);
    assert!(ran.outcome == Outcome::Off && ran.system.trace.is_none());
}
