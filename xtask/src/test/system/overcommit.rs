//! Linux with four times as many vCPUs as there are CPUs: it must not see anything wrong in its time.

use super::case::Case;
use super::expect::{runs_well, within};
use crate::qemu::capture::Limits;

/// The kernel's own watchdogs, set as sharp as they can be: a thread that must run every 0.4 s has not for 2 s, a grace period of RCU has
/// taken 3 s, an expedited one 0.5 s.
const WATCHDOGS: &str = "watchdog_thresh=1 rcupdate.rcu_cpu_stall_timeout=3 rcupdate.rcu_expedited=1 \
    rcupdate.rcu_exp_cpu_stall_timeout=500";

/// Keeps all vCPUs busy for 3 s, then looks for what the kernel has said. The command line is in its log, too.
const SCRIPT: &str = "n=0; while [ $n -lt 4 ]; do (while :; do :; done) & n=$((n+1)); done; sleep 3; \
    dmesg | grep -v ommand.line | grep -i -e detected.*stall -e soft.lockup -e unstable -e hung_task -e blocked.for; [ $? -eq 1 ]";

/// Two VMs with four vCPUs each on two CPUs. Instructions drive the clock, so that a busy host changes nothing. (With slices of 0.7 s
/// in place of 10 ms the guests don't get as far within the limits, and this fails.) They boot one kernel and have pages of it in common.
pub fn cases(limits: Limits) -> Vec<Case> {
    let text = format!(
        "[machine]\ncpus = 2\ndeterministic = true\n[options]\n\"vmid.bits\" = 4\n[[vm]]\nname = \"linux\"\ncount = 2\nvcpus = 4\nmemory = \"96M\"\n\
         kernel = \"vmlinuz\"\ninitrd = \"initramfs\"\nbootargs = 'console=ttyAMA0 quiet cma=0 cryptomgr.notests {WATCHDOGS} odometer.exec=\"{SCRIPT}\"'\n"
    );
    let mut case = Case::scenario("linux-overcommit", text)
        .expect(runs_well)
        .expect(within("memory", "common.joined", 500, u64::MAX))
        .expect(within("memory", "common.used", 0, 0));
    case.limits = limits;
    case.linux = true;
    vec![case]
}
