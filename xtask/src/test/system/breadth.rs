//! System tests of guests' breadth and life: kernels, hotplug, panics, the watchdog. `cargo xtask matrix` boots many more kernels.

use anyhow::{Context, Result, ensure};

use super::bug;
use super::case::{Case, Outcome};
use super::cases::{MESSAGING, scenario, vm};
use super::expect::{adds_up, all_ended, guests_are_content, occurs, runs_well, says, vm_failed};
use super::linux::linux_case;
use crate::linux::{self, Release};
use crate::matrix::judge;

/// All of them.
pub fn all() -> Vec<Case> {
    let mut cases = own_guests();
    cases.extend([kernels(), hotplug(), panics(), bug::case()]);
    cases
}

/// Our own guest hangs or says that it has panicked; others go on.
fn own_guests() -> Vec<Case> {
    let talk = || vm("talk", 2, MESSAGING, "");
    let run = |name: &str, end: &str, options: &str| {
        let bad = vm("bad", 2, &format!("load=selftest end={end}"), "");
        Case::scenario(name, scenario("cpus = 2", options, &[bad, talk()]))
    };
    let ends = |case: Case| {
        // It has said that its checks went well before it stopped; its end, which comes when it is started again, doesn't.
        case.expect(|outcome| all_ended(outcome, 1))
            .expect(|outcome| guests_are_content(outcome, &["bad"]))
            .expect(vm_failed("bad"))
            .expect(adds_up)
    };
    let restarts = |case: Case| case.expect(runs_well).expect(restarted("bad", 1));
    let watchdog = "\"vm.watchdog_ms\" = 300";
    let again = format!("{watchdog}\n\"vm.watchdog\" = \"restart\"");
    // Registers, vectors and keys of four vCPUs that take turns on one CPU.
    let share = [vm("check", 2, "load=selftest", "count = 2")];
    vec![
        Case::scenario("shared-cpu", scenario("cpus = 1", "", &share))
            .expect(runs_well)
            .expect(occurs("irq_slice", 5)),
        // All of its vCPUs wait, without a timer.
        ends(run("watchdog-waiting", "hang", watchdog)).expect(says(&["watchdog", "bad"])),
        restarts(run("watchdog-restart", "hang", &again)).expect(says(&["watchdog", "bad"])).quick(),
        ends(run("panic-end", "panic", "")).expect(says(&["bad", "panicked"])),
        restarts(run("panic-restart", "panic", "\"vm.panic\" = \"restart\""))
            .expect(says(&["bad", "panicked"])),
    ]
}

/// The VM has started again so often.
pub fn restarted(name: &'static str, times: u64) -> impl Fn(&Outcome<'_>) -> Result<()> {
    move |outcome| {
        let mut records = outcome.captured.reports.iter().rev();
        let record = records.find(|record| record["kind"] == "vm" && record["vm"] == name);
        let restarts = &record.with_context(|| format!("no record of the VM {name}"))?["restarts"];
        ensure!(*restarts == times, "{name} has started again {restarts} times, not {times}");
        Ok(())
    }
}

/// A `[[vm]]` with one of Debian's kernels.
pub fn guest(name: &str, vcpus: u32, memory: u32, suffix: &str, more: &str, bootargs: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\nvcpus = {vcpus}\nmemory = \"{memory}M\"\nkernel = \"vmlinuz{suffix}\"\n\
         initrd = \"initramfs{suffix}\"\n{more}\nbootargs = '{bootargs}'\n"
    )
}

/// Kernels other than the usual one: PREEMPT_RT, and the later series with pages of 16 KiB.
fn kernels() -> Case {
    let releases = [Release::Rt61, Release::Pages16k612];
    let vms = releases.map(|release| {
        let suffix = format!("-{release}");
        guest(&name_of(release), 2, 192, &suffix, "", &linux::append_about())
    });
    let mut case = linux_case("linux-kernels", scenario("cpus = 2\nthreads = \"multi\"", "", &vms));
    case.kernels = releases.to_vec();
    let check = move |outcome: &Outcome<'_>| {
        for release in releases {
            let boot = judge::boot(outcome.captured, &name_of(release), release, 2)?;
            features(&boot.features).with_context(|| format!("{release}: {}", boot.features))?;
        }
        Ok(())
    };
    case.expect(check)
}

/// A VM's name has no dots.
fn name_of(release: Release) -> String {
    format!("linux-{}", release.name().replace('.', "-"))
}

/// What Linux lists of the CPU model `max`: what is offered is there, and what isn't switched is not.
fn features(listed: &str) -> Result<()> {
    let has = |name: &str| listed.split_whitespace().any(|word| word == name);
    for name in ["fp", "asimd", "aes", "sha2", "crc32", "atomics", "paca", "pacg", "bti", "rng"] {
        ensure!(has(name), "{name} is missing");
    }
    for name in ["sve", "sve2", "sme", "mte", "mte3", "wfxt", "mops", "gcs"] {
        ensure!(!has(name), "{name} is there");
    }
    Ok(())
}

/// Each CPU of a guest goes off and comes back many times, CPU 0 too; what ran there goes elsewhere.
fn hotplug() -> Case {
    // The patterns must not be found in the kernel's command line, which `dmesg` has too.
    let script = "cd /sys/devices/system/cpu; yes > /dev/null & i=0; while [ $i -lt 6 ]; do i=$((i+1)); \
        for c in 3 2 1 0; do echo 0 > cpu$c/online || exit 1; [ $(nproc) -eq 3 ] || exit 2; \
        echo 1 > cpu$c/online || exit 4; [ $(nproc) -eq 4 ] || exit 5; done; done; \
        for c in 1 2 3; do echo 0 > cpu$c/online || exit 6; done; [ $(nproc) -eq 1 ] || exit 7; \
        dmesg | grep -e [W]ARNING:.CPU -e [I]nternal.error -e [d]etected.*stall && exit 8; echo cycles=$i";
    let bootargs = format!("console=ttyAMA0 quiet cma=0 cryptomgr.notests odometer.exec=\"{script}\"");
    let vms = [guest("linux", 4, 128, "", "", &bootargs)];
    linux_case("linux-hotplug", scenario("cpus = 2\nthreads = \"multi\"", "", &vms))
        .expect(says(&["linux|", "cycles=6"]))
        .expect(occurs("hvc", 100))
}

/// One guest panics with `panic=-1`, and restarts itself; one with `panic=0`, and is restarted by the hypervisor. What they
/// have written to their disks says that they have been there before. A third one sees nothing of all that.
fn panics() -> Case {
    let script = "odometer.exec=\"head -c 6 /dev/vda | grep -q again && exit 0; echo again > /dev/vda; sync; \
        echo c > /proc/sysrq-trigger; sleep 1000\"";
    let common = "console=ttyAMA0 quiet cma=0 cryptomgr.notests sysrq_always_enabled";
    let disk = "disk = \"initramfs\"";
    let vms = [
        guest("resets", 2, 128, "", disk, &format!("{common} panic=-1 {script}")),
        guest("stays", 2, 128, "", disk, &format!("{common} panic=0 {script}")),
        vm("talk", 2, MESSAGING, ""),
    ];
    linux_case("linux-panic", scenario("cpus = 2\nthreads = \"multi\"", "\"vm.panic\" = \"restart\"", &vms))
        .expect(restarted("resets", 1))
        .expect(restarted("stays", 1))
        .expect(restarted("talk", 0))
        .expect(says(&["stays", "its kernel has panicked"]))
}
