//! Posters on other threads while the owner flushes: nothing is lost, nothing comes twice.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::{Duration, Instant};

use super::machine::*;
use crate::ids::IntId;
use crate::vgic::fake::{FakeLrs, SPURIOUS};

const ROUNDS: u32 = 8_000;

/// Waits until the guest has taken an interrupt `count` times; if it is not for a long time, it is lost.
fn wait_for(taken: &AtomicU32, count: u32, lost: &AtomicBool) -> bool {
    let start = Instant::now();
    while taken.load(SeqCst) != count {
        if lost.load(SeqCst) || start.elapsed() > Duration::from_secs(60) {
            lost.store(true, SeqCst);
            return false;
        }
        thread::yield_now();
    }
    true
}

/// Each poster posts its interrupts, and each one again only when the guest has taken it, so that each post must be taken
/// exactly once.
#[test]
fn every_post_of_other_threads_is_taken_exactly_once() {
    for count in [1, 4] {
        let vgic = booted(2);
        let taken = [const { AtomicU32::new(0) }; 64];
        let (kicked, lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let done = AtomicU32::new(0);
        let posters: [&[u32]; 3] = [&[1, 2, 3, 48, 49], &[4, 5, 50, 51, 52, 53], &[6, 18, 54, 55]];
        thread::scope(|scope| {
            for mine in posters {
                let (vgic, taken, kicked, lost, done) = (&vgic, &taken, &kicked, &lost, &done);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        for &intid in mine {
                            let mut kick = |_| kicked.store(true, SeqCst);
                            match intid {
                                0..16 => vgic.send_sgi(V1, sgi(u64::from(intid), 1), &mut kick),
                                16..32 => vgic.post_private(V0, IntId(intid), &mut kick),
                                _ => vgic.post_spi(IntId(intid), &mut kick),
                            }
                        }
                        for &intid in mine {
                            if !wait_for(&taken[intid as usize], round + 1, lost) {
                                return;
                            }
                        }
                    }
                    done.fetch_add(1, SeqCst);
                });
            }
            let lrs = FakeLrs::open(count);
            lrs.slow.set(true);
            // PPI 18 is edge-triggered here.
            redist_write(&vgic, V0, SGI_BASE + 0xc04, 4, 0b10 << (2 * 2));
            while done.load(SeqCst) != 3 && !lost.load(SeqCst) {
                // The guest comes back to the hypervisor when it was kicked, or by a maintenance interrupt: never else.
                let exit = kicked.swap(false, SeqCst);
                if exit && vgic.attention(V0) {
                    assert!(vgic.flush(V0, &lrs).is_empty());
                }
                if lrs.maintenance_asserted() {
                    assert!(vgic.maintenance(V0, &lrs).is_empty());
                }
                lrs.check();
                let intid = lrs.acknowledge();
                if intid == SPURIOUS {
                    thread::yield_now();
                } else {
                    lrs.end(intid);
                    taken[intid as usize].fetch_add(1, SeqCst);
                }
            }
            assert!(!lost.load(SeqCst), "lost: {:?}, {:x?}", taken, lrs.values());
            assert_eq!(lrs.acknowledge(), SPURIOUS, "nothing twice");
        });
    }
}

/// Another vCPU enables and disables, re-routes to and fro; two owners take; each post is taken once, by either.
#[test]
fn posts_survive_enabling_and_routing_by_others() {
    const SPIS: std::ops::Range<u32> = 48..56;
    let vgic = booted(2);
    let taken = [const { AtomicU32::new(0) }; 64];
    let kicked = [const { AtomicBool::new(false) }; 2];
    let (stop, lost) = (AtomicBool::new(false), AtomicBool::new(false));
    let rounds = ROUNDS / 4;
    thread::scope(|scope| {
        for vcpu in [V0, V1] {
            let (vgic, taken, kicked, stop) = (&vgic, &taken, &kicked, &stop);
            scope.spawn(move || {
                let lrs = FakeLrs::open(2);
                lrs.slow.set(true);
                let mut n = 0u64;
                while !stop.load(SeqCst) {
                    let kick = |other: crate::ids::VcpuIndex| kicked[other.index()].store(true, SeqCst);
                    let mut exit = kicked[vcpu.index()].swap(false, SeqCst);
                    n += 1;
                    if n.is_multiple_of(7) {
                        // A trap: this vCPU changes one SPI.
                        let intid = 48 + n / 7 % 8;
                        let (offset, size, value) = match n / 56 % 4 {
                            0 => (0x184, 4, 1 << (intid - 32)),
                            1 => (0x104, 4, 0xff << 16),
                            _ => (0x6000 + 8 * intid, 8, n / 3 % 2),
                        };
                        vgic.dist_write(vcpu, &lrs, offset, size, value, &mut { kick });
                        vgic.dist_write(vcpu, &lrs, 0x104, 4, 0xff << 16, &mut { kick });
                        exit = true;
                    }
                    if exit && vgic.attention(vcpu) {
                        vgic.flush(vcpu, &lrs).for_each(kick);
                    }
                    if lrs.maintenance_asserted() {
                        vgic.maintenance(vcpu, &lrs).for_each(kick);
                    }
                    lrs.check();
                    let intid = lrs.acknowledge();
                    if intid != SPURIOUS {
                        lrs.end(intid);
                        taken[intid as usize].fetch_add(1, SeqCst);
                    }
                    thread::yield_now();
                }
            });
        }
        for round in 0..rounds {
            for intid in SPIS {
                vgic.post_spi(IntId(intid), &mut |vcpu| kicked[vcpu.index()].store(true, SeqCst));
            }
            for intid in SPIS {
                if !wait_for(&taken[intid as usize], round + 1, &lost) {
                    stop.store(true, SeqCst);
                    return;
                }
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(!lost.load(SeqCst), "lost: {taken:?}");
    for intid in SPIS {
        assert_eq!(taken[intid as usize].load(SeqCst), rounds, "INTID {intid}");
    }
}

/// A flush during which, at each access to the hardware in turn, another CPU posts one more interrupt: it is delivered by
/// this flush, or attention is still up for the next one.
#[test]
fn a_post_in_the_middle_of_a_flush_is_seen_by_it_or_by_the_next() {
    for first in [&[1][..], &[1, 2], &[1, 48], &[48]] {
        for extra in [1, 3, 48, 54] {
            for at in 1..8 {
                let vgic = Rc::new(booted(2));
                let lrs = FakeLrs::open(4);
                // One that has ended is to be harvested.
                vgic.send_sgi(V1, sgi(5, 1), &mut anybody);
                assert_eq!(take_all(&vgic, V0, &lrs), [5]);
                let post = |vgic: &crate::vgic::Vgic, intid: u32| match intid {
                    0..16 => vgic.send_sgi(V1, sgi(u64::from(intid), 1), &mut anybody),
                    _ => vgic.post_spi(IntId(intid), &mut anybody),
                };
                first.iter().for_each(|&intid| post(&vgic, intid));
                lrs.accesses.set(0);
                let other = vgic.clone();
                *lrs.hook.borrow_mut() = Some(Box::new(move |n| {
                    if n == at {
                        post(&other, extra);
                    }
                }));
                assert!(vgic.flush(V0, &lrs).is_empty());
                let posted = lrs.accesses.get() >= at;
                *lrs.hook.borrow_mut() = None;
                let mut expected = first.to_vec();
                if posted && !first.contains(&extra) {
                    expected.push(extra);
                }
                let mut taken = take_all(&vgic, V0, &lrs);
                taken.sort_unstable();
                expected.sort_unstable();
                taken.dedup();
                assert_eq!(taken, expected, "{first:?}, then {extra} at access {at}");
            }
        }
    }
}

/// A flush during which an SPI is moved to another vCPU, which takes it at once: it is never in two places, and not lost.
#[test]
fn an_spi_that_moves_in_the_middle_of_a_flush_stays_one() {
    for at in 1..4 {
        let vgic = Rc::new(booted(2));
        let (a, b) = (FakeLrs::open(4), Rc::new(FakeLrs::open(4)));
        for intid in [48, 49, 50] {
            vgic.post_spi(IntId(intid), &mut anybody);
        }
        let (other, there) = (vgic.clone(), b.clone());
        *a.hook.borrow_mut() = Some(Box::new(move |n| {
            if n == at {
                other.dist_write(V1, &*there, 0x6000 + 8 * 50, 8, 1, &mut anybody);
                assert!(other.flush(V1, &*there).is_empty());
            }
        }));
        let wake = vgic.flush(V0, &a);
        *a.hook.borrow_mut() = None;
        let held = |lrs: &FakeLrs| lrs.values().iter().any(|&lr| lr >> 62 != 0 && lr as u32 == 50);
        assert!(!(held(&a) && held(&b)), "in two places, access {at}");
        let in_lr = vgic.in_lr.load(SeqCst) >> (50 - 32) & 1 != 0;
        assert_eq!(in_lr, held(&a) || held(&b), "the claim, access {at}");
        // Both come back to the hypervisor: the owner gives it up, and the other one is told.
        let wake = wake | if vgic.attention(V0) { vgic.flush(V0, &a) } else { Default::default() };
        assert!(held(&b) || wake.contains(V1) || vgic.attention(V1));
        assert_eq!(take_all(&vgic, V0, &a), [48, 49]);
        assert_eq!(take_all(&vgic, V1, &b), [50]);
    }
}
