//! Tests that the host tool and the hypervisor mean the same: what is checked and written here is read by the
//! hypervisor's own code.

use std::sync::Arc;

use odometer::bundle::Bundle;
use odometer::platform::options::Options;
use odometer::vm::load::{Images, place};

use crate::fit;
use crate::scenario::{Kernel, Machine, Scenario, Vm, kernel};

/// An arm64 `Image` of so many bytes.
fn image(length: usize, text_offset: u64, image_size: u64) -> Arc<Kernel> {
    let mut bytes = vec![0; length];
    bytes[8..16].copy_from_slice(&text_offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&image_size.to_le_bytes());
    bytes[0x38..0x3c].copy_from_slice(b"ARM\x64");
    Arc::new(kernel::parse(&bytes).unwrap())
}

fn scenario(vms: Vec<Vm>) -> Scenario {
    Scenario { machine: Machine { cpus: 4, ..Machine::default() }, options: vec![], vms }
}

#[test]
fn the_hypervisor_reads_what_is_written() {
    let mut first = Vm::new("first", image(5000, 0, 0x1_0000));
    first.ramdisk = Some(Arc::new(b"a ramdisk".to_vec()));
    let mut second = Vm::new("second", Arc::new(kernel::parse(b"raw binary").unwrap()));
    second.vcpus = 3;
    second.count = 7;
    second.memory = (3 << 30) + 4096;
    second.pin = vec![3, 0, 1];
    second.pinned_vmid = true;
    second.bootargs = "load=idle quiet=\"a b\"".into();
    second.load = Some(0x4100_0000);
    second.entry = Some(0x4100_0004);
    let scenario = scenario(vec![first, second]);
    scenario.check("test").unwrap();
    let bundle = fit::write(&scenario).unwrap();
    let read = Bundle::parse(&bundle.bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read.vms(), 8);
    let configs: Vec<_> = read.configs().collect();
    for (vm, config) in scenario.vms.iter().zip(&configs) {
        assert_eq!(vm.name, config.name);
        assert_eq!((vm.count, vm.vcpus, vm.memory), (config.count, config.vcpus, config.memory));
        assert_eq!(vm.pin, config.pin.iter().map(|cpu| u32::from(*cpu)).collect::<Vec<_>>());
        assert_eq!(vm.pinned_vmid, config.pinned_vmid);
        assert_eq!(vm.bootargs, config.bootargs);
        assert_eq!(vm.kernel.bytes, config.kernel.data);
        assert_eq!((vm.load, vm.entry), (config.kernel.load, config.kernel.entry));
        assert_eq!(vm.ramdisk.as_ref().map(|bytes| &bytes[..]), config.ramdisk);
        let names: Vec<String> = (0..vm.count).map(|index| config.vm_name(index).to_string()).collect();
        assert_eq!(vm.names(), names);
    }
}

#[test]
fn both_take_the_same_options() {
    for (key, value) in [
        ("vmid.policy", "clear"),
        ("vmid.policy", "v3-no-clear"),
        ("vmid.policy", "v3-clear-zero"),
        ("vmid.policy", "tri-state"),
        ("vmid.policy", "merged"),
        ("vmid.policy", "global"),
        ("vmid.policy", "reclaim"),
        ("vmid.policy", "none"),
        ("vmid.flush", "broadcast"),
        ("vmid.flush", "local"),
        ("vmid.flush", "lazy"),
        ("vmid.victim", "adaptive"),
        ("vmid.victim", "newest"),
        ("vmid.victim", "lru"),
        ("vmid.victim", "random"),
        ("vmid.victim", "clock"),
        ("vmid.victim", "oldest"),
        ("vmid.batch", "0"),
        ("vmid.batch", "1"),
        ("vmid.batch", "64"),
        ("vmid.batch", "65"),
        ("sched.vmid_affinity", "0"),
        ("sched.vmid_affinity", "64"),
        ("sched.vmid_affinity", "65"),
        ("vmid.ghost", "on"),
        ("vmid.ghost", "yes"),
        ("debug.fault", "no-tlbi"),
        ("debug.fault", "tlbi"),
        ("vmid.bits", "3"),
        ("vmid.bits", "4"),
        ("vmid.bits", "16"),
        ("vmid.bits", "17"),
        ("vmid.bits", "+5"),
        ("vmid.bit", "4"),
        ("sched.slice_us", "99"),
        ("sched.slice_us", "100"),
        ("sched.slice_us", "10000000"),
        ("sched.slice_us", "10000001"),
        ("report.period_ms", "0"),
        ("report.period_ms", "86400000"),
        ("report.period_ms", "86400001"),
        ("vm.merge", "off"),
        ("vm.merge", "no"),
        ("vm.watchdog_ms", "0"),
        ("vm.watchdog_ms", "86400000"),
        ("vm.watchdog_ms", "86400001"),
        ("vm.watchdog", "1"),
        ("vm.watchdog", "restart"),
        ("vm.watchdog", "ignore"),
        ("vm.panic", "end"),
        ("vm.panic", "restart"),
        ("vm.panic", "ignore"),
        ("vm.panic", "reboot"),
        ("console.prefix", "on"),
        ("console.prefix", "off"),
        ("console.prefix", "true"),
        ("stats.histograms", "off"),
        ("stats.histogram", "off"),
        ("trace.all", "on"),
    ] {
        let mut scenario = scenario(vec![Vm::new("a", image(5000, 0, 0x1_0000))]);
        scenario.set_option(key, value);
        let here = scenario.check("test");
        let there = Options::parse(&scenario.hypervisor_arguments());
        assert_eq!(here.is_ok(), there.is_ok(), "{key}={value}: {here:?}, {there:?}");
    }
}

/// What passes the check here can be placed there, and what is refused here can't.
#[test]
fn both_find_the_same_guests_too_large() {
    let kernels = [
        image(0x1_0000, 0, 0x1_0000),
        image(0x18_0000, 0, 0x1f_f000),
        image(0x1_0000, 0x8_0000, 0x10_0000),
        image(0x1_0000, 0, 0),
        Arc::new(kernel::parse(&vec![1; 0x12_3456]).unwrap()),
    ];
    let mut fitting = 0;
    for kernel in kernels {
        for ramdisk in [0, 1, 0x8_0000, 0x1f_0001, 0x20_0000] {
            for pages in (0..40).map(|step| 16 + step * 64) {
                let mut vm = Vm::new("a", Arc::clone(&kernel));
                vm.memory = pages * 4096;
                vm.ramdisk = (ramdisk > 0).then(|| Arc::new(vec![0; ramdisk]));
                let here = scenario(vec![vm]).check("test");
                let there = place(&Images {
                    kernel: &kernel.bytes,
                    load: None,
                    entry: None,
                    ramdisk: ramdisk as u64,
                    dtb: odometer::vm::device_tree::MAX_SIZE as u64,
                    memory: pages * 4096,
                });
                assert_eq!(
                    here.is_ok(),
                    there.is_ok(),
                    "{pages} pages, ramdisk {ramdisk}: {here:?}, {there:?}"
                );
                fitting += usize::from(here.is_ok());
            }
        }
    }
    assert!(fitting > 200, "{fitting}");
}
