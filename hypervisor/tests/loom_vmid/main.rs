//! The real VMID allocator under `loom`: all interleavings of a few steps of two or three CPUs, and all values
//! that the memory model lets a relaxed load return, a new generation that is seen late among them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p odometer --release --test loom_vmid`, with a target directory of its
//! own. Without that flag it is empty.
//!
//! Each CPU has a software TLB that is as eager as the architecture allows: whatever VTTBR holds is in it at
//! once, and again right after each invalidation.
#![cfg(loom)]

mod machine;
mod programs;

use machine::*;
use odometer::vmid::{Config, Flush, Policy, Victim};
use programs::*;

/// Checks a model for each sound policy with rollovers.
fn assert_holds(preemptions: Option<usize>, run: fn(Config, Fault)) {
    for policy in SOUND {
        model(preemptions, move || run(policy.into(), Fault::None));
    }
}

/// Checks a model for each way to take VMIDs one by one.
fn assert_reclaim_holds(preemptions: Option<usize>, run: fn(Config, Fault)) {
    for flush in [Flush::Local, Flush::Broadcast] {
        let config = Config { flush: Some(flush), victim: Victim::Random, ..Config::from(Policy::Reclaim) };
        model(preemptions, move || run(config, Fault::None));
    }
}

#[test]
fn fast_path_against_a_rollover() {
    assert_holds(Some(5), fast_path_against_rollover);
}

#[test]
fn a_pinned_vmid_while_they_run_short() {
    assert_holds(Some(3), pinned_against_shortage);
    assert_reclaim_holds(Some(3), pinned_against_shortage);
}

#[test]
fn schedule_out_against_a_rollover() {
    assert_holds(None, schedule_out_against_rollover);
}

#[test]
fn suspended_animation_through_two_rollovers() {
    assert_holds(Some(5), suspended_animation);
}

#[test]
fn two_rollovers_at_once() {
    assert_holds(Some(5), rollover_against_rollover);
}

#[test]
fn end_of_a_vm_against_schedule_in() {
    assert_holds(None, end_against_schedule_in);
}

#[test]
fn end_of_a_vm_against_a_rollover() {
    assert_holds(Some(4), end_against_rollover);
}

#[test]
fn three_cpus_at_once() {
    assert_holds(Some(3), three_cpus);
}

#[test]
fn fast_path_against_two_rollovers_of_other_cpus() {
    // The fast path is the same for all policies, and this model is a long one.
    model(Some(3), || fast_path_against_two_rollovers(Policy::Clear.into(), Fault::None));
}

/// A flush that each CPU is left to do comes before it meets anything else.
#[test]
fn local_flushes() {
    for policy in [Policy::Clear, Policy::TriState] {
        model(Some(4), move || fast_path_against_rollover(local(policy), Fault::None));
        model(Some(4), move || schedule_out_against_rollover(local(policy), Fault::None));
    }
    model(Some(3), || suspended_animation(local(Policy::TriState), Fault::None));
}

/// All CPUs are called out of their guests.
#[test]
fn calling_out() {
    model(Some(3), || fast_path_against_rollover(Policy::Global.into(), Fault::None));
    model(Some(4), || call_out(Policy::Global.into(), Fault::None));
    model(Some(3), || suspended_animation(Policy::Global.into(), Fault::None));
}

/// From enough VMIDs to the first shortage.
#[test]
fn the_first_shortage() {
    assert_reclaim_holds(Some(2), fast_path_against_rollover);
    assert_reclaim_holds(Some(2), schedule_out_against_rollover);
    assert_reclaim_holds(Some(2), suspended_animation);
}

#[test]
fn fast_path_against_a_vmid_taken_away() {
    assert_reclaim_holds(Some(3), fast_path_against_reclaim);
}

#[test]
fn schedule_out_against_a_vmid_taken_away() {
    assert_reclaim_holds(Some(3), schedule_out_against_reclaim);
}

#[test]
fn two_take_vmids_at_once() {
    assert_reclaim_holds(Some(2), reclaim_against_reclaim);
}

#[test]
fn end_of_a_vm_against_one_that_was_admitted() {
    assert_reclaim_holds(Some(4), end_against_admitted);
}

#[test]
fn three_cpus_and_vmids_taken_away() {
    assert_reclaim_holds(Some(2), three_cpus_reclaim);
}

#[test]
#[should_panic(expected = "stale")]
fn an_admission_without_its_flush_is_caught() {
    model(None, || fast_path_against_reclaim(Policy::Reclaim.into(), Fault::NoInvalidateHere));
}

#[test]
#[should_panic(expected = "stale")]
fn a_local_flush_left_out_is_caught() {
    model(None, || fast_path_against_rollover(local(Policy::Clear), Fault::NoInvalidateHere));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vttbr_parked_after_a_call_out_is_caught() {
    model(None, || call_out(Policy::Global.into(), Fault::ParkedLate));
}

/// The plain store at schedule-out loses a rollover's 0, the new generation is seen late, and two VMs are under
/// one VMID.
#[test]
#[should_panic(expected = "stale")]
fn a_plain_store_at_schedule_out_is_caught() {
    model(None, || schedule_out_against_rollover(Policy::Merged.into(), Fault::None));
}

#[test]
#[should_panic(expected = "stale")]
fn a_rollover_without_its_flush_is_caught() {
    model(None, || fast_path_against_rollover(Policy::Clear.into(), Fault::NoInvalidateAll));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vms_end_without_its_flush_is_caught() {
    model(None, || end_against_schedule_in(Policy::Clear.into(), Fault::NoInvalidateVmid));
}

#[test]
#[should_panic(expected = "stale")]
fn a_vttbr_parked_after_schedule_out_is_caught() {
    model(None, || schedule_out_against_rollover(Policy::Clear.into(), Fault::ParkedLate));
}
