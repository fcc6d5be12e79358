//! Bundles as `cargo xtask` and U-Boot's mkimage write them, and what is wrong with others.

use arrayvec::ArrayVec;
use proptest::prelude::*;

use super::*;
use crate::platform::fdt::FdtError;
use crate::platform::fdt::model::{Model, cells, texts, wide};

/// The data behind the tree: a kernel of 100 bytes and a ramdisk of 60.
fn external() -> Vec<u8> {
    [vec![b'k'; 100], vec![0; 28], vec![b'r'; 60]].concat()
}

/// A FIT of two configurations, one of them of three VMs.
fn fit() -> Model {
    let mut model = Model::new("").with("description", texts(&["guests"])).with("timestamp", cells(&[0]));
    let kernel = "images/kernel-1";
    model.set(kernel, "type", texts(&["kernel"]));
    model.set(kernel, "arch", texts(&["arm64"]));
    model.set(kernel, "os", texts(&["linux"]));
    model.set(kernel, "compression", texts(&["none"]));
    model.set(kernel, "load", cells(&[0x4100_0000]));
    model.set(kernel, "entry", wide(&[0x4100_0040]));
    model.set(kernel, "data-size", cells(&[100]));
    model.set(kernel, "data-offset", cells(&[0]));
    model.set("images/kernel-1/hash-1", "algo", texts(&["sha256"]));
    model.set("images/ramdisk-1", "type", texts(&["ramdisk"]));
    model.set("images/ramdisk-1", "data-size", cells(&[60]));
    model.set("images/ramdisk-1", "data-offset", cells(&[128]));
    model.set("images/fdt-1", "type", texts(&["flat_dt"]));
    model.set("images/fdt-1", "data", Model::new("").blob());
    model.set("configurations", "default", texts(&["alpha"]));
    model.set("configurations/alpha", "kernel", texts(&["kernel-1"]));
    model.set("configurations/alpha", "odometer,memory", wide(&[64 << 20]));
    model.set("configurations/beta", "kernel", texts(&["kernel-1"]));
    model.set("configurations/beta", "ramdisk", texts(&["ramdisk-1"]));
    model.set("configurations/beta", "fdt", texts(&["fdt-1"]));
    model.set("configurations/beta", "odometer,vcpus", cells(&[2]));
    model.set("configurations/beta", "odometer,memory", wide(&[8 << 30]));
    model.set("configurations/beta", "odometer,count", cells(&[3]));
    model.set("configurations/beta", "odometer,pin", cells(&[1, 0]));
    model.set("configurations/beta", "odometer,vmid", texts(&["pinned"]));
    model.set("configurations/beta", "bootargs", texts(&["load=messaging groups=10"]));
    model.set("images/disk-1", "type", texts(&["filesystem"]));
    model.set("images/disk-1", "data-size", cells(&[60]));
    model.set("images/disk-1", "data-offset", cells(&[128]));
    model.set("configurations/beta", "odometer,disk", texts(&["disk-1"]));
    model.set("configurations/beta", "odometer,disk-access", texts(&["read-only"]));
    model.set("configurations/beta", "odometer,console", []);
    model.set("configurations/beta", "odometer,net", []);
    model
}

/// The file: the tree, rounded up to 4 bytes, and the data.
fn file(model: &Model) -> Vec<u8> {
    let mut file = model.blob();
    file.resize(file.len().next_multiple_of(4), 0);
    file.extend(external());
    file
}

fn refusal(model: &Model) -> String {
    let file = file(model);
    Bundle::parse(&file).expect_err("must be refused").to_string()
}

#[test]
fn a_bundle_is_read_whole() {
    let file = file(&fit());
    let bundle = Bundle::parse(&file).unwrap();
    assert_eq!(bundle.vms(), 4);
    let configs: Vec<_> = bundle.configs().collect();
    let guest_tree = Model::new("").blob();
    let kernel = Image { data: &[b'k'; 100], load: Some(0x4100_0000), entry: Some(0x4100_0040) };
    let alpha = VmConfig {
        name: "alpha",
        count: 1,
        vcpus: 1,
        memory: 64 << 20,
        pin: ArrayVec::new(),
        pinned_vmid: false,
        bootargs: "",
        kernel,
        ramdisk: None,
        fdt: None,
        disk: None,
        console: false,
        net: false,
    };
    let beta = VmConfig {
        name: "beta",
        count: 3,
        vcpus: 2,
        memory: 8 << 30,
        pin: [1, 0].into_iter().collect(),
        pinned_vmid: true,
        bootargs: "load=messaging groups=10",
        kernel,
        ramdisk: Some(&[b'r'; 60]),
        fdt: Some(&guest_tree),
        disk: Some((&[b'r'; 60], true)),
        console: true,
        net: true,
    };
    assert_eq!(configs, [alpha, beta]);
}

#[test]
fn vms_alike_are_numbered_and_a_single_one_isnt() {
    let file = file(&fit());
    let configs: Vec<_> = Bundle::parse(&file).unwrap().configs().collect();
    assert_eq!(configs[0].vm_name(0).as_str(), "alpha");
    let names: Vec<_> = (0..3).map(|index| configs[1].vm_name(index)).collect();
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["beta-0", "beta-1", "beta-2"]);
}

#[test]
fn an_address_of_0_is_none() {
    let mut model = fit();
    model.set("images/kernel-1", "load", cells(&[0]));
    model.set("images/kernel-1", "entry", wide(&[0]));
    let file = file(&model);
    let kernel = Bundle::parse(&file).unwrap().configs().next().unwrap().kernel;
    assert_eq!((kernel.load, kernel.entry), (None, None));
}

#[test]
fn data_position_counts_from_the_files_beginning() {
    let mut model = fit();
    model.unset("images/ramdisk-1", "data-offset");
    model.set("images/ramdisk-1", "data-position", cells(&[0]));
    let position = model.blob().len().next_multiple_of(4) + 128;
    model.set("images/ramdisk-1", "data-position", cells(&[position as u32]));
    let file = file(&model);
    let beta = Bundle::parse(&file).unwrap().configs().nth(1).unwrap();
    assert_eq!(beta.ramdisk, Some(&[b'r'; 60][..]));
}

#[test]
fn what_isnt_a_fit_is_recognised() {
    let foreign = |bytes: &[u8]| Bundle::parse(bytes).unwrap_err().to_string();
    assert!(foreign(b"070701000000").contains("cpio"));
    assert!(foreign(&[0x1f, 0x8b, 8, 0]).contains("gzip"));
    assert!(foreign(b"\x7fELF").contains("ELF"));
    assert!(foreign(b"something else entirely").contains("0xd00dfeed"));
    assert!(matches!(Bundle::parse(&[]), Err(BundleError::Tree(FdtError::Truncated { .. }))));
    assert!(refusal(&Model::new("")).contains("images is missing"));
    assert!(refusal(&Model::new("").child(Model::new("images"))).contains("configurations is missing"));
}

/// Traps 36, 37: one thing changed at a time; the message names place, value and remedy.
#[test]
fn each_wrong_entry_is_named() {
    type Change = fn(&mut Model);
    let cases: [(Change, &[&str]); 38] = [
        (|m| m.unset("configurations/alpha", "kernel"), &["/configurations/alpha: kernel is missing"]),
        (|m| m.set("configurations/alpha", "kernel", texts(&["linux"])), &["kernel = \"linux\"", "/images"]),
        (
            |m| m.set("configurations/alpha", "kernel", texts(&["ramdisk-1"])),
            &["type = \"ramdisk\"", "kernel"],
        ),
        (|m| m.set("configurations/alpha", "kernel", *b"open"), &["kernel has 4 bytes", "NUL"]),
        (|m| m.set("configurations/alpha", "ramdisk", texts(&["gone"])), &["alpha: ramdisk = \"gone\""]),
        (|m| m.set("configurations/beta", "fdt", texts(&["fdt-1", "overlay"])), &["beta: fdt has"]),
        (|m| m.unset("configurations/alpha", "odometer,memory"), &["alpha: odometer,memory is missing"]),
        (|m| m.set("configurations/alpha", "odometer,memory", cells(&[0])), &["= 0", "1 MiB"]),
        (
            |m| m.set("configurations/alpha", "odometer,memory", wide(&[1 << 40])),
            &["= 1099511627776", "255 GiB"],
        ),
        (
            |m| m.set("configurations/alpha", "odometer,memory", wide(&[(1 << 24) + 1])),
            &["= 16777217", "4096"],
        ),
        (|m| m.set("configurations/alpha", "odometer,memory", [0; 12]), &["12 bytes"]),
        (|m| m.set("configurations/alpha", "odometer,vcpus", cells(&[0])), &["odometer,vcpus = 0", "1 to 8"]),
        (|m| m.set("configurations/alpha", "odometer,vcpus", cells(&[9])), &["odometer,vcpus = 9", "1 to 8"]),
        (|m| m.set("configurations/alpha", "odometer,count", cells(&[0])), &["odometer,count = 0"]),
        (|m| m.set("configurations/alpha", "odometer,count", cells(&[u32::MAX])), &["= 4294967295", "256"]),
        (|m| m.set("configurations/alpha", "odometer,count", cells(&[254])), &["beta", "= 3", "256 VMs"]),
        (
            |m| m.set("configurations/beta", "odometer,pin", cells(&[1, 0, 1])),
            &["odometer,pin has 12 bytes", "each vCPU"],
        ),
        (
            |m| m.set("configurations/beta", "odometer,pin", cells(&[1, 128])),
            &["odometer,pin = 128", "0 to 127"],
        ),
        (
            |m| m.set("configurations/beta", "odometer,vmid", texts(&["7"])),
            &["odometer,vmid = \"7\"", "\"pinned\""],
        ),
        (|m| m.set("configurations/beta", "odometer,pin", [0; 7]), &["odometer,pin has 7 bytes"]),
        (|m| m.set("configurations/beta", "bootargs", vec![b'x'; 3000]), &["bootargs has 3000 bytes"]),
        (
            |m| m.set("configurations/beta", "bootargs", texts(&[&"x".repeat(2048)])),
            &["has 2048 bytes", "2047"],
        ),
        (|m| m.set("images/kernel-1", "compression", texts(&["gzip"])), &["compression = \"gzip\"", "host"]),
        (|m| m.set("images/kernel-1", "arch", texts(&["riscv"])), &["arch = \"riscv\"", "arm64"]),
        (|m| m.set("images/kernel-1", "load", [0; 3]), &["/images/kernel-1: load has 3 bytes"]),
        (|m| m.unset("images/kernel-1", "data-size"), &["data-size is missing"]),
        (|m| m.set("images/kernel-1", "data-size", cells(&[0])), &["data-size = 0", "empty"]),
        (|m| m.set("images/kernel-1", "data-size", wide(&[u64::MAX])), &["data-offset = 0x0", "cut short"]),
        (
            |m| m.set("images/kernel-1", "data-offset", cells(&[u32::MAX])),
            &["data-offset = 0xffffffff", "cut short"],
        ),
        (
            |m| m.set("images/kernel-1", "data-position", cells(&[4])),
            &["data-offset", "beside data-position"],
        ),
        (|m| m.unset("images/ramdisk-1", "data-offset"), &["/images/ramdisk-1: data is missing"]),
        (|m| m.set("images/fdt-1", "data", *b"chalk"), &["/configurations/beta: fdt has 5 bytes", "dtc"]),
        (|m| m.set("images/fdt-1", "data", []), &["/images/fdt-1: data has 0 bytes"]),
        (
            |m| {
                m.unset("images/kernel-1", "data-offset");
                m.set("images/kernel-1", "data-position", cells(&[4]));
            },
            &["data-position = 0x4", "inside the tree"],
        ),
        (
            |m| m.set("configurations/beta", "odometer,disk", texts(&["ramdisk-1"])),
            &["type = \"ramdisk\"", "filesystem"],
        ),
        (
            |m| m.set("configurations/beta", "odometer,disk-access", texts(&["shared"])),
            &["odometer,disk-access = \"shared\"", "private"],
        ),
        (
            |m| m.set("configurations/alpha", "odometer,disk-access", texts(&["private"])),
            &["alpha: odometer,disk-access", "odometer,disk "],
        ),
        (|m| m.remove("configurations/alpha"), &[]),
    ];
    for (change, words) in cases {
        let mut model = fit();
        change(&mut model);
        if words.is_empty() {
            assert!(Bundle::parse(&file(&model)).is_ok());
            continue;
        }
        let message = refusal(&model);
        for word in words {
            assert!(message.contains(word), "{word:?} isn't in: {message}");
        }
    }
}

#[test]
fn a_bundle_without_vms_is_refused() {
    let mut model = fit();
    model.remove("configurations/alpha");
    model.remove("configurations/beta");
    assert!(refusal(&model).contains("no VM"));
}

#[test]
fn names_that_would_meet_in_the_report_are_refused() {
    let with = |name: &str, count: u32| {
        let mut model = fit();
        let path = format!("configurations/{name}");
        model.set(&path, "kernel", texts(&["kernel-1"]));
        model.set(&path, "odometer,memory", wide(&[1 << 20]));
        model.set(&path, "odometer,count", cells(&[count]));
        model
    };
    assert!(refusal(&with("beta-2", 1)).contains("/configurations/beta-2"));
    for (name, count) in
        [("beta-3", 1), ("beta-02", 1), ("beta-2", 2), ("beta-", 1), ("beta2", 1), ("bet", 9)]
    {
        assert!(Bundle::parse(&file(&with(name, count))).is_ok(), "{name}");
    }
    assert!(refusal(&with("al@pha", 1)).contains("letters"));
    assert!(refusal(&with("a-name@that-has-more-than-31-characters", 1)).contains("31 characters"));
}

#[test]
fn the_most_vms_are_taken() {
    let mut model = fit();
    model.set("configurations/alpha", "odometer,count", cells(&[253]));
    assert_eq!(Bundle::parse(&file(&model)).unwrap().vms(), MAX_VMS);
}

fn survive(bytes: &[u8]) {
    match Bundle::parse(bytes) {
        Ok(bundle) => {
            let vms: u32 = bundle.configs().map(|config| config.count).sum();
            assert_eq!(vms as usize, bundle.vms(), "what was checked is what comes out");
            assert!(bundle.configs().all(|config| !config.kernel.data.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #[test]
    fn words_changed_at_random_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![0u32..200, any::<u32>()]), 1..6),
    ) {
        let mut bytes = file(&fit());
        for (at, value) in changes {
            let at = at.index(bytes.len() / 4) * 4;
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        survive(&bytes);
    }

    #[test]
    fn bytes_changed_at_random_and_cut_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = file(&fit());
        survive(&bytes[..end.index(bytes.len())]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        survive(&bytes);
    }

    #[test]
    fn any_size_and_offset_never_panic(
        size in any::<u64>(),
        offset in any::<u64>(),
        memory in any::<u64>(),
        is_position in any::<bool>(),
    ) {
        let mut model = fit();
        model.unset("images/kernel-1", "data-offset");
        model.set("images/kernel-1", if is_position { "data-position" } else { "data-offset" }, wide(&[offset]));
        model.set("images/kernel-1", "data-size", wide(&[size]));
        model.set("configurations/alpha", "odometer,memory", wide(&[memory]));
        survive(&file(&model));
    }
}
