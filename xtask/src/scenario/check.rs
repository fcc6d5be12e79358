//! Whether a scenario can run: what fits where, which names and numbers clash.

use std::collections::HashMap;
use std::sync::Arc;

use super::kernel::Format;
use super::problem::Problem;
use super::size::format as human;
use super::{MAX_CPUS, MAX_VCPUS, MAX_VMS, Scenario, Vm, options};

/// Where a guest's RAM begins.
const RAM_BASE: u64 = 0x4000_0000;
/// The most RAM of a guest or of the machine: what QEMU's `virt` places below its high devices.
const MAX_MEMORY: u64 = 255 << 30;
/// What the hypervisor takes for itself at most: image, stacks, heap, page tables and alignment.
const HYPERVISOR_BYTES: u64 = 64 << 20;
/// What a VM takes beside its RAM at most, with 8 vCPUs.
const VM_BYTES: u64 = 512 << 10;
/// Room for a guest's generated device tree.
const DEVICE_TREE_BYTES: u64 = 32 << 10;
/// Ramdisk and device tree begin at a multiple of this: the largest page that a guest may have.
const APART: u64 = 64 << 10;
/// What a device tree must not cross (Linux's arm64 boot protocol).
const BLOCK: u64 = 2 << 20;

/// Without the option.
const DEFAULT_TRACE_KIB: u64 = 1024;

/// Checks everything that `convert` couldn't see in one value alone.
pub fn check(scenario: &Scenario, problems: &mut Vec<Problem>) {
    machine(scenario, problems);
    options::check(scenario, problems);
    names(scenario, problems);
    for (index, vm) in scenario.vms.iter().enumerate() {
        one_vm(index, vm, scenario.machine.cpus, problems);
    }
    sums(scenario, problems);
    pinned_vmids(scenario, problems);
}

/// Whether VMIDs are left for the others. How many there are is known here only if the scenario says so; else the hypervisor checks.
fn pinned_vmids(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let mut bits = scenario.options.iter().filter(|(key, _)| key == "vmid.bits");
    let Some(bits) =
        bits.next().and_then(|(_, value)| value.parse::<u32>().ok()).filter(|bits| (4..=16).contains(bits))
    else {
        return;
    };
    let usable = (1u32 << bits) - 1;
    let most = usable.saturating_sub(scenario.machine.cpus + 1);
    let mut pinned = 0;
    for (index, vm) in scenario.vms.iter().enumerate().filter(|(_, vm)| vm.pinned_vmid) {
        pinned += vm.count;
        if pinned > most {
            let what = format!("{pinned} VMs have a pinned VMID, of {usable} with vmid.bits = {bits}");
            let cpus = scenario.machine.cpus;
            let remedy = format!(
                "pin at most {most} (each of {cpus} CPUs may keep another one, and one must be left), or raise vmid.bits"
            );
            problems.push(Problem::new(format!("vm.{index}.vmid"), what, remedy));
            return;
        }
    }
}

fn machine(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let machine = &scenario.machine;
    if !(1..=MAX_CPUS).contains(&machine.cpus) {
        let what = format!("{} CPUs are not supported", machine.cpus);
        problems.push(Problem::new("machine.cpus", what, format!("take 1 to {MAX_CPUS}")));
    }
    let known = |c: char| c.is_ascii_alphanumeric() || "-_,=.+".contains(c);
    if machine.cpu.is_empty() || !machine.cpu.chars().all(known) {
        let what = format!("\"{}\" is no CPU model", machine.cpu);
        problems.push(Problem::new(
            "machine.cpu",
            what,
            "take one of `qemu-system-aarch64 -cpu help`, such as max",
        ));
    }
}

fn names(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, vm) in scenario.vms.iter().enumerate() {
        let key = format!("vm.{index}.name");
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        // A device tree's names begin with a letter, and the bundle is one.
        let begins = vm.name.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || vm.name.len() > 27 || !vm.name.chars().all(good) {
            let what = format!("\"{}\" can't be a VM's name", vm.name);
            problems.push(Problem::new(key, what, "take 1 to 27 letters, digits, - and _, a letter first"));
            continue;
        }
        if vm.name == "default" {
            let what = "\"default\" has another meaning in a bundle";
            problems.push(Problem::new(key, what, "take another name"));
            continue;
        }
        for name in vm.names() {
            if let Some(other) = seen.insert(name.clone(), index) {
                let what = format!("two VMs are called \"{name}\": this and [[vm]] {}", other + 1);
                problems.push(Problem::new(key.clone(), what, "give each [[vm]] its own name"));
                break;
            }
        }
    }
}

fn one_vm(index: usize, vm: &Vm, cpus: u32, problems: &mut Vec<Problem>) {
    let mut fault = |name: &str, what: String, remedy: String| {
        problems.push(Problem::new(format!("vm.{index}.{name}"), what, remedy));
    };
    if !(1..=MAX_VCPUS).contains(&vm.vcpus) {
        fault("vcpus", format!("{} vCPUs are not supported", vm.vcpus), format!("take 1 to {MAX_VCPUS}"));
    }
    if vm.pin.len() > vm.vcpus as usize {
        let what = format!("{} CPUs are named for {} vCPUs", vm.pin.len(), vm.vcpus);
        fault("pin", what, "name one physical CPU for each vCPU, or for the first ones".into());
    }
    if let Some(cpu) = vm.pin.iter().find(|cpu| **cpu >= cpus) {
        let what = format!("CPU {cpu} does not exist: the machine has {cpus}, counted from 0");
        fault("pin", what, format!("take CPUs below {cpus}, or raise machine.cpus to {}", cpu + 1));
    }
    if vm.bootargs.contains('\0') || vm.bootargs.len() > 2047 {
        fault(
            "bootargs",
            format!("{} bytes, or a zero byte", vm.bootargs.len()),
            "take at most 2047 bytes".into(),
        );
    }
    if vm.memory == 0 || !vm.memory.is_multiple_of(4096) || vm.memory > MAX_MEMORY {
        let what = format!("{} is not a whole number of pages of 4 KiB up to 255G", human(vm.memory));
        fault("memory", what, "write a size such as \"96M\"".into());
        return;
    }
    for (name, address) in [("load", vm.load), ("entry", vm.entry)] {
        if address.is_some() && !matches!(vm.kernel.format, Format::Raw) {
            fault(
                name,
                "is only for a raw binary: an Image or ELF kernel says itself where it goes".into(),
                "leave the key out".into(),
            );
        }
    }
    placement(vm, &mut fault);
}

/// Whether kernel, ramdisk and device tree fit into the VM's RAM, one above the other.
fn placement(vm: &Vm, fault: &mut impl FnMut(&str, String, String)) {
    let ram_end = RAM_BASE + vm.memory;
    let (start, entry) = match vm.kernel.format {
        // As QEMU does: an image that wants to be at the very start goes 2 MiB up.
        Format::Image(header) => {
            if header.big_endian {
                let remedy = "build it without CONFIG_CPU_BIG_ENDIAN";
                fault("kernel", "a big-endian kernel is not supported".into(), remedy.into());
            }
            let offset = match (header.image_size, header.text_offset) {
                (0, _) => 0x8_0000,
                (_, offset @ ..0x1000) => offset + 0x20_0000,
                (_, offset) => offset,
            };
            (RAM_BASE.saturating_add(offset), None)
        }
        Format::Elf { load, entry } => (load, Some(entry)),
        Format::Raw => (vm.load.unwrap_or(RAM_BASE + 0x8_0000), vm.entry),
    };
    let size = vm.kernel.memory_bytes;
    let end = start.saturating_add(size);
    let says_where = vm.load.is_some() || matches!(vm.kernel.format, Format::Elf { .. });
    if says_where && !(RAM_BASE..ram_end).contains(&start) {
        let what =
            format!("the kernel wants to be at {start:#x}, but RAM is from {RAM_BASE:#x} to {ram_end:#x}");
        let key = if vm.load.is_some() { "load" } else { "kernel" };
        return fault(key, what, "link or load it above 0x40000000, and give the VM enough memory".into());
    }
    if let Some(entry) = entry.filter(|entry| !(start..end).contains(entry) || !entry.is_multiple_of(4)) {
        let what =
            format!("the entry {entry:#x} is no instruction of the kernel, from {start:#x} to {end:#x}");
        fault(if vm.entry.is_some() { "entry" } else { "kernel" }, what, "correct the entry address".into());
    }
    let ramdisk = vm.ramdisk.as_ref().map_or(0, |ramdisk| ramdisk.len() as u64);
    let tree = vm.device_tree.as_ref().map_or(DEVICE_TREE_BYTES, |tree| tree.len() as u64);
    // From here on in offsets from the beginning of RAM.
    let mut at = end.saturating_sub(RAM_BASE);
    if ramdisk > 0 {
        at = at.next_multiple_of(APART).saturating_add(ramdisk);
    }
    at = at.next_multiple_of(APART);
    // A device tree must not cross a 2 MiB boundary, so it may have to go past one.
    if at / BLOCK != (at + tree - 1) / BLOCK {
        at = at.next_multiple_of(BLOCK);
    }
    let needed = at + tree;
    if needed > vm.memory {
        let what = format!(
            "{} is too little: kernel {} KiB up to {end:#x}, ramdisk {} KiB, device tree {} KiB",
            human(vm.memory),
            size.div_ceil(1024),
            ramdisk.div_ceil(1024),
            tree.div_ceil(1024)
        );
        let enough = human(needed.next_multiple_of(1 << 20));
        fault("memory", what, format!("give it at least \"{enough}\" (and what the guest itself needs)"));
    }
    if vm
        .device_tree
        .as_ref()
        .is_some_and(|tree| tree.len() > 2 << 20 || !tree.starts_with(&[0xd0, 0x0d, 0xfe, 0xed]))
    {
        fault(
            "dtb",
            "is not a device tree blob of at most 2 MiB".into(),
            "compile it with `dtc -O dtb`".into(),
        );
    }
}

/// The bytes of all images, each counted once.
fn bundle_bytes(scenario: &Scenario) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut sum = 1 << 20;
    for vm in &scenario.vms {
        if seen.insert(Arc::as_ptr(&vm.kernel).addr()) {
            sum += vm.kernel.bytes.len() as u64;
        }
        let disk = vm.disk.as_ref().map(|disk| &disk.image);
        for blob in vm.ramdisk.iter().chain(&vm.device_tree).chain(disk) {
            if seen.insert(Arc::as_ptr(blob).addr()) {
                sum += blob.len() as u64;
            }
        }
    }
    sum
}

/// What the trace takes, if there is one: a ring for each CPU, and what is lost to alignment.
fn trace_bytes(scenario: &Scenario) -> u64 {
    if !scenario.is_traced() {
        return 0;
    }
    let kib = scenario.option("trace.kib").and_then(|kib| kib.parse().ok()).unwrap_or(DEFAULT_TRACE_KIB);
    (kib << 10) * u64::from(scenario.machine.cpus) + 2 * BLOCK
}

/// The machine's RAM that this scenario takes.
pub fn memory_needed(scenario: &Scenario) -> u64 {
    let vms: u64 = scenario
        .vms
        .iter()
        .map(|vm| {
            // A disk that is written all over is copied all over.
            let disk = vm.disk.as_ref().filter(|disk| !disk.read_only);
            let disk = disk.map_or(0, |disk| (disk.image.len() as u64).next_multiple_of(4096) + 4096);
            (vm.memory.next_multiple_of(2 << 20).saturating_add(VM_BYTES).saturating_add(disk))
                .saturating_mul(vm.count.into())
        })
        .fold(0, u64::saturating_add);
    // For pages that VMs have in common: half of each kernel that several boot, at most.
    let common = bundle_bytes(scenario) / 2 + (2 << 20);
    // QEMU puts the bundle half-way up a small machine.
    let bundle = bundle_bytes(scenario);
    let own = HYPERVISOR_BYTES + trace_bytes(scenario);
    vms.saturating_add(bundle).saturating_add(common).saturating_add(own).max(2 * bundle)
}

fn sums(scenario: &Scenario, problems: &mut Vec<Problem>) {
    if scenario.vms.is_empty() {
        problems.push(Problem::new("vm", "there is no VM", "add a [[vm]] with a kernel"));
    }
    let count = scenario.vm_count();
    if count > MAX_VMS {
        let what = format!("{count} VMs are more than {MAX_VMS}");
        let most =
            scenario.vms.iter().enumerate().max_by_key(|(_, vm)| vm.count).map_or(0, |(index, _)| index);
        problems.push(Problem::new(format!("vm.{most}.count"), what, "lower the counts"));
    }
    let needed = memory_needed(scenario);
    match scenario.machine.memory {
        Some(memory) if memory < needed => problems.push(Problem::new(
            "machine.memory",
            format!(
                "{} is too little for {count} VMs: {} MiB with what the hypervisor takes",
                human(memory),
                needed >> 20
            ),
            format!("write \"{}\", or leave the key out", human(needed.next_multiple_of(64 << 20))),
        )),
        Some(memory) if memory > MAX_MEMORY || !memory.is_multiple_of(1 << 20) => {
            problems.push(Problem::new(
                "machine.memory",
                format!("{} is not a whole number of MiB up to 255G", human(memory)),
                "write a size such as \"2G\"",
            ))
        }
        None if needed > MAX_MEMORY => problems.push(Problem::new(
            "vm",
            format!("the VMs take {} MiB, more than the 255 GiB of the largest machine", needed >> 20),
            "lower `memory` or `count`",
        )),
        _ => {}
    }
}
