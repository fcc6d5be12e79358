//! Machines as QEMU and boards describe them, and what is wrong with others.

use proptest::prelude::*;

use super::*;
use crate::platform::fdt::model::{Model, cells, texts, wide};

pub(super) const BASE: Pa = Pa(0x4000_0000);

/// What QEMU's `virt,virtualization=on,gic-version=3` describes, less what is of no interest.
pub(super) fn virt(cpus: u32) -> Model {
    let mut model = Model::new("")
        .with("interrupt-parent", cells(&[0x8001]))
        .with("#size-cells", cells(&[2]))
        .with("#address-cells", cells(&[2]))
        .with("compatible", texts(&["linux,dummy-virt"]));
    model.set("psci", "compatible", texts(&["arm,psci-1.0", "arm,psci-0.2", "arm,psci"]));
    model.set("psci", "method", texts(&["smc"]));
    model.set("memory@40000000", "reg", wide(&[0x4000_0000, 1 << 32]));
    model.set("memory@40000000", "device_type", texts(&["memory"]));
    model.set("pl011@9000000", "clock-names", texts(&["uartclk", "apb_pclk"]));
    model.set("pl011@9000000", "clocks", cells(&[0x8000, 0x8000]));
    model.set("pl011@9000000", "interrupts", cells(&[0, 1, 4]));
    model.set("pl011@9000000", "reg", wide(&[0x900_0000, 0x1000]));
    model.set("pl011@9000000", "compatible", texts(&["arm,pl011", "arm,primecell"]));
    let gic = "intc@8000000";
    model.set(gic, "phandle", cells(&[0x8001]));
    model.set(gic, "interrupts", cells(&[1, 9, 4]));
    model.set(gic, "reg", wide(&[0x800_0000, 0x1_0000, 0x80a_0000, 0xf6_0000]));
    model.set(gic, "#redistributor-regions", cells(&[1]));
    model.set(gic, "compatible", texts(&["arm,gic-v3"]));
    model.set(gic, "interrupt-controller", []);
    model.set(gic, "#interrupt-cells", cells(&[3]));
    model.set("cpus", "#size-cells", cells(&[0]));
    model.set("cpus", "#address-cells", cells(&[1]));
    model.set("cpus/cpu-map/socket0/cluster0/core0", "cpu", cells(&[0x8002]));
    for index in 0..cpus {
        let cpu = format!("cpus/cpu@{index:x}");
        model.set(&cpu, "reg", cells(&[((index / 16) << 8) | (index % 16)]));
        model.set(&cpu, "device_type", texts(&["cpu"]));
        model.set(&cpu, "compatible", texts(&["arm,cortex-a57"]));
        if cpus > 1 {
            model.set(&cpu, "enable-method", texts(&["psci"]));
        }
    }
    let ppis = [1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4, 1, 12, 4];
    model.set("timer", "interrupts", cells(&ppis));
    model.set("timer", "compatible", texts(&["arm,armv8-timer", "arm,armv7-timer"]));
    model.set("apb-pclk", "phandle", cells(&[0x8000]));
    model.set("apb-pclk", "clock-frequency", cells(&[24_000_000]));
    model.set("apb-pclk", "#clock-cells", cells(&[0]));
    model.set("apb-pclk", "compatible", texts(&["fixed-clock"]));
    model.set("aliases", "serial0", texts(&["/pl011@9000000"]));
    model.set("chosen", "linux,initrd-start", cells(&[0x4800_0000]));
    model.set("chosen", "linux,initrd-end", cells(&[0x4810_0000]));
    model.set("chosen", "bootargs", texts(&["vmid.bits=4 quiet"]));
    model.set("chosen", "stdout-path", texts(&["/pl011@9000000"]));
    model
}

/// A board in the style of Linux' device trees: buses, cells of one word, spin-table, four interrupt cells.
fn board() -> Model {
    let mut model = virt(2);
    model.set("", "#address-cells", cells(&[1]));
    model.set("", "#size-cells", cells(&[1]));
    for gone in ["psci", "memory@40000000", "intc@8000000", "pl011@9000000"] {
        model.remove(gone);
    }
    model.set("memory@0", "device_type", texts(&["memory"]));
    model.set("memory@0", "reg", cells(&[0x8000_0000, 0x4000_0000, 0, 0x3b40_0000]));
    model.set("soc", "#address-cells", cells(&[1]));
    model.set("soc", "#size-cells", cells(&[1]));
    model.set("soc", "ranges", cells(&[0x7e00_0000, 0xfe00_0000, 0x180_0000]));
    let gic = "soc/interrupt-controller@7e010000";
    model.set(gic, "compatible", texts(&["arm,gic-v3"]));
    model.set(gic, "phandle", cells(&[0x8001]));
    model.set(gic, "#interrupt-cells", cells(&[4]));
    model.set(gic, "interrupts", cells(&[1, 9, 4, 0]));
    model.set(gic, "reg", cells(&[0x7e01_0000, 0x1_0000, 0x7e04_0000, 0x8_0000]));
    model.set(gic, "redistributor-stride", wide(&[0x4_0000]));
    let uart = "soc/serial@7e201000";
    model.set(uart, "compatible", texts(&["arm,pl011", "arm,primecell"]));
    model.set(uart, "reg", cells(&[0x7e20_1000, 0x200]));
    model.set(uart, "interrupts-extended", cells(&[0x8001, 0, 57, 4, 0]));
    model.unset("timer", "interrupts");
    model.set("timer", "interrupts", cells(&[1, 14, 4, 0, 1, 10, 4, 0, 1, 11, 4, 0]));
    model.set("timer", "interrupt-names", texts(&["phys", "hyp-phys", "virt"]));
    model.set("timer", "clock-frequency", cells(&[54_000_000]));
    model.set("aliases", "serial0", texts(&["/soc/serial@7e201000"]));
    model.set("chosen", "stdout-path", texts(&["serial0:115200n8"]));
    model.set("reserved-memory", "#address-cells", cells(&[1]));
    model.set("reserved-memory", "#size-cells", cells(&[1]));
    model.set("reserved-memory", "ranges", []);
    model.set("reserved-memory/secure@3b000000", "reg", cells(&[0x3b00_0000, 0x40_0000]));
    model.set("reserved-memory/secure@3b000000", "no-map", []);
    model.set("reserved-memory/linux,cma", "size", cells(&[0x400_0000]));
    for (index, release) in [(0, 0xd8), (1, 0xe0)] {
        let cpu = format!("cpus/cpu@{index}");
        model.set(&cpu, "enable-method", texts(&["spin-table"]));
        model.set(&cpu, "cpu-release-addr", wide(&[release]));
    }
    model
}

/// The message that `model` is refused with.
fn refusal(model: &Model) -> String {
    let blob = model.blob();
    Machine::from_dtb(&blob, BASE).expect_err("must be refused").to_string()
}

#[test]
fn qemus_virt_is_read() {
    let blob = virt(4).blob();
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    assert_eq!(machine.memory[..], [PaRange::new(Pa(0x4000_0000), 1 << 32)]);
    assert!(machine.reserved.is_empty());
    assert_eq!(machine.dtb, PaRange::new(BASE, blob.len() as u64));
    let cpus: Vec<_> = (0..4).map(|mpidr| CpuNode { mpidr, enable: EnableMethod::Psci }).collect();
    assert_eq!(machine.cpus[..], cpus[..]);
    assert_eq!(machine.psci, Some(Conduit::Smc));
    assert_eq!(machine.gic.dist, PaRange::new(Pa(0x800_0000), 0x1_0000));
    assert_eq!(machine.gic.redist[..], [PaRange::new(Pa(0x80a_0000), 0xf6_0000)]);
    assert_eq!((machine.gic.redist_stride, machine.gic.maintenance), (None, IntId(25)));
    let timer = TimerInterrupts { virt: IntId(27), phys: IntId(30), hyp: IntId(26), frequency: None };
    assert_eq!(machine.timer, timer);
    let uart = UartNode {
        kind: UartKind::Pl011,
        base: Pa(0x900_0000),
        size: 0x1000,
        intid: Some(IntId(33)),
        clock_hz: Some(24_000_000),
        baud: None,
    };
    assert_eq!(machine.uart, Some(uart));
    assert_eq!(early_uart(&blob), Some(UartNode { intid: None, ..uart }));
    assert_eq!(machine.bootargs, "vmid.bits=4 quiet");
    assert_eq!(machine.initrd, Some(PaRange::new(Pa(0x4800_0000), 0x10_0000)));
}

#[test]
fn a_single_cpu_needs_no_enable_method() {
    let blob = virt(1).blob();
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    assert_eq!(machine.cpus[..], [CpuNode { mpidr: 0, enable: EnableMethod::None }]);
}

#[test]
fn a_hundred_and_twenty_eight_cpus_have_two_redistributor_regions() {
    let mut model = virt(128);
    let regions = [0x800_0000, 0x1_0000, 0x80a_0000, 0xf6_0000, 0x40_0000_0000, 0x400_0000];
    model.set("intc@8000000", "reg", wide(&regions));
    model.set("intc@8000000", "#redistributor-regions", cells(&[2]));
    let blob = model.blob();
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    assert_eq!(machine.cpus.len(), 128);
    assert_eq!(machine.cpus[127].mpidr, 0x70f);
    assert_eq!(machine.gic.redist[1], PaRange::new(Pa(0x40_0000_0000), 0x400_0000));
    model.set("intc@8000000", "#redistributor-regions", cells(&[3]));
    assert!(refusal(&model).contains("#redistributor-regions"));
    assert!(refusal(&virt(129)).contains("-smp 128"));
}

#[test]
fn a_board_with_buses_and_spin_tables_is_read() {
    let blob = board().blob();
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    let banks = [PaRange::new(Pa(0), 0x3b40_0000), PaRange::new(Pa(0x8000_0000), 0x4000_0000)];
    assert_eq!(machine.memory[..], banks, "sorted");
    assert_eq!(machine.cpus[1].enable, EnableMethod::SpinTable { release: Pa(0xe0) });
    assert_eq!(machine.psci, None);
    assert_eq!(machine.gic.dist.base, Pa(0xfe01_0000));
    assert_eq!(machine.gic.redist_stride, Some(0x4_0000));
    assert_eq!(machine.timer.phys, IntId::ppi(14));
    assert_eq!((machine.timer.hyp, machine.timer.virt), (IntId::ppi(10), IntId::ppi(11)));
    assert_eq!(machine.timer.frequency, Some(54_000_000));
    let uart = machine.uart.unwrap();
    assert_eq!((uart.base, uart.intid, uart.baud), (Pa(0xfe20_1000), Some(IntId::spi(57)), Some(115_200)));
    assert_eq!(uart.clock_hz, None);
    let secure = Reserved { region: PaRange::new(Pa(0x3b00_0000), 0x40_0000), no_map: true };
    assert_eq!(machine.reserved[..], [secure], "what asks for room later isn't reserved now");
}

/// Trap 27: the map's first entry counts, and both kinds of reservation do.
#[test]
fn reservations_of_both_kinds_are_kept() {
    let mut model = virt(1);
    model.set("reserved-memory", "#address-cells", cells(&[2]));
    model.set("reserved-memory", "#size-cells", cells(&[2]));
    model.set("reserved-memory", "ranges", []);
    model.set("reserved-memory/a@50000000", "reg", wide(&[0x5000_0000, 0x1000, 0x6000_0000, 0x2000]));
    model.set("reserved-memory/off@70000000", "reg", wide(&[0x7000_0000, 0x1000]));
    model.set("reserved-memory/off@70000000", "status", texts(&["disabled"]));
    let blob = model.blob_with_reservations(&[(0x4000_0000, 0x10), (0x4100_0000, 0x1000)]);
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    let regions: Vec<_> =
        machine.reserved.iter().map(|entry| (entry.region.base.0, entry.region.size)).collect();
    let expected = [(0x4000_0000, 0x10), (0x4100_0000, 0x1000), (0x5000_0000, 0x1000), (0x6000_0000, 0x2000)];
    assert_eq!(regions, expected);
}

/// Trap 40: several banks, some above 4 GiB, and one that only the secure world has.
#[test]
fn several_banks_are_sorted_and_disabled_ones_left_out() {
    let mut model = virt(1);
    for (base, size, status) in
        [(0x8_0000_0000, 1 << 34, "okay"), (0x2000_0000, 1 << 29, "ok"), (0xe00_0000, 1, "disabled")]
    {
        let node = format!("memory@{base:x}");
        model.set(&node, "device_type", texts(&["memory"]));
        model.set(&node, "reg", wide(&[base, size, 0, 0]));
        model.set(&node, "status", texts(&[status]));
    }
    let blob = model.blob();
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    let bases: Vec<u64> = machine.memory.iter().map(|bank| bank.base.0).collect();
    assert_eq!(bases, [0x2000_0000, 0x4000_0000, 0x8_0000_0000]);
}

#[test]
fn other_machines_are_refused_with_what_to_do() {
    let mut gic_v2 = virt(2);
    gic_v2.set("intc@8000000", "compatible", texts(&["arm,cortex-a15-gic"]));
    let message = refusal(&gic_v2);
    assert!(message.contains("/intc@8000000: compatible = \"arm,cortex-a15-gic\""), "{message}");
    assert!(message.contains("gic-version=3"), "{message}");
    let mut no_el2 = virt(2);
    no_el2.unset("intc@8000000", "interrupts");
    assert!(refusal(&no_el2).contains("virtualization=on"));
    let bad_uart = early_uart(&gic_v2.blob());
    assert_eq!(bad_uart.map(|uart| uart.base), Some(Pa(0x900_0000)), "the message needs a console");
}

/// One thing changed at a time; the message names the place, and what is wrong with it.
#[test]
fn each_wrong_entry_is_named() {
    type Change = fn(&mut Model);
    let cases: [(Change, &[&str]); 30] = [
        (|m| m.remove("intc@8000000"), &["interrupt controller", "missing", "gic-v3"]),
        (|m| m.set("intc@8000000", "reg", wide(&[0x800_0000, 0x1_0000])), &["/intc@8000000", "reg"]),
        (|m| m.set("intc@8000000", "reg", wide(&[0x800_1000, 0x1_0000, 0, 0])), &["0x8001000", "aligned"]),
        (|m| m.set("intc@8000000", "reg", [0; 7]), &["reg has 7 bytes"]),
        (|m| m.set("intc@8000000", "#redistributor-regions", cells(&[0])), &["= 0", "1 to 16"]),
        (|m| m.set("intc@8000000", "#redistributor-regions", cells(&[u32::MAX])), &["1 to 16"]),
        (|m| m.set("intc@8000000", "redistributor-stride", wide(&[1])), &["stride = 0x1"]),
        (|m| m.set("intc@8000000", "#interrupt-cells", cells(&[1])), &["#interrupt-cells = 1", "3 cells"]),
        (|m| m.set("intc@8000000", "interrupts", cells(&[0, 9, 4])), &["must be a PPI"]),
        (|m| m.set("intc@8000000", "interrupts", cells(&[1, 16, 4])), &["interrupts = 16"]),
        (|m| m.remove("timer"), &["timer", "missing"]),
        (|m| m.set("timer", "interrupts", cells(&[1, 13, 4])), &["/timer", "interrupts"]),
        (|m| m.set("timer", "interrupts", cells(&[7, 13, 4].repeat(4))), &["/timer", "= 13", "type"]),
        (|m| m.set("timer", "interrupt-names", texts(&["virt"])), &["/timer", "EL2"]),
        (|m| m.set("timer", "clock-frequency", cells(&[0])), &["clock-frequency = 0"]),
        (|m| m.remove("memory@40000000"), &["/memory", "missing"]),
        (|m| m.set("memory@40000000", "reg", wide(&[0, 0])), &["/memory", "missing"]),
        (|m| m.set("memory@40000000", "reg", wide(&[1 << 63, 1 << 63])), &["/memory@40000000", "64 bits"]),
        (|m| m.set("memory@40000000", "reg", wide(&[0, 4096, 4095, 1])), &["= 0xfff", "overlaps"]),
        (|m| m.remove("cpus"), &["/cpus", "missing"]),
        (|m| m.set("cpus/cpu@1", "reg", cells(&[0])), &["/cpus/cpu@1", "reg = 0x0", "another CPU"]),
        (|m| m.set("cpus/cpu@1", "reg", cells(&[1 << 31])), &["/cpus/cpu@1", "0x80000000", "affinity"]),
        (|m| m.unset("cpus/cpu@1", "reg"), &["/cpus/cpu@1", "reg is missing"]),
        (|m| m.set("cpus/cpu@1", "enable-method", texts(&["magic"])), &["enable-method = \"magic\"", "psci"]),
        (|m| m.set("cpus/cpu@1", "enable-method", texts(&["spin-table"])), &["cpu-release-addr is missing"]),
        (|m| m.remove("psci"), &["enable-method = \"psci\"", "arm,psci-0.2"]),
        (|m| m.set("psci", "method", texts(&["call"])), &["/psci", "method = \"call\"", "smc"]),
        (|m| m.set("chosen", "linux,initrd-end", cells(&[0x4800_0000])), &["/chosen", "0x48000000", "above"]),
        (|m| m.unset("chosen", "linux,initrd-end"), &["/chosen", "initrd-end is missing"]),
        (
            |m| m.set("chosen", "stdout-path", texts(&["serial7:9600"])),
            &["stdout-path = \"serial7:9600\"", "aliases"],
        ),
    ];
    for (change, words) in cases {
        let mut model = virt(2);
        change(&mut model);
        let message = refusal(&model);
        for word in words {
            assert!(message.contains(word), "{word:?} isn't in: {message}");
        }
    }
}

#[test]
fn too_many_of_anything_are_refused() {
    let mut banks = virt(1);
    banks.set("memory@40000000", "reg", wide(&(0..33).flat_map(|n| [n << 32, 4096]).collect::<Vec<_>>()));
    assert!(refusal(&banks).contains("32 banks"));
    let map: Vec<_> = (0..97).map(|n| (n << 20, 4096)).collect();
    let blob = virt(1).blob_with_reservations(&map);
    let message = Machine::from_dtb(&blob, BASE).unwrap_err().to_string();
    assert!(message.contains("96 reserved"), "{message}");
    let mut huge = virt(1);
    huge.set("blob", "data", vec![0; MAX_DTB_SIZE]);
    assert!(refusal(&huge).contains("at most 4194304"));
}

#[test]
fn a_console_that_cant_be_driven_is_none() {
    let mut model = virt(1);
    model.set("pl011@9000000", "compatible", texts(&["snps,dw-apb-uart"]));
    assert_eq!(Machine::from_dtb(&model.blob(), BASE).unwrap().uart, None);
    assert_eq!(early_uart(&model.blob()), None);
    model.unset("chosen", "stdout-path");
    assert_eq!(Machine::from_dtb(&model.blob(), BASE).unwrap().uart, None);
    model.remove("chosen");
    model.remove("aliases");
    let blob = model.blob();
    let machine = Machine::from_dtb(&blob, BASE).unwrap();
    assert_eq!((machine.uart, machine.bootargs, machine.initrd), (None, "", None));
}

#[test]
fn without_a_choice_the_console_is_the_first_serial_port() {
    let mut model = virt(1);
    model.unset("chosen", "stdout-path");
    let uart = |model: &Model| Machine::from_dtb(&model.blob(), BASE).unwrap().uart.map(|uart| uart.base);
    assert_eq!(uart(&model), Some(Pa(0x900_0000)));
    model.set("pl011@9000000", "status", texts(&["disabled"]));
    assert_eq!(uart(&model), None);
}

/// Trap 41: a console that `/chosen` names wrongly would hide the very message that says so.
#[test]
fn a_message_about_the_console_has_a_console() {
    let mut model = virt(1);
    model.set("chosen", "stdout-path", texts(&["/nothing"]));
    model.set("a-secure@8000000", "compatible", texts(&["arm,pl011"]));
    model.set("a-secure@8000000", "reg", wide(&[0x800_0000, 0x1000]));
    model.set("a-secure@8000000", "status", texts(&["disabled"]));
    assert!(refusal(&model).contains("/nothing"));
    assert_eq!(early_uart(&model.blob()).map(|uart| uart.base), Some(Pa(0x900_0000)));
}

#[test]
fn an_interrupt_of_another_controller_isnt_taken_for_the_gics() {
    let mut model = virt(1);
    model.set("pl011@9000000", "interrupt-parent", cells(&[0x8000]));
    assert_eq!(Machine::from_dtb(&model.blob(), BASE).unwrap().uart.unwrap().intid, None);
    model.set("pl011@9000000", "interrupts-extended", cells(&[0x8000, 0, 1, 4]));
    assert_eq!(Machine::from_dtb(&model.blob(), BASE).unwrap().uart.unwrap().intid, None);
    model.set("pl011@9000000", "interrupts-extended", cells(&[0x8001, 0, 1, 4]));
    assert_eq!(Machine::from_dtb(&model.blob(), BASE).unwrap().uart.unwrap().intid, Some(IntId(33)));
}

fn survive(blob: &[u8]) {
    match Machine::from_dtb(blob, BASE) {
        Ok(machine) => assert!(!machine.memory.is_empty() && !machine.cpus.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    early_uart(blob);
}

proptest! {
    #[test]
    fn words_changed_at_random_never_panic(
        is_board in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![0u32..16, any::<u32>()]), 1..6),
    ) {
        let mut blob = if is_board { board() } else { virt(3) }.blob();
        for (at, value) in changes {
            let at = at.index(blob.len() / 4) * 4;
            blob[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        survive(&blob);
    }

    #[test]
    fn bytes_changed_at_random_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut blob = board().blob();
        for (at, value) in changes {
            let at = at.index(blob.len());
            blob[at] = value;
        }
        survive(&blob);
    }

    #[test]
    fn values_of_any_length_never_panic(
        which in any::<prop::sample::Index>(),
        value in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        fn count(model: &Model) -> usize {
            model.properties.len() + model.children.iter().map(count).sum::<usize>()
        }
        fn replace(model: &mut Model, which: &mut usize, value: &[u8]) {
            for (name, old) in &mut model.properties {
                if *which == 0 && name != "phandle" {
                    *old = value.to_vec();
                }
                *which = which.wrapping_sub(1);
            }
            model.children.iter_mut().for_each(|child| replace(child, which, value));
        }
        let mut model = board();
        replace(&mut model, &mut which.index(count(&board())), &value);
        survive(&model.blob());
    }
}
