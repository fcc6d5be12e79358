//! The generated tree, read back with the reader that the machine's is read with.

use super::*;
use crate::memory::address::{Pa, PaRange};
use crate::platform::fdt::{Blob, Node};
use crate::platform::machine::{Conduit, CpuNode, EnableMethod, early_uart};

const SPEC: DeviceTreeSpec<'static> =
    DeviceTreeSpec { vcpus: 2, memory: 64 << 20, bootargs: "load=idle", ramdisk: None, virtio: 0 };

/// Writes a tree for `dtc` and QEMU (`-dtb`) to look at: `ODOMETER_DTB=/tmp/guest.dtb cargo test writes_a_tree`.
#[test]
fn writes_a_tree_where_it_is_asked_to() {
    let Some(path) = std::env::var_os("ODOMETER_DTB") else { return };
    let bootargs = "console=ttyAMA0 earlycon=pl011,0x9000000 panic=-1";
    std::fs::write(path, build(&DeviceTreeSpec { bootargs, memory: 512 << 20, ..SPEC }).unwrap()).unwrap();
}

#[test]
fn the_machine_is_the_one_of_the_layout() {
    let blob = build(&SPEC).unwrap();
    let tree = Blob::new(&blob).unwrap().tree();
    let reg =
        |path: &str, index| tree.node(path).unwrap().reg(index).unwrap().map(|reg| (reg.address, reg.size));
    assert_eq!(reg("/memory", 0), Some((0x4000_0000, 64 << 20)));
    assert_eq!(reg("/intc", 0), Some((0x0800_0000, 0x1_0000)));
    assert_eq!(reg("/intc", 1), Some((0x080a_0000, 0x4_0000)), "a redistributor for each vCPU");
    assert_eq!(reg("/pl011", 0), Some((0x0900_0000, 0x1000)));
    assert_eq!(reg("/pl031", 0), Some((0x0901_0000, 0x1000)));
    let cells = |path: &str| tree.node(path).unwrap().cells("interrupts").unwrap().iter().collect::<Vec<_>>();
    assert_eq!(cells("/pl011"), [0, 1, 4]);
    assert_eq!(cells("/pl031"), [0, 2, 4]);
    assert_eq!(cells("/timer"), [1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4]);
    let psci = tree.node("/psci").unwrap();
    assert!(psci.is_compatible("arm,psci-1.0") && psci.is_compatible("arm,psci-0.2"));
    assert_eq!(psci.text("method"), Ok(Some("hvc")));
    assert_eq!(tree.node("/chosen").unwrap().text("bootargs"), Ok(Some("load=idle")));
    assert_eq!(tree.node("/virtio_mmio"), None, "only what exists");
}

#[test]
fn every_vcpu_has_its_affinity_and_is_started_by_psci() {
    for vcpus in [1, 8] {
        let blob = build(&DeviceTreeSpec { vcpus, ..SPEC }).unwrap();
        let cpus = Blob::new(&blob).unwrap().tree().node("/cpus").unwrap();
        let seen: Vec<_> = cpus.children().map(|cpu| (cpu.u32("reg"), cpu.text("enable-method"))).collect();
        let expected: Vec<_> = (0..vcpus).map(|index| (Ok(Some(index)), Ok(Some("psci")))).collect();
        assert_eq!(seen, expected);
    }
}

/// What Linux' drivers ask of a primecell: a clock that can be found, and `apb_pclk` among its names.
#[test]
fn devices_have_clocks_and_the_console_is_named() {
    let blob = build(&SPEC).unwrap();
    let uart = early_uart(&blob).unwrap();
    assert_eq!((uart.base.0, uart.clock_hz), (layout::UART_BASE.0, Some(24_000_000)));
    let tree = Blob::new(&blob).unwrap().tree();
    for device in ["/pl011", "/pl031"] {
        let node = tree.node(device).unwrap();
        assert!(node.is_compatible("arm,primecell"));
        let clocks = node.cells("clocks").unwrap();
        assert!(
            clocks
                .iter()
                .all(|clock| tree.with_phandle(clock).is_some_and(|c| c.is_compatible("fixed-clock")))
        );
        assert_eq!(node.texts("clock-names").count(), clocks.len());
        assert_eq!(node.texts("clock-names").last(), Some("apb_pclk"));
    }
    let parent = tree.root().u32("interrupt-parent").unwrap().and_then(|gic| tree.with_phandle(gic));
    assert!(parent.is_some_and(|gic| gic.is_compatible("arm,gic-v3") && gic.has("interrupt-controller")));
}

/// It describes a complete machine: our own reader finds no fault but that there is no EL2.
#[test]
fn our_own_reader_misses_only_what_a_guest_hasnt() {
    use crate::platform::machine::Machine;
    let blob = build(&SPEC).unwrap();
    let message = Machine::from_dtb(&blob, Pa(0x4400_0000)).unwrap_err().to_string();
    assert!(message.contains("maintenance"), "{message}");
    // With a maintenance interrupt it is whole.
    let mut model = crate::platform::fdt::model::Model::new("");
    fn copy(node: Node<'_>, model: &mut crate::platform::fdt::model::Model) {
        for property in node.properties() {
            model.set("", property.name, property.value);
        }
        for child in node.children() {
            copy(child, model.at(child.name()));
        }
    }
    copy(Blob::new(&blob).unwrap().tree().root(), &mut model);
    model.set("intc@8000000", "interrupts", crate::platform::fdt::model::cells(&[1, 9, 4]));
    let blob = model.blob();
    let machine = Machine::from_dtb(&blob, Pa(0x4400_0000)).unwrap();
    assert_eq!(machine.memory[..], [PaRange::new(Pa(layout::RAM_BASE.0), SPEC.memory)]);
    assert_eq!(machine.cpus[1], CpuNode { mpidr: 1, enable: EnableMethod::Psci });
    assert_eq!(machine.psci, Some(Conduit::Hvc));
    assert_eq!(
        (machine.timer.virt, machine.timer.phys),
        (layout::TIMER_VIRT_INTID, layout::TIMER_PHYS_INTID)
    );
}

#[test]
fn the_ramdisk_is_named_by_its_first_byte_and_the_one_behind_the_last() {
    let blob = build(&DeviceTreeSpec { ramdisk: Some((Ipa(0x4200_0000), 0x1234)), ..SPEC }).unwrap();
    let chosen = Blob::new(&blob).unwrap().tree().node("/chosen").unwrap();
    assert_eq!(chosen.u64("linux,initrd-start"), Ok(Some(0x4200_0000)));
    assert_eq!(chosen.u64("linux,initrd-end"), Ok(Some(0x4200_1234)));
}

#[test]
fn virtio_windows_are_where_virt_has_them() {
    let blob = build(&DeviceTreeSpec { virtio: 16, vcpus: 8, ..SPEC }).unwrap();
    assert!(blob.len() <= MAX_SIZE);
    let last = Blob::new(&blob).unwrap().tree().node("/virtio_mmio@a001e00").unwrap();
    assert_eq!(last.reg(0).unwrap().map(|reg| (reg.address, reg.size)), Some((0xa00_1e00, 0x200)));
    assert_eq!(last.cells("interrupts").unwrap().iter().collect::<Vec<_>>(), [0, 31, 1]);
}

#[test]
fn the_longest_command_line_fits_and_longer_ones_or_odd_ones_dont() {
    let longest = "x".repeat(2047);
    let full = DeviceTreeSpec { vcpus: 8, virtio: 16, bootargs: &longest, ..SPEC };
    assert!(build(&full).is_ok());
    let endless = "x".repeat(MAX_SIZE);
    assert!(matches!(
        build(&DeviceTreeSpec { bootargs: &endless, ..SPEC }),
        Err(DeviceTreeError::TooLarge(_))
    ));
    let message = build(&DeviceTreeSpec { bootargs: "a\0b", ..SPEC }).unwrap_err().to_string();
    assert!(message.contains("command line"), "{message}");
}

#[test]
fn numbers_that_there_cant_be_are_refused() {
    let refused = |spec| build(&spec).unwrap_err();
    assert_eq!(refused(DeviceTreeSpec { vcpus: 0, ..SPEC }), DeviceTreeError::Vcpus(0));
    assert_eq!(refused(DeviceTreeSpec { vcpus: 9, ..SPEC }), DeviceTreeError::Vcpus(9));
    assert_eq!(refused(DeviceTreeSpec { virtio: 33, ..SPEC }), DeviceTreeError::Virtio(33));
    assert_eq!(refused(DeviceTreeSpec { memory: u64::MAX, ..SPEC }), DeviceTreeError::Memory);
    for ramdisk in [(Ipa(0), 1), (Ipa(0x4000_0000), u64::MAX), (Ipa(0x43ff_ffff), 2)] {
        assert_eq!(refused(DeviceTreeSpec { ramdisk: Some(ramdisk), ..SPEC }), DeviceTreeError::Memory);
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    assert_eq!(build(&SPEC), build(&SPEC));
}
