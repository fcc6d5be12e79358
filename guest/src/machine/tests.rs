use super::*;
use proptest::prelude::*;
use vm_fdt::FdtWriter;

/// A tree like that of QEMU's `virt`.
fn blob(cpus: u32, gic: &str, method: &str) -> Vec<u8> {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_u32("#address-cells", 2).unwrap();
    fdt.property_u32("#size-cells", 2).unwrap();
    let psci = fdt.begin_node("psci").unwrap();
    fdt.property_string_list("compatible", vec!["arm,psci-1.0".into(), "arm,psci-0.2".into()]).unwrap();
    fdt.property_string("method", method).unwrap();
    fdt.end_node(psci).unwrap();
    let memory = fdt.begin_node("memory@40000000").unwrap();
    fdt.property_string("device_type", "memory").unwrap();
    fdt.property_array_u64("reg", &[0x1_0000_0000, 0x1000, 0x4000_0000, 0x80_0000]).unwrap();
    fdt.end_node(memory).unwrap();
    let node = fdt.begin_node("cpus").unwrap();
    fdt.property_u32("#address-cells", 1).unwrap();
    fdt.property_u32("#size-cells", 0).unwrap();
    for i in 0..cpus {
        let cpu = fdt.begin_node(&format!("cpu@{i}")).unwrap();
        fdt.property_string("device_type", "cpu").unwrap();
        fdt.property_u32("reg", i).unwrap();
        fdt.end_node(cpu).unwrap();
    }
    fdt.end_node(node).unwrap();
    let timer = fdt.begin_node("timer").unwrap();
    fdt.property_string("compatible", "arm,armv8-timer").unwrap();
    fdt.property_array_u32("interrupts", &[1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4]).unwrap();
    fdt.end_node(timer).unwrap();
    let intc = fdt.begin_node("intc@8000000").unwrap();
    fdt.property_string("compatible", gic).unwrap();
    fdt.property_array_u64("reg", &[0x800_0000, 0x1_0000, 0x80a_0000, 0xf6_0000]).unwrap();
    fdt.property_u32("#redistributor-regions", 1).unwrap();
    fdt.property_u32("#address-cells", 2).unwrap();
    let its = fdt.begin_node("its@8080000").unwrap();
    fdt.end_node(its).unwrap();
    fdt.end_node(intc).unwrap();
    for base in [0x900_0000u64, 0x904_0000] {
        let uart = fdt.begin_node(&format!("pl011@{base:x}")).unwrap();
        fdt.property_string_list("compatible", vec!["arm,pl011".into(), "arm,primecell".into()]).unwrap();
        fdt.property_array_u64("reg", &[base, 0x1000]).unwrap();
        fdt.end_node(uart).unwrap();
    }
    let aliases = fdt.begin_node("aliases").unwrap();
    fdt.property_string("serial1", "/pl011@9040000").unwrap();
    fdt.end_node(aliases).unwrap();
    let chosen = fdt.begin_node("chosen").unwrap();
    fdt.property_string("bootargs", "load=idle").unwrap();
    fdt.property_string("stdout-path", "serial1:115200").unwrap();
    fdt.end_node(chosen).unwrap();
    fdt.end_node(root).unwrap();
    fdt.finish().unwrap()
}

#[test]
fn a_virt_machine_is_read() {
    let blob = blob(2, "arm,gic-v3", "hvc");
    let machine = Machine::from_blob(&blob).unwrap();
    assert_eq!(machine.memory, Region { base: 0x4000_0000, size: 0x80_0000 });
    assert_eq!(machine.cpus.as_slice(), [0, 1]);
    assert_eq!(machine.psci, Some(Conduit::Hvc));
    assert_eq!(machine.distributor.base, 0x800_0000);
    assert_eq!(machine.redistributors.as_slice(), [Region { base: 0x80a_0000, size: 0xf6_0000 }]);
    assert_eq!(machine.timer, 27);
    assert_eq!(machine.uart.base, 0x904_0000, "the alias leads to the second one");
    assert_eq!(machine.bootargs, "load=idle");
}

#[test]
fn more_cpus_than_the_kernel_drives_are_counted() {
    let blob = blob(20, "arm,gic-v3", "smc");
    let machine = Machine::from_blob(&blob).unwrap();
    assert_eq!((machine.cpus.len(), machine.cpus_listed), (MAX_CPUS, 20));
    assert_eq!(machine.psci, Some(Conduit::Smc));
}

#[test]
fn a_gicv2_machine_is_refused_with_the_remedy() {
    let error = Machine::from_blob(&blob(1, "arm,cortex-a15-gic", "hvc")).unwrap_err();
    assert!(error.to_string().contains("gic-version=3"));
}

#[test]
fn something_else_is_not_a_device_tree() {
    assert!(Machine::from_blob(&[]).is_err());
    assert!(Machine::from_blob(&[0; 64]).is_err());
    assert_eq!(blob_size(&[0xd0, 0x0d, 0xfe, 0xed, 0, 0, 1, 0]), Some(256));
}

proptest! {
    #[test]
    fn a_damaged_blob_is_an_error_not_a_fault(changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..8)) {
        let mut blob = blob(2, "arm,gic-v3", "hvc");
        for (at, value) in changes {
            let at = at as usize % blob.len();
            blob[at] = value;
        }
        let _ = Machine::from_blob(&blob);
    }

    #[test]
    fn a_blob_cut_off_anywhere_is_an_error(cut in 0usize..1000) {
        let whole = blob(1, "arm,gic-v3", "hvc");
        let cut = cut.min(whole.len() - 1);
        prop_assert!(Machine::from_blob(&whole[..cut]).is_err());
    }
}
