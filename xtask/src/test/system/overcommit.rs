//! Linux with more vCPUs than there are CPUs: it must not see anything wrong in its time, and if it did, we would see that.

use super::case::Case;
use super::expect::{says, within};
use super::linux::linux_case;

/// The kernel's own watchdogs, set as sharp as they can be: a thread that must run every 0.4 s has not for 2 s, a grace period of RCU has
/// taken 3 s, an expedited one 0.5 s.
const WATCHDOGS: &str = "watchdog_thresh=1 rcupdate.rcu_cpu_stall_timeout=3 rcupdate.rcu_expedited=1 \
    rcupdate.rcu_exp_cpu_stall_timeout=500";

/// Finds in the kernel's log what it says when something is wrong with its time. The command line, with these patterns, is in there, too.
const COMPLAINTS: &str = "dmesg | grep -v ommand.line | grep -i -e detected.*stall -e soft.lockup -e unstable -e hung_task -e blocked.for";

/// Keeps this many vCPUs busy for some seconds.
fn busy(vcpus: u32, seconds: u32) -> String {
    format!("n=0; while [ $n -lt {vcpus} ]; do (while :; do :; done) & n=$((n+1)); done; sleep {seconds}")
}

/// A `[[vm]]` with Linux, whose shell runs `script`.
fn linux(count: u32, vcpus: u32, script: &str) -> String {
    format!(
        "[[vm]]\nname = \"linux\"\ncount = {count}\nvcpus = {vcpus}\nmemory = \"96M\"\nkernel = \"vmlinuz\"\ninitrd = \"initramfs\"\n\
         bootargs = 'console=ttyAMA0 quiet cma=0 cryptomgr.notests {WATCHDOGS} odometer.exec=\"{script}\"'\n"
    )
}

/// Both cases.
pub fn cases() -> Vec<Case> {
    // Two VMs with four vCPUs each on two CPUs. Instructions drive the clock, so that a busy host changes nothing. They boot one kernel
    // and have pages of it in common. The date is the machine's, which is fixed where instructions drive the clock.
    let quiet = linux(
        2,
        4,
        &format!("[ $(date +%F) = 2026-01-01 ] || exit 2; {}; {COMPLAINTS}; [ $? -eq 1 ]", busy(4, 3)),
    );
    let quiet = format!("[machine]\ncpus = 2\ndeterministic = true\n[options]\n\"vmid.bits\" = 4\n{quiet}");
    // The counterpart: with slices of 2.5 s each of two vCPUs is away for longer than its kernel puts up with. (In one VM they would wait
    // for each other while it boots, a slice each time. One of the two is enough: who has a slice left when the other one ends sees nothing.)
    let stalled = linux(2, 1, &format!("{}; {COMPLAINTS}; true", busy(1, 8)));
    let stalled = format!("[machine]\ncpus = 1\n[options]\n\"sched.slice_us\" = 2500000\n{stalled}");
    vec![
        linux_case("linux-overcommit", quiet)
            .expect(within("memory", "common.joined", 500, u64::MAX))
            .expect(within("memory", "common.used", 0, 0)),
        linux_case("linux-overcommit-stalled", stalled).expect(says(&["linux-", "|", "soft lockup"])),
    ]
}
