//! System tests of Linux guests with the usual kernel: boots, exits, time, virtio devices. Other kernels are in `breadth.rs`.

use super::case::Case;
use super::cases::{LONG, scenario};
use super::expect::{exits_are_what_qemu_logs, occurs, runs_well, says};
use super::{overcommit, typing};
use crate::linux::{self, Hackbench};

/// All of them.
pub fn all() -> Vec<Case> {
    let boots = |cpu: &str| {
        let text = linux_scenario(&format!("cpus = 2\ncpu = \"{cpu}\""), 2, 2);
        linux_case(&format!("linux-{cpu}"), text)
    };
    let mut cases =
        vec![boots("max"), boots("cortex-a57"), linux_exits(), syscalls(), stolen_time(), typing::case()];
    cases.extend(overcommit::cases());
    cases.extend(virtio());
    cases
}

/// A case with Linux guests, which must run well.
pub fn linux_case(name: &str, text: String) -> Case {
    let mut case = Case::scenario(name, text).expect(runs_well);
    case.limits = LONG;
    case.linux = true;
    case
}

/// The initramfs with perf, where a scenario names it.
pub const PERF: &str = "initramfs-perf";

/// System calls by perf with and without isolation of the kernel's page tables, which the kernel is asked about.
fn syscalls() -> Case {
    let guest = |isolated: bool| {
        format!(
            "[[vm]]\nname = \"kpti-{}\"\nmemory = \"256M\"\nkernel = \"vmlinuz\"\ninitrd = \"{PERF}\"\nbootargs = '{}'\n",
            u8::from(isolated),
            linux::append_perf(2000, isolated)
        )
    };
    linux_case("linux-syscalls", scenario("cpus = 2", "", &[guest(false), guest(true)]))
        .expect(says(&["kpti-0|", "\"kind\":\"perf\"", "\"isolated\":0"]))
        .expect(says(&["kpti-1|", "\"kind\":\"perf\"", "\"isolated\":1"]))
}

/// One Linux guest boots and runs hackbench five times: hardly more exits than there is to emulate, and as many as QEMU saw.
fn linux_exits() -> Case {
    let load = Hackbench { groups: 2, fds: 5, loops: 50, size: 100, runs: 5 };
    let linux = format!(
        "[[vm]]\nname = \"linux\"\nvcpus = 2\nmemory = \"96M\"\nkernel = \"vmlinuz\"\ninitrd = \"initramfs\"\nconsole = true\n\
         bootargs = '{}'\n",
        linux::append_virtio(&load)
    );
    let mut case = linux_case("linux-exits", scenario("cpus = 2\ndeterministic = true", "", &[linux]));
    case.logs_exceptions = true;
    // What the guest's scheduler does with its threads hangs on a few instructions more or less: with other seeds (which move the
    // kernel's text) there are 1,380 to 1,760 exits. What is Odometer's doing is the same each time, 455.
    case.expect(exits_are_what_qemu_logs(1900, 480))
}

/// Two Linux guests on one CPU see what the other takes. A watchdog looks on, and leaves them alone while they sleep for longer.
fn stolen_time() -> Case {
    // The pattern must not be found in the kernel's command line, which `dmesg` has too. The ninth word is `cpu0`'s stolen time.
    let script = "dmesg | grep -q [u]sing.stolen || exit 1; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; \
        set -- $(grep ^cpu0 /proc/stat); echo stolen=$(($9>20)); sleep 3; [ $9 -gt 20 ]";
    let linux = format!(
        "[[vm]]\nname = \"linux\"\ncount = 2\nmemory = \"128M\"\nkernel = \"vmlinuz\"\ninitrd = \"initramfs\"\n\
         bootargs = 'console=ttyAMA0 quiet cma=0 cryptomgr.notests odometer.exec=\"{script}\"'\n"
    );
    let text = scenario("cpus = 1", "\"vm.watchdog_ms\" = 1500", &[linux]);
    linux_case("linux-stolen-time", text)
        .expect(says(&["linux-0|", "stolen=1"]))
        .expect(says(&["linux-1|", "stolen=1"]))
}

/// Debian's own drivers and our virtio devices. Disks are files that are there, and large enough.
fn virtio() -> [Case; 2] {
    let guest = |name: &str, devices: &str, bootargs: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\nmemory = \"128M\"\nkernel = \"vmlinuz\"\ninitrd = \"initramfs\"\n{devices}\n\
             bootargs = 'console=ttyAMA0 quiet cma=0 cryptomgr.notests odometer.console=hvc0 {bootargs}'\n"
        )
    };
    let linux = |name: &str, vms: &[String]| {
        linux_case(name, scenario("cpus = 2", "", vms))
            .expect(occurs("mmio_virtio_console", 20))
            .expect(occurs("mmio_virtio_blk", 20))
    };
    // Both read the same 16 MiB from their disks; one sends them, the other compares what has come.
    let shared = "vcpus = 2\nnet = true\nconsole = true\ndisk = \"vmlinuz\"\ndisk-access = \"read-only\"";
    let server = "odometer.address=10.0.0.1/24 \
        odometer.exec=\"nc -l -p 5000 > /tmp/got; head -c 16777216 /dev/vda | cmp - /tmp/got\"";
    let client = "odometer.address=10.0.0.2/24 \
        odometer.exec=\"until ping -c 1 -w 5 10.0.0.1; do sleep 1; done; ping -c 5 10.0.0.1; \
        until head -c 16777216 /dev/vda | nc 10.0.0.1 5000; do sleep 1; done\"";
    let network =
        linux("virtio-network", &[guest("server", shared, server), guest("client", shared, client)])
            .expect(says(&["client|", "5 packets received"]))
            .expect(occurs("mmio_virtio_net", 1000));
    // What each has written is its own, and survives its reboot; a read-only disk can't be written.
    let writes = "odometer.exec=\"head -c 6 /dev/vda | grep -q again && exit 0; echo again > /dev/vda; sync; reboot -f\"";
    let refused = "odometer.exec=\"dd if=/dev/zero of=/dev/vda count=1 conv=fsync; [ $? -ne 0 ]\"";
    let private = "count = 2\nconsole = true\ndisk = \"initramfs\"";
    let disks = [
        guest("writer", private, writes),
        guest("reader", "console = true\ndisk = \"initramfs\"\ndisk-access = \"read-only\"", refused),
    ];
    [network, linux("virtio-disks", &disks).expect(says(&["writer-1: restarts"]))]
}

/// A scenario of `count` Linux guests that run hackbench twice.
fn linux_scenario(machine: &str, count: u32, vcpus: u32) -> String {
    let load = Hackbench { groups: 1, fds: 4, loops: 20, size: 100, runs: 2 };
    let bootargs = linux::append(Some(&load)).replace('"', "\\\"");
    let memory = linux::MEMORY >> 20;
    format!(
        "[machine]\n{machine}\n[[vm]]\nname = \"linux\"\ncount = {count}\nvcpus = {vcpus}\nmemory = \"{memory}M\"\n\
         kernel = \"vmlinuz\"\ninitrd = \"initramfs\"\nbootargs = \"{bootargs}\"\n"
    )
}
