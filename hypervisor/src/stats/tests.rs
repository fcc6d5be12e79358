use super::report::*;
use super::vmid_line::*;
use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::string::String;
use std::vec::Vec;

const RATE: TickRate = TickRate::new(1_000_000_000);
const FORMAT: Format = Format { rate: RATE, histograms: true };

/// The object of a line that is whole: one marker, one newline, at its end.
fn parse(line: &str) -> Value {
    let body = line.strip_prefix(MARKER).expect("a line begins with the marker");
    let body = body.strip_suffix('\n').expect("a line ends with a newline");
    assert!(body.bytes().all(|b| (b' '..=b'~').contains(&b)), "printable ASCII only: {body:?}");
    let value: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    assert_eq!(value["schema"], SCHEMA);
    value
}

fn vcpu_line(vm: &str, totals: VcpuTotals, exits: &ExitSnapshot, format: Format) -> Value {
    let mut text = String::new();
    write_vcpu(&mut text, format, &VcpuLine { vm, vm_id: 3, vcpu: 1, totals, exits }).unwrap();
    parse(&text)
}

/// Checks that a line's reasons add up to its total, and each histogram to its reason's count.
fn assert_adds_up(line: &Value) {
    let mut total = 0;
    for (name, reason) in line["exits"]["by_reason"].as_object().unwrap() {
        let count = reason["count"].as_u64().unwrap();
        let buckets = reason["hist"].as_array().unwrap();
        let in_buckets: u64 = buckets.iter().map(|b| b[1].as_u64().unwrap()).sum();
        assert_eq!(count, in_buckets, "{name}");
        assert!(buckets.windows(2).all(|w| w[0][0].as_u64() < w[1][0].as_u64()), "{name}: in order");
        total += count;
    }
    assert_eq!(line["exits"]["total"], total);
}

#[test]
fn reason_numbers_and_names_are_unique_and_in_order() {
    for (i, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(reason.index(), i);
        assert_eq!(Reason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
    }
}

#[test]
fn the_book_has_every_reason_under_its_number() {
    let book = include_str!("../../../docs/counters.md");
    for reason in Reason::ALL {
        let row = std::format!("\n| {} | `{}` | ", reason as u8, reason.name());
        assert!(book.contains(&row), "docs/counters.md has no row {row:?}");
    }
}

#[test]
fn blocks_are_small_enough() {
    assert!(size_of::<VcpuStats>() <= 6 << 10, "{}", size_of::<VcpuStats>());
    assert!(size_of::<CpuStats>() <= 6 << 10, "{}", size_of::<CpuStats>());
}

#[test]
fn bucket_bounds_are_powers_of_two() {
    for (ticks, bucket) in [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
        (4, 2),
        (1023, 9),
        (1024, 10),
        ((1 << 23) - 1, 22),
        (1 << 23, 23),
        (1 << 40, 23),
        (u64::MAX, 23),
    ] {
        let stats = ExitStats::new();
        stats.record(Reason::Hvc, ticks);
        let mut copy = ExitSnapshot::new();
        copy.add(&stats);
        let filled: Vec<_> = (0..BUCKETS).filter(|k| copy.reason(Reason::Hvc).histogram[*k] == 1).collect();
        assert_eq!(filled, [bucket], "{ticks} ticks");
    }
}

#[test]
fn an_exit_is_counted_for_vcpu_and_cpu_alike() {
    let (vcpu, cpu) = (VcpuStats::new(), CpuStats::new());
    record_exit(&vcpu, &cpu, Reason::Wfi, 1000, 70);
    record_exit(&vcpu, &cpu, Reason::Wfi, 500, 30);
    record_exit(&vcpu, &cpu, Reason::Hvc, 1, 0);
    for exits in [&vcpu.exits, &cpu.exits] {
        assert_eq!(exits.total(), 3);
        let wfi = exits.reason(Reason::Wfi);
        assert_eq!((wfi.count(), wfi.total_ticks(), wfi.max_ticks()), (2, 100, 70));
        assert_eq!(exits.reason(Reason::Hvc).count(), 1);
    }
    let mut exits = ExitSnapshot::new();
    let of_vcpu = vcpu.snapshot(0, &mut exits);
    let of_cpu = cpu.snapshot(0, &mut exits);
    assert_eq!((of_vcpu.guest, of_vcpu.hypervisor), (1501, 100));
    assert_eq!((of_cpu.guest, of_cpu.hypervisor), (1501, 100));
    assert_eq!(exits.total(), 6, "snapshots add up");
}

#[test]
fn a_vcpus_times_cover_its_life() {
    let (vcpu, cpu) = (VcpuStats::new(), CpuStats::new());
    vcpu.start(100);
    vcpu.transition(VcpuState::Ready, 150);
    vcpu.transition(VcpuState::Running, 160);
    vcpu.add_switching(5);
    record_exit(&vcpu, &cpu, Reason::Wfi, 40, 15);
    vcpu.transition(VcpuState::Blocked, 220);
    let mut exits = ExitSnapshot::new();
    let at = |now, exits: &mut _| vcpu.snapshot(now, exits);
    let totals = at(300, &mut exits);
    assert_eq!(
        totals,
        VcpuTotals { guest: 40, hypervisor: 20, ready: 10, blocked: 80, off: 50, ..Default::default() }
    );
    let all = totals.guest + totals.hypervisor + totals.ready + totals.blocked + totals.off;
    assert_eq!(all, 300 - 100);
    vcpu.transition(VcpuState::Off, 310);
    assert_eq!(at(400, &mut exits).off, 50 + 90);
    assert_eq!(at(400, &mut exits).blocked, 90);
}

#[test]
fn a_cpus_times_cover_elapsed_even_while_idle() {
    let (vcpu, cpu) = (VcpuStats::new(), CpuStats::new());
    cpu.start(1000);
    cpu.add_switching(10);
    record_exit(&vcpu, &cpu, Reason::IrqSlice, 200, 20);
    cpu.idle_end(1230);
    cpu.idle_begin(1230);
    let check = |now| {
        let t = cpu.snapshot(now, &mut ExitSnapshot::new());
        assert_eq!(t.guest + t.hypervisor + t.idle, t.elapsed);
        t
    };
    assert_eq!(check(1300).idle, 70);
    cpu.idle_end(1400);
    assert_eq!(check(1400).idle, 170);
}

#[test]
fn ticks_convert_without_overflow() {
    const DAY: u64 = 86_400;
    for hz in [1_000_000u64, 24_000_000, 62_500_000, 1_000_000_000, 999_999_937] {
        let rate = TickRate::new(hz);
        for seconds in [0, 1, DAY, 400 * DAY, 10_000 * DAY] {
            for rest in [0, 1, hz / 3, hz - 1] {
                let ticks = seconds * hz + rest;
                let exact = u128::from(ticks) * 1_000_000_000 / u128::from(hz);
                assert_eq!(u128::from(rate.to_ns(ticks)), exact, "{ticks} at {hz} Hz");
            }
        }
    }
    assert_eq!(TickRate::new(1).to_ns(u64::MAX), u64::MAX, "saturates");
    assert_eq!(TickRate::new(0).to_ns(7), 7, "an unset frequency does not divide by zero");
    assert_eq!(TickRate::new(u64::MAX).to_ns(u64::MAX - 1), 1_000_000_000, "absurd, and still no panic");
    assert_eq!(TickRate::new(62_500_000).from_us(10_000), 625_000);
    assert_eq!(TickRate::new(1_000_000).from_us(u64::MAX), u64::MAX);
}

#[test]
fn empty_reasons_are_left_out() {
    let line = vcpu_line("a", VcpuTotals::default(), &ExitSnapshot::new(), FORMAT);
    assert_eq!(line["exits"]["total"], 0);
    assert!(line["exits"]["by_reason"].as_object().unwrap().is_empty());
    assert_eq!(line["time_ns"]["off"], 0);
}

#[test]
fn histograms_can_be_left_out() {
    let stats = ExitStats::new();
    stats.record(Reason::Sgi, 300);
    let mut exits = ExitSnapshot::new();
    exits.add(&stats);
    let line = |histograms| vcpu_line("a", VcpuTotals::default(), &exits, Format { rate: RATE, histograms });
    assert_eq!(line(true)["exits"]["by_reason"]["sgi"]["hist"], serde_json::json!([[8, 1]]));
    let without = line(false);
    assert_eq!(
        without["exits"]["by_reason"]["sgi"],
        serde_json::json!({"count": 1, "time_ns": 300, "max_ns": 300})
    );
}

#[test]
fn every_kind_of_line_is_valid() {
    let exits = ExitSnapshot::new();
    let mut text = String::new();
    let out = &mut text;
    let boot = BootLine {
        version: "0.1.0",
        cpus: 8,
        memory_bytes: 1 << 34,
        counter_hz: 62_500_000,
        vmid_bits: 4,
        vmid_usable: 15,
        policy: "clear",
        slice_us: 10_000,
        image_bytes: 300_000,
        trace: Some((0x8000_0000, 0x20_0040)),
    };
    write_boot(out, &boot).unwrap();
    let start = StartLine { to_first_guest_ns: 5, copy_ns: 2, vms: 40, vm_overhead_bytes: 50_000 };
    write_start(out, &start).unwrap();
    let vm = VmLine {
        vm: "load-0",
        vm_id: 0,
        vcpus: 2,
        state: "off",
        restarts: 3,
        memory_bytes: 1 << 26,
        resident_bytes: 8192,
        shared_bytes: 4096,
        copied_pages: 1,
        overhead_bytes: 50_000,
        frames_returned: 16_384,
        totals: VcpuTotals::default(),
        exits: &exits,
    };
    write_vm(out, FORMAT, &vm).unwrap();
    let cpu = CpuLine { cpu: 7, totals: CpuTotals::default(), tlb: TlbTotals::default(), exits: &exits };
    write_cpu(out, FORMAT, &cpu).unwrap();
    let counters = crate::vmid::VmidCounters { fast: 9, slow_ticks: 1, ..Default::default() };
    write_vmid(
        out,
        &VmidLine { policy: "clear", flush: "broadcast", bits: 4, usable: 15, counters, ghost: None },
    )
    .unwrap();
    let fault = FaultLine {
        what: "unknown \"thing\"",
        guest: Some(("load-0", 0, 1)),
        pc: 0xffff_0000_4020_1000,
        ipa: Some(0),
        base: Some(0x4020_0000),
        registers: &[1, u64::MAX],
        backtrace: &[0x4020_1000],
        ..Default::default()
    };
    write_fault(out, &fault).unwrap();
    write_end(out, &EndLine { elapsed_ns: 1, vms: 40, failed: 0, reason: "all VMs have ended" }).unwrap();
    let lines: Vec<Value> = text.split_inclusive('\n').map(parse).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["boot", "start", "vm", "cpu", "vmid", "fault", "end"]);
    assert_eq!(lines[0]["memory_bytes"], 1u64 << 34);
    assert_eq!(lines[2]["frames_returned"], 16_384);
    assert_eq!(lines[4]["fast"], 9);
    assert_eq!(lines[5]["pc"], "0xffff000040201000");
    assert_eq!(lines[5]["registers"][1], "0xffffffffffffffff");
    assert_eq!(lines[5]["what"], "unknown \"thing\"");
}

#[test]
fn a_counter_is_found_by_its_number() {
    let (a, b, cpu) = (VcpuStats::new(), VcpuStats::new(), CpuStats::new());
    for vcpu in [&a, &b] {
        vcpu.start(0);
        vcpu.transition(VcpuState::Ready, 10);
        vcpu.transition(VcpuState::Running, 30);
        vcpu.schedule_ins.increment();
        vcpu.kicks.add(2);
        record_exit(vcpu, &cpu, Reason::Wfi, 100, 7);
        vcpu.transition(VcpuState::Blocked, 137);
    }
    let one = |id| query::read(core::iter::once(&a), id, 200, RATE);
    let all = |id| query::read([&a, &b].into_iter(), id, 200, RATE);
    let wfi = Reason::Wfi as u64;
    let expected = [
        (query::EXITS, 1),
        (query::GUEST_NS, 100),
        (query::HYPERVISOR_NS, 7),
        (query::READY_NS, 20),
        (query::BLOCKED_NS, 63),
        (query::SCHEDULE_INS, 1),
        (query::MIGRATIONS, 0),
        (query::KICKS, 2),
        (query::REASON_COUNT + wfi, 1),
        (query::REASON_NS + wfi, 7),
        (query::REASON_COUNT + Reason::Other as u64, 0),
    ];
    for (id, value) in expected {
        assert_eq!(one(id), Some(value), "{id:#x}");
        assert_eq!(all(id), Some(2 * value), "{id:#x}");
    }
    const COUNT: u64 = Reason::COUNT as u64;
    for id in [8, 0xff, 0x100 + COUNT, 0x1ff, 0x200 + COUNT, 0x300, 1 << 32, (1 << 32) + 0x100, u64::MAX] {
        assert_eq!(one(id), None, "{id:#x}");
    }
}

proptest! {
    #[test]
    fn lines_parse_and_add_up_whatever_was_counted(
        name in "\\PC*",
        controls in proptest::collection::vec(any::<char>(), 0..20),
        events in proptest::collection::vec((0..Reason::COUNT, 0u32..64, any::<u64>()), 0..200),
        hz in 1_000_000u64..=1_000_000_000,
        numbers in any::<[u64; 8]>(),
    ) {
        let mut name = name;
        name.extend(controls);
        let stats = ExitStats::new();
        for (reason, shift, ticks) in &events {
            stats.record(Reason::ALL[*reason], (ticks >> shift) >> 8);
        }
        let mut exits = ExitSnapshot::new();
        exits.add(&stats);
        let [guest, hypervisor, ready, blocked, off, schedule_ins, migrations, kicks] = numbers;
        let totals = VcpuTotals { guest, hypervisor, ready, blocked, off, schedule_ins, migrations, kicks };
        let format = Format { rate: TickRate::new(hz), histograms: true };
        let line = vcpu_line(&name, totals, &exits, format);
        prop_assert_eq!(line["vm"].as_str().unwrap(), &name);
        prop_assert_eq!(line["kicks"].as_u64().unwrap(), kicks);
        prop_assert_eq!(line["exits"]["total"].as_u64().unwrap(), events.len() as u64);
        assert_adds_up(&line);
    }

    #[test]
    fn no_counter_number_panics(id in any::<u64>(), small in 0u64..0x400) {
        let vcpu = VcpuStats::new();
        for id in [id, small] {
            let _ = query::read(core::iter::once(&vcpu), id, 0, RATE);
        }
    }
}

#[test]
fn hypervisor_time_that_is_open_counts_in_a_report() {
    let cpu = CpuStats::default();
    cpu.start(100);
    cpu.switching_from(100);
    let totals = |now| cpu.snapshot(now, &mut ExitSnapshot::default());
    assert_eq!((totals(150).hypervisor, totals(150).elapsed), (50, 50));
    cpu.add_switching(60);
    cpu.switching_from(160);
    cpu.idle_begin(160);
    assert_eq!((totals(200).hypervisor, totals(200).idle), (60, 40));
    cpu.idle_end(200);
    cpu.switching_from(200);
    assert_eq!((totals(210).hypervisor, totals(210).idle, totals(210).elapsed), (70, 40, 110));
    cpu.add_switching(10);
    cpu.switching_ends();
    assert_eq!(totals(500).hypervisor, 70);
}
