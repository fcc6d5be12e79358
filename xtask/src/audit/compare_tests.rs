use super::super::record::Met;
use super::*;
use crate::report::records::{End, Reason, Translations};
use std::collections::BTreeMap;

const KINDS: [&str; 7] =
    ["alle1is", "alle1", "vmalls12e1is", "vmalls12e1", "ipas2e1is", "vmalle1is", "vmalle1"];

/// A run on two CPUs, on each of which the kinds of invalidations have come 1, 2, ... 7 times. Of the three `vmalls12e1is` one is
/// stage 2's.
fn report() -> Report {
    let tlbi: BTreeMap<String, u64> = KINDS.map(String::from).into_iter().zip(1..).collect();
    let mut report = Report { end: Some(End::default()), ..Report::default() };
    for number in 0..2 {
        let translations =
            Translations { tlbi: tlbi.clone(), tlbi_of_stage2: 1, tlbi_barriers: 14, vttbr_writes: 40 };
        let mut cpu = Tally { cpu: number, translations, ..Tally::default() };
        cpu.exits.total = 100;
        let reasons =
            [("hvc", 40), ("wfi", 10), ("sgi", 6), ("debug", 4), ("mmio_uart", 20), ("irq_kick", 20)];
        for (name, count) in reasons {
            cpu.exits.by_reason.insert(name.into(), Reason { count, ..Reason::default() });
        }
        report.cpus.insert(number, cpu);
    }
    let mut vm = Tally::default();
    vm.exits.total = 200;
    report.vms.insert("vm".into(), vm);
    report.vmid.schedule_ins = 35;
    report.vmid.tlbi_broadcast = 2 * (1 + 3 - 1);
    report.vmid.tlbi_local = 2 * (2 + 4 + 7);
    report.vmid.broadcast_barriers = 2 * (14 - 1 - 2 * 5);
    report
}

/// What the auditor sees of it.
fn record() -> Record {
    let mut events: BTreeMap<String, u64> = KINDS.map(String::from).into_iter().zip(1..).collect();
    events.extend([("exit".into(), 100), ("entry".into(), 100), ("vttbr_write".into(), 40)]);
    events.extend([("barrier".into(), 14), ("own_tlbi".into(), 3), ("other_tlbi".into(), 0)]);
    events.insert("own_exception".into(), 0);
    let classes =
        [("hvc", 40), ("wfx", 10), ("instruction", 10), ("abort", 20), ("interrupt", 20), ("smc", 0)];
    events.extend(classes.map(|(class, count)| (format!("exit_{class}"), count)));
    Record {
        met: Met { warm: 25, cold: 10, stale: 0 },
        spent: BTreeMap::new(),
        cpus: BTreeMap::from([(0, events.clone()), (1, events)]),
    }
}

#[test]
fn the_same_counts_agree() {
    let comparison = Comparison::of(&report(), &record()).unwrap();
    assert!(comparison.agrees(), "{comparison}");
    assert!(comparison.require().is_ok());
    assert!(comparison.to_string().ends_with("agree.\n"));
    assert_eq!(comparison.agreed("tlbi vmalle1is"), Some(12));
    assert_eq!(comparison.agreed("tlbi vae1is"), None);
}

#[test]
fn one_event_more_or_less_on_one_cpu_is_seen() {
    // Odometer doesn't count those of its own translations.
    for event in record().cpus[&0].keys().filter(|event| *event != "own_tlbi") {
        for (cpu, change) in [(0, 1), (1, 1), (1, -1)] {
            let mut record = record();
            let count = record.cpus.get_mut(&cpu).unwrap().get_mut(event).unwrap();
            let Some(changed) = count.checked_add_signed(change) else { continue };
            *count = changed;
            let comparison = Comparison::of(&report(), &record).unwrap();
            assert!(!comparison.agrees(), "{event} {change:+} on CPU {cpu}");
            let text = comparison.require().unwrap_err().to_string();
            assert!(text.contains(&format!("on CPU {cpu}")) && text.contains("differ in"), "{text}");
        }
    }
}

#[test]
fn an_event_on_another_cpu_is_seen_although_the_sum_is_right() {
    let mut record = record();
    *record.cpus.get_mut(&0).unwrap().get_mut("exit").unwrap() += 1;
    *record.cpus.get_mut(&1).unwrap().get_mut("exit").unwrap() -= 1;
    let comparison = Comparison::of(&report(), &record).unwrap();
    assert!(!comparison.agrees());
    assert_eq!(comparison.agreed("exits from guests"), None);
}

#[test]
fn a_wrong_counter_of_odometer_is_seen() {
    let wrong: [fn(&mut Report); 11] = [
        |report| report.vmid.schedule_ins += 1,
        |report| report.cpus.get_mut(&1).unwrap().exits.by_reason.get_mut("debug").unwrap().count += 1,
        |report| report.vmid.tlbi_broadcast += 1,
        |report| report.vmid.tlbi_local -= 1,
        |report| report.vmid.broadcast_barriers += 1,
        |report| report.vms.get_mut("vm").unwrap().exits.total += 1,
        |report| report.cpus.get_mut(&1).unwrap().exits.total += 1,
        |report| report.cpus.get_mut(&1).unwrap().translations.vttbr_writes -= 1,
        |report| report.cpus.get_mut(&1).unwrap().translations.tlbi_barriers -= 1,
        |report| report.cpus.get_mut(&1).unwrap().translations.tlbi_of_stage2 -= 1,
        |report| *report.cpus.get_mut(&1).unwrap().translations.tlbi.get_mut("vmalle1").unwrap() -= 1,
    ];
    for (number, spoil) in wrong.into_iter().enumerate() {
        let mut report = report();
        spoil(&mut report);
        assert!(!Comparison::of(&report, &record()).unwrap().agrees(), "number {number}");
    }
}

#[test]
fn a_vmid_with_another_vms_entries_is_seen_although_all_counts_are_right() {
    let mut record = record();
    record.met = Met { warm: 24, cold: 10, stale: 1 };
    assert!(!Comparison::of(&report(), &record).unwrap().agrees());
}

#[test]
fn without_an_end_or_with_other_cpus_nothing_is_compared() {
    let cut_off = Report { end: None, ..report() };
    assert!(Comparison::of(&cut_off, &record()).unwrap_err().to_string().contains("no last report"));
    let mut one = record();
    one.cpus.remove(&1);
    assert!(Comparison::of(&report(), &one).unwrap_err().to_string().contains("2 CPUs, the auditor on 1"));
}
