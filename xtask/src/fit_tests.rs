//! Tests of the bundle, read back with a small reader of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::scenario::{Disk, Kernel, Machine, kernel};

/// The properties of a device tree by path.
fn properties(blob: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let word = |at: usize| u32::from_be_bytes(blob[at..at + 4].try_into().unwrap()) as usize;
    let text = |at: usize| {
        let end = blob[at..].iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(blob[at..at + end].to_vec()).unwrap()
    };
    assert_eq!(word(0), 0xd00d_feed);
    let (mut at, strings) = (word(8), word(12));
    let mut path = Vec::new();
    let mut found = BTreeMap::new();
    loop {
        match word(at) {
            1 => {
                let name = text(at + 4);
                at += 4 + (name.len() + 1).next_multiple_of(4);
                path.push(name);
            }
            2 => {
                path.pop();
                at += 4;
            }
            3 => {
                let (length, name) = (word(at + 4), text(strings + word(at + 8)));
                found.insert(format!("{}/{name}", path.join("/")), blob[at + 12..at + 12 + length].to_vec());
                at += 12 + length.next_multiple_of(4);
            }
            9 => return found,
            token => panic!("token {token}"),
        }
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte))
}

fn scenario() -> Scenario {
    let mut image = vec![7; 5000];
    image[0x38..0x3c].copy_from_slice(b"ARM\x64");
    image[16..24].copy_from_slice(&8192u64.to_le_bytes());
    let first = Arc::new(kernel::parse(&image).unwrap());
    // The same bytes read a second time are still the same image.
    let mut a = Vm::new("a", Arc::clone(&first));
    a.ramdisk = Some(Arc::new(b"disk".to_vec()));
    let mut b = Vm::new("b", Arc::new(Kernel::clone(&first)));
    b.vcpus = 2;
    b.count = 3;
    b.pin = vec![1, 0];
    b.pinned_vmid = true;
    b.bootargs = "load=idle".into();
    b.disk = Some(Disk { image: Arc::new(b"disk".to_vec()), read_only: true });
    b.console = true;
    b.net = true;
    let mut c = Vm::new("c", Arc::new(kernel::parse(b"raw").unwrap()));
    c.load = Some(0x4100_0000);
    c.entry = Some(0x4100_0001);
    Scenario { machine: Machine::default(), options: vec![], vms: vec![a, b, c] }
}

#[test]
fn each_image_is_there_once_with_its_bytes_at_its_offset() {
    let bundle = write(&scenario()).unwrap();
    let found = properties(&bundle.bytes);
    let images: Vec<&String> = found.keys().filter(|key| key.ends_with("/data-size")).collect();
    assert_eq!(
        images,
        [
            "/images/disk-1/data-size",
            "/images/kernel-1/data-size",
            "/images/kernel-2/data-size",
            "/images/ramdisk-1/data-size"
        ]
    );
    let base = number(&bundle.bytes[4..8]).next_multiple_of(4);
    let data = |name: &str| {
        let offset = base + number(&found[&format!("/images/{name}/data-offset")]);
        assert!(offset.is_multiple_of(4096), "{name} can't be shared: its data begin at {offset:#x}");
        &bundle.bytes[offset..offset + number(&found[&format!("/images/{name}/data-size")])]
    };
    assert_eq!(data("kernel-1"), &scenario().vms[0].kernel.bytes[..]);
    assert_eq!(data("kernel-2"), b"raw");
    assert_eq!(data("ramdisk-1"), b"disk");
    assert_eq!(found["/images/kernel-2/hash-1/value"], Sha256::digest(b"raw").to_vec());
}

#[test]
fn what_fit_asks_for_is_there() {
    let found = properties(&write(&scenario()).unwrap().bytes);
    assert_eq!(found["/timestamp"], [0; 4]);
    assert_eq!(found["/#address-cells"], [0, 0, 0, 2]);
    assert_eq!(found["/configurations/default"], b"a\0");
    for image in ["kernel-1", "kernel-2", "ramdisk-1"] {
        for property in ["description", "type", "arch", "os", "compression"] {
            assert!(found.contains_key(&format!("/images/{image}/{property}")), "{image} {property}");
        }
    }
    assert!(found.contains_key("/description"));
    assert_eq!(found["/images/kernel-1/type"], b"kernel\0");
    assert!(!found.contains_key("/images/kernel-1/load"), "an Image says itself where it goes");
    assert_eq!(number(&found["/images/kernel-2/load"]), 0x4100_0000);
    assert_eq!(number(&found["/images/kernel-2/entry"]), 0x4100_0001);
}

#[test]
fn configurations_say_how_each_vm_is_made() {
    let found = properties(&write(&scenario()).unwrap().bytes);
    assert_eq!(found["/configurations/a/kernel"], b"kernel-1\0");
    assert_eq!(found["/configurations/a/ramdisk"], b"ramdisk-1\0");
    assert_eq!(found["/configurations/b/kernel"], b"kernel-1\0");
    assert_eq!(found["/configurations/b/bootargs"], b"load=idle\0");
    assert_eq!(number(&found["/configurations/b/odometer,vcpus"]), 2);
    assert_eq!(number(&found["/configurations/b/odometer,count"]), 3);
    assert_eq!(found["/configurations/b/odometer,memory"], (64u64 << 20).to_be_bytes());
    assert_eq!(found["/configurations/b/odometer,pin"], [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(found["/configurations/b/odometer,vmid"], b"pinned\0");
    assert_eq!(found["/configurations/b/odometer,disk"], b"disk-1\0");
    assert_eq!(found["/configurations/b/odometer,disk-access"], b"read-only\0");
    assert_eq!(found["/images/disk-1/type"], b"filesystem\0");
    for property in ["console", "net"] {
        assert!(found[&format!("/configurations/b/odometer,{property}")].is_empty());
    }
    for property in ["pin", "vmid", "disk", "disk-access", "console", "net"] {
        assert!(!found.contains_key(&format!("/configurations/a/odometer,{property}")));
    }
}

#[test]
fn the_same_scenario_gives_the_same_hash_and_another_gives_another() {
    let one = write(&scenario()).unwrap();
    assert_eq!(one.hash, write(&scenario()).unwrap().hash);
    assert_eq!(one.hash.len(), 64);
    assert!(one.hash.starts_with(short_hash(&one.hash)));
    let mut other = scenario();
    other.vms[0].vcpus = 2;
    assert_ne!(one.hash, write(&other).unwrap().hash);
}
