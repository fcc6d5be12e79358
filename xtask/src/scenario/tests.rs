//! One test for each kind of fault in a scenario, and for what a good one becomes.

use super::*;

fn own_guest() -> Result<Arc<Kernel>> {
    let mut bytes = vec![0; 0x1_0000];
    bytes[16..24].copy_from_slice(&0x2_0000u64.to_le_bytes());
    bytes[0x38..0x3c].copy_from_slice(b"ARM\x64");
    kernel::parse(&bytes).map(Arc::new)
}

fn load(text: &str) -> Result<Scenario> {
    Scenario::from_text(text, "a.toml", Path::new("/nonexistent"), &own_guest)
}

/// The faults of a scenario with these lines below a good `[[vm]]` head.
#[track_caller]
fn faults(text: &str, expected: &[&str]) {
    let error = load(text).expect_err("no fault was found").to_string();
    for part in expected {
        assert!(error.contains(part), "`{part}` is not in:\n{error}");
    }
}

#[test]
fn a_good_scenario_is_read_whole() {
    let scenario = load(
        r#"
        [machine]
        cpus = 8
        memory = "2G"
        cpu = "cortex-a76"
        threads = "multi"
        qemu = ["-d", "guest_errors"]
        [options]
        vmid.bits = 4
        "vmid.policy" = "v3-no-clear"
        console.prefix = false
        [[vm]]
        name = "web"
        kernel = "guest"
        vcpus = 2
        memory = "8M"
        count = 3
        bootargs = "load=idle"
        pin = [0, 7]
        console = true
        net = true
        [[vm]]
        kernel = "guest"
        "#,
    )
    .unwrap();
    assert_eq!(scenario.machine.cpus, 8);
    assert_eq!(scenario.machine_memory(), 2 << 30);
    assert_eq!(scenario.hypervisor_arguments(), "console.prefix=off vmid.bits=4 vmid.policy=v3-no-clear");
    assert_eq!(scenario.vms[0].names(), ["web-0", "web-1", "web-2"]);
    assert_eq!(scenario.vms[0].pin, [0, 7]);
    assert!(scenario.vms[0].console && scenario.vms[0].net && scenario.vms[0].disk.is_none());
    assert_eq!(scenario.vms[1].names(), ["vm1"]);
    assert!(!scenario.vms[1].console && !scenario.vms[1].net);
    assert_eq!(scenario.vms[1].memory, 64 << 20);
    assert!(Arc::ptr_eq(&scenario.vms[0].kernel, &scenario.vms[1].kernel), "each file is read once");
}

#[test]
fn a_kernel_that_debian_does_not_have_is_named_with_those_it_has() {
    faults("[[vm]]\nkernel = \"linux:5.10\"", &["a.toml:2: [[vm]] 1, `kernel`", "\"5.10\"", "6.12-16k"]);
}

#[test]
fn memory_is_counted_when_it_is_not_given() {
    let scenario = load("[[vm]]\nkernel = \"guest\"\nmemory = \"96M\"\ncount = 8").unwrap();
    let memory = scenario.machine_memory();
    assert!(memory > (8 * 96) << 20 && memory < (8 * 96 + 256) << 20, "{memory:#x}");
}

#[test]
fn unknown_keys_are_named_with_line_and_the_word_that_was_meant() {
    faults(
        "[[vm]]\nkernal = \"guest\"",
        &["a.toml:2: [[vm]] 1, `kernal`: this key is unknown", "did you mean `kernel`?"],
    );
    faults("[machine]\ncpu_s = 1", &["a.toml:2: `machine.cpu_s`", "did you mean `cpus`?"]);
    faults("[machines]\ncpus = 1", &["a.toml:1: `machines`", "did you mean `machine`?"]);
    faults("[[vm]]\nnetwork = 1", &["the keys known here are name, kernel"]);
}

#[test]
fn what_is_not_toml_or_of_the_wrong_type_is_named() {
    faults("[[vm]\nkernel = \"guest\"", &["a.toml:1: not TOML"]);
    faults(
        "[[vm]]\nkernel = 7",
        &["a.toml:2: [[vm]] 1, `kernel`: 7 has the wrong type", "a text in quotes is needed"],
    );
    let huge = "99999999999999999999";
    for (key, value, remedy) in [
        ("vcpus", huge, "1 to 8"),
        ("vcpus", "\"two\"", "1 to 8"),
        ("memory", huge, "a size such as \"96M\""),
        ("count", huge, "1 to 256"),
        ("pin", "[99999999999999999999]", "a list of CPUs"),
        ("net", "1", "true or false"),
    ] {
        let text = format!("[[vm]]\nkernel = \"guest\"\n{key} = {value}");
        faults(&text, &["a.toml:3", &format!("`{key}`"), remedy]);
    }
    faults(&format!("[[vm]]\nkernel = \"guest\"\nvcpus = {huge}"), &["out of range"]);
    faults("[[vm]]\nkernel = \"guest\"\nmemory = true", &["a.toml:3", "`memory`"]);
    faults("machine = 3", &["`machine`: is not a table", "write [machine]"]);
    faults("[vm]\nkernel = \"guest\"", &["`vm`: is not a list", "write [[vm]]"]);
}

#[test]
fn missing_files_are_named() {
    faults(
        "[[vm]]\nkernel = \"no-such-kernel\"\ninitrd = \"no-such-disk\"",
        &[
            "a.toml:2: [[vm]] 1, `kernel`: the file /nonexistent/no-such-kernel can't be read",
            "a.toml:3: [[vm]] 1, `initrd`: the file /nonexistent/no-such-disk",
            "relative to the scenario file",
        ],
    );
    faults("[[vm]]\nname = \"a\"", &["a.toml:1: [[vm]] 1, `kernel`: is missing", "kernel = \"guest\""]);
    faults("[machine]\ncpus = 1", &["there is no VM", "add a [[vm]]"]);
}

#[test]
fn disks_are_private_or_read_only() {
    let file = std::env::temp_dir().join(format!("odometer-disk-{}", std::process::id()));
    std::fs::write(&file, [1; 600]).unwrap();
    let vm = |access: &str| format!("[[vm]]\nkernel = \"guest\"\ndisk = \"{}\"\n{access}", file.display());
    for (access, read_only) in
        [("", false), ("disk-access = \"private\"", false), ("disk-access = \"read-only\"", true)]
    {
        let scenario = load(&vm(access)).unwrap();
        let disk = scenario.vms[0].disk.as_ref().unwrap();
        assert_eq!((disk.image.len(), disk.read_only), (600, read_only));
    }
    faults(&vm("disk-access = \"shared\""), &["a.toml:4", "shared", "read-only"]);
    faults("[[vm]]\nkernel = \"guest\"\ndisk-access = \"private\"", &["disk-access", "there is no disk"]);
    faults("[[vm]]\nkernel = \"guest\"\ndisk = \"gone.img\"", &["disk", "gone.img"]);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn numbers_out_of_range_are_named() {
    faults("[[vm]]\nkernel = \"guest\"\nvcpus = 9", &["`vcpus`: 9 is not supported: 1 to 8 vCPUs"]);
    faults("[[vm]]\nkernel = \"guest\"\nvcpus = 0", &["`vcpus`: 0"]);
    faults("[[vm]]\nkernel = \"guest\"\ncount = 257", &["`count`: 257"]);
    faults(
        "[machine]\ncpus = 129\n[[vm]]\nkernel = \"guest\"",
        &["a.toml:2: `machine.cpus`: 129", "1 to 128"],
    );
    faults(
        "[machine]\ngic-version = 2\n[[vm]]\nkernel = \"guest\"",
        &["version 2 can't be driven", "write 3"],
    );
    faults(
        "[machine]\nthreads = \"many\"\n[[vm]]\nkernel = \"guest\"",
        &["\"many\" is unknown", "\"single\""],
    );
    faults(
        "[machine]\nthreads = \"multi\"\ndeterministic = true\n[[vm]]\nkernel = \"guest\"",
        &["can't be deterministic"],
    );
}

#[test]
fn more_vms_than_supported_are_refused_in_sum() {
    let text = "[[vm]]\nname = \"a\"\nkernel = \"guest\"\ncount = 200\nmemory = \"8M\"\n\
                [[vm]]\nname = \"b\"\nkernel = \"guest\"\ncount = 57\nmemory = \"8M\"";
    faults(text, &["a.toml:4: [[vm]] 1, `count`: 257 VMs are more than 256", "lower the counts"]);
}

#[test]
fn bad_sizes_are_named() {
    faults(
        "[[vm]]\nkernel = \"guest\"\nmemory = \"lots\"",
        &["a.toml:3: [[vm]] 1, `memory`: \"lots\" is no size", "96M"],
    );
    faults("[[vm]]\nkernel = \"guest\"\nmemory = -5", &["-5 is no size", "negative"]);
    faults(
        "[[vm]]\nkernel = \"guest\"\nmemory = 5000000",
        &["`memory`: 5000000 is not a whole number of pages"],
    );
    faults(
        "[machine]\nmemory = \"1X\"\n[[vm]]\nkernel = \"guest\"",
        &["`machine.memory`: \"1X\" is no size"],
    );
}

#[test]
fn too_little_memory_is_counted_out() {
    faults(
        "[[vm]]\nkernel = \"guest\"\nmemory = \"1M\"",
        &["`memory`: 1M is too little", "kernel 128 KiB", "at least \"3M\""],
    );
    faults(
        "[machine]\nmemory = \"512M\"\n[[vm]]\nkernel = \"guest\"\nmemory = \"96M\"\ncount = 8",
        &["a.toml:2: `machine.memory`: 512M is too little for 8 VMs", "or leave the key out"],
    );
    faults("[[vm]]\nkernel = \"guest\"\nmemory = \"200G\"\ncount = 2", &["more than the 255 GiB"]);
}

#[test]
fn pins_must_fit_the_machine() {
    faults(
        "[machine]\ncpus = 2\n[[vm]]\nkernel = \"guest\"\npin = [2]",
        &["a.toml:5: [[vm]] 1, `pin`: CPU 2 does not exist: the machine has 2", "raise machine.cpus to 3"],
    );
    faults("[[vm]]\nkernel = \"guest\"\nvcpus = 2\npin = [0, 1, 0]", &["3 CPUs are named for 2 vCPUs"]);
    faults("[[vm]]\nkernel = \"guest\"\npin = [-1]", &["`pin`: -1"]);
}

#[test]
fn pinned_vmids_must_leave_some() {
    let text = |count: u32, more: &str| {
        format!(
            "[machine]\ncpus = 8\n[options]\n\"vmid.bits\" = 4\n[[vm]]\nkernel = \"guest\"\ncount = {count}\nvmid = \"pinned\"\n{more}"
        )
    };
    let more = "[[vm]]\nname = \"more\"\nkernel = \"guest\"\nvmid = \"pinned\"";
    assert!(load(&text(6, "")).unwrap().vms[0].pinned_vmid);
    faults(
        &text(6, more),
        &[
            "[[vm]] 2, `vmid`: 7 VMs have a pinned VMID, of 15",
            "pin at most 6",
            "each of 8 CPUs",
            "raise vmid.bits",
        ],
    );
    faults("[[vm]]\nkernel = \"guest\"\nvmid = \"7\"", &["`vmid`: \"7\" is unknown", "\"pinned\""]);
}

#[test]
fn names_must_be_good_and_unique() {
    let two = |first: &str, second: &str| {
        format!("[[vm]]\n{first}\nkernel = \"guest\"\n[[vm]]\n{second}\nkernel = \"guest\"")
    };
    faults(&two("name = \"a\"", "name = \"a\""), &["a.toml:5: [[vm]] 2, `name`: two VMs are called \"a\""]);
    faults(&two("name = \"a\"\ncount = 2", "name = \"a-1\""), &["two VMs are called \"a-1\""]);
    faults("[[vm]]\nname = \"a b\"\nkernel = \"guest\"", &["\"a b\" can't be a VM's name"]);
    for name in ["", "-", "_a", "1a", "\u{e9}", "a/b"] {
        let named = format!("[[vm]]\nname = \"{name}\"\nkernel = \"guest\"");
        faults(&named, &[&format!("a.toml:2: [[vm]] 1, `name`: \"{name}\" can't be a VM's name")]);
    }
    faults("[[vm]]\nname = \"default\"\nkernel = \"guest\"", &["another meaning"]);
}

#[test]
fn options_are_those_of_the_hypervisor() {
    let with = |option: &str| format!("[options]\n{option}\n[[vm]]\nkernel = \"guest\"");
    faults(&with("vmid.bit = 4"), &["a.toml:2: `options.vmid.bit`", "did you mean `vmid.bits`?"]);
    faults(&with("vmid.bits = 17"), &["\"17\" is not a whole number from 4 to 16"]);
    faults(
        &with("\"vmid.policy\" = \"cleer\""),
        &["\"cleer\" is not among its values", "did you mean clear?"],
    );
    faults(&with("vmid.bits = [4]"), &["neither a word"]);
}

#[test]
fn usable_vmids_must_outnumber_the_cpus() {
    let text = "[machine]\ncpus = 15\n[options]\nvmid.bits = 4\n[[vm]]\nkernel = \"guest\"";
    faults(
        text,
        &["a.toml:4: `options.vmid.bits`: 15 usable VMIDs are not more than the 15 CPUs", "at least 5 bits"],
    );
    assert!(load(&text.replace("15", "14")).is_ok());
}

#[test]
fn kernels_must_lie_in_ram_and_nothing_may_overlap() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("raw"), vec![1; 0x10_0000]).unwrap();
    std::fs::write(directory.path().join("disk"), vec![1; 0x30_0000]).unwrap();
    let error = |keys: &str| {
        let text = format!("[[vm]]\nkernel = \"raw\"\nmemory = \"4M\"\n{keys}");
        Scenario::from_text(&text, "a.toml", directory.path(), &own_guest).unwrap_err().to_string()
    };
    assert!(
        error("load = 0x8000000")
            .contains("wants to be at 0x8000000, but RAM is from 0x40000000 to 0x40400000")
    );
    assert!(error("load = 0x40400000").contains("`load`"));
    assert!(error("load = 0x40380000").contains("`memory`: 4M is too little"));
    assert!(error("load = -1").contains("`load`: -1 is no address"));
    assert!(
        error("entry = 0x40000000").contains("`entry`: the entry 0x40000000 is no instruction of the kernel")
    );
    assert!(error("initrd = \"disk\"").contains("ramdisk 3072 KiB"));
    assert!(error("dtb = \"raw\"").contains("`dtb`: is not a device tree blob"));
    let own = "[[vm]]\nkernel = \"guest\"\nload = 0x40080000";
    assert!(load(own).unwrap_err().to_string().contains("only for a raw binary"));
}

#[test]
fn a_scenario_of_the_command_line_is_checked_the_same_way() {
    let mut vm = Vm::new("guest", own_guest().unwrap());
    vm.vcpus = 9;
    let scenario = Scenario { machine: Machine::default(), options: vec![], vms: vec![vm] };
    let error = scenario.check("the command line").unwrap_err().to_string();
    assert!(error.starts_with("the command line: [[vm]] 1, `vcpus`: 9 vCPUs are not supported"), "{error}");
}

#[test]
fn assignments_are_split_at_the_first_equals_sign() {
    assert_eq!(assignment("vmid.bits=4").unwrap(), ("vmid.bits".into(), "4".into()));
    assert!(assignment("vmid.bits").is_err());
    assert!(assignment("=4").is_err());
}
