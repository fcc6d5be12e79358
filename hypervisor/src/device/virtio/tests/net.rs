//! virtio-net and the switch.

use super::super::net::Mac;
use super::*;
use crate::ids::VmId;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const HEADER: u32 = 12;
const BROADCAST: Mac = Mac([0xff; 6]);
const OTHER: Mac = Mac([0x52, 0x54, 0, 1, 2, 3]);

fn machine(vms: usize) -> FakeMachine {
    FakeMachine::new(&vec![DeviceSet { net: true, ..DeviceSet::default() }; vms])
}

fn drivers(machine: &FakeMachine, size: u16) -> Vec<Driver<'_>> {
    (0..machine.vms.len()).map(|vm| Driver::running(machine, vm, 0, size)).collect()
}

fn mac(vm: usize) -> Mac {
    Mac::of(VmId(vm as u16))
}

/// A frame of 60 bytes.
fn frame(to: Mac, from: Mac, text: &[u8]) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &[0x88, 0xb5], text].concat();
    frame.resize(60.max(frame.len()), 0);
    frame
}

fn send(driver: &mut Driver<'_>, frame: &[u8]) {
    // Whatever stands in the header.
    driver.ram().put(DATA, &[0xcc; HEADER as usize]);
    driver.ram().put(DATA + 0x100, frame);
    driver.add(TRANSMIT, &[(DATA, HEADER, false), (DATA + 0x100, frame.len() as u32, false)]);
    driver.kick(1);
    assert!(driver.done(TRANSMIT).is_some());
}

/// Gives the card a buffer of its own.
fn give_buffer(driver: &mut Driver<'_>, len: u32) {
    driver.add(RECEIVE, &[(DATA + 0x1000, len, true)]);
}

/// What has come.
fn received(driver: &mut Driver<'_>) -> Option<Vec<u8>> {
    let (_, len) = driver.done(RECEIVE)?;
    let bytes = driver.ram().bytes(DATA + 0x1000, len as usize);
    let mut header = [0; HEADER as usize];
    header[10] = 1;
    assert_eq!(bytes[..HEADER as usize], header, "one buffer, no offloads");
    Some(bytes[HEADER as usize..].to_vec())
}

fn counters(machine: &FakeMachine, vm: usize) -> [u64; 6] {
    let (net, _) = machine.vms[vm].devices.net().unwrap();
    let c = &net.counters;
    [&c.sent, &c.sent_bytes, &c.refused, &c.received, &c.received_bytes, &c.lost].map(|c| c.get())
}

#[test]
fn a_frame_reaches_the_one_it_is_for_and_nobody_else() {
    let machine = machine(3);
    let mut drivers = drivers(&machine, 16);
    drivers.iter_mut().for_each(|driver| give_buffer(driver, 2000));
    let hello = frame(mac(1), mac(0), b"hello");
    send(&mut drivers[0], &hello);
    assert_eq!(received(&mut drivers[1]), Some(hello));
    assert_eq!([received(&mut drivers[0]), received(&mut drivers[2])], [None, None]);
    assert_eq!(drivers[1].acknowledge(), 1);
    assert_eq!(counters(&machine, 0), [1, 60, 0, 0, 0, 0]);
    assert_eq!(counters(&machine, 1), [0, 0, 0, 1, 60, 0]);
}

#[test]
fn broadcasts_and_unknown_addresses_are_flooded_and_known_ones_are_not() {
    let machine = machine(3);
    let mut drivers = drivers(&machine, 16);
    for to in [BROADCAST, OTHER, Mac([0x33, 0x33, 0, 0, 0, 1])] {
        drivers.iter_mut().for_each(|driver| give_buffer(driver, 2000));
        let all = frame(to, mac(0), b"all");
        send(&mut drivers[0], &all);
        assert_eq!(received(&mut drivers[1]), Some(all.clone()));
        assert_eq!(received(&mut drivers[2]), Some(all));
        assert_eq!(received(&mut drivers[0]), None, "not back to the sender");
    }
    // VM 2 uses the other address: from now on frames for it go there alone.
    send(&mut drivers[2], &frame(mac(0), OTHER, b"it is me"));
    assert!(received(&mut drivers[0]).is_some());
    drivers.iter_mut().for_each(|driver| give_buffer(driver, 2000));
    send(&mut drivers[0], &frame(OTHER, mac(0), b"you"));
    assert!(received(&mut drivers[2]).is_some() && received(&mut drivers[1]).is_none());
    assert_eq!(counters(&machine, 1)[3..], [3, 180, 0]);
}

#[test]
fn who_has_no_buffer_loses_frames_and_hurts_nobody() {
    let machine = machine(3);
    let mut drivers = drivers(&machine, 16);
    give_buffer(&mut drivers[1], 2000);
    give_buffer(&mut drivers[2], 40);
    for _ in 0..10 {
        send(&mut drivers[0], &frame(BROADCAST, mac(0), b""));
    }
    assert!(received(&mut drivers[1]).is_some());
    assert_eq!(received(&mut drivers[1]), None);
    assert_eq!(counters(&machine, 1)[3..], [1, 60, 9]);
    assert_eq!(counters(&machine, 2)[3..], [0, 0, 10], "too small a buffer stays for a smaller frame");
    assert_eq!(counters(&machine, 0)[0], 10);
    assert!(drivers.iter().all(|driver| !driver.needs_reset()));
}

#[test]
fn a_receivers_broken_queue_is_its_own_trouble() {
    let machine = machine(2);
    let mut drivers = drivers(&machine, 16);
    drivers[1].offer(RECEIVE, 99);
    send(&mut drivers[0], &frame(mac(1), mac(0), b""));
    assert!(drivers[1].needs_reset() && !drivers[0].needs_reset());
    assert_eq!(drivers[1].acknowledge(), 2);
    send(&mut drivers[0], &frame(mac(1), mac(0), b""));
    drivers[1].start(VERSION_1);
    give_buffer(&mut drivers[1], 2000);
    send(&mut drivers[0], &frame(mac(1), mac(0), b"again"));
    assert!(received(&mut drivers[1]).is_some());
}

#[test]
fn what_is_no_frame_is_refused() {
    let machine = machine(2);
    let mut drivers = drivers(&machine, 16);
    give_buffer(&mut drivers[1], 4000);
    for len in [0, 1, HEADER, HEADER + 13, HEADER + 1519, 4000, 0x4_0000] {
        drivers[0].add(TRANSMIT, &[(DATA, len, false)]);
        drivers[0].kick(1);
        assert!(drivers[0].done(TRANSMIT).is_some());
    }
    drivers[0].add(TRANSMIT, &[(DATA, 2000, true)]);
    drivers[0].kick(1);
    assert!(drivers[0].done(TRANSMIT).is_some(), "nothing to read in it");
    assert_eq!(counters(&machine, 0)[..3], [0, 0, 8]);
    assert_eq!(received(&mut drivers[1]), None);
    let longest = frame(mac(1), mac(0), &[7; 1504]);
    send(&mut drivers[0], &longest);
    assert_eq!(received(&mut drivers[1]), Some(longest));
}

#[test]
fn the_driver_need_not_announce_buffers() {
    let machine = machine(2);
    let drivers = drivers(&machine, 16);
    let flags = |queue: usize| drivers[0].ram().bytes(drivers[0].rings[queue].used(), 2);
    assert_eq!(flags(RECEIVE), [1, 0]);
    assert_eq!(flags(TRANSMIT), [0, 0]);
}

#[test]
fn a_card_that_is_down_loses_nothing_and_one_of_a_vm_that_has_ended_gets_nothing() {
    let machine = machine(2);
    let mut driver = Driver::running(&machine, 0, 0, 16);
    send(&mut driver, &frame(mac(1), mac(0), b""));
    assert_eq!(counters(&machine, 1)[5], 0);
    let mut other = Driver::running(&machine, 1, 0, 16);
    give_buffer(&mut other, 2000);
    machine.vms[1].devices.end(&machine);
    send(&mut driver, &frame(mac(1), mac(0), b""));
    assert_eq!(received(&mut other), None);
}

/// Two VMs that send to each other, and to all, at once, while both reset their cards now and then: neither waits for the
/// other for ever, no queue breaks, and no frame is counted twice.
#[test]
fn two_vms_send_to_each_other_at_once() {
    const ROUNDS: u64 = 3000;
    let machine = machine(3);
    let both = std::sync::Barrier::new(2);
    let run = |vm: usize, done: &AtomicBool, other: &AtomicBool| {
        let mut driver = Driver::running(&machine, vm, 0, 16);
        give_buffer(&mut driver, 2000);
        both.wait();
        for n in 0..ROUNDS {
            if n % 4 != 3 {
                give_buffer(&mut driver, 2000);
            }
            let to = if n % 5 == 0 { BROADCAST } else { mac(1 - vm) };
            send(&mut driver, &frame(to, mac(vm), &[n as u8]));
            while received(&mut driver).is_some() {}
            driver.acknowledge();
            assert!(!driver.needs_reset());
            // Before more buffers lie there than the queue has.
            if n % 8 == 7 {
                driver.start(VERSION_1);
            }
        }
        done.store(true, SeqCst);
        while !other.load(SeqCst) {
            std::thread::yield_now();
        }
    };
    let (a, b) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| run(0, &a, &b));
        scope.spawn(|| run(1, &b, &a));
    });
    for vm in 0..2 {
        let [sent, sent_bytes, refused, received, received_bytes, lost] = counters(&machine, vm);
        assert_eq!((sent, sent_bytes, refused), (ROUNDS, ROUNDS * 60, 0));
        assert_eq!(received_bytes, received * 60);
        assert!(received + lost <= ROUNDS, "{received} {lost}");
    }
    assert!(counters(&machine, 0)[3] + counters(&machine, 1)[3] > 0, "who is first finds the other's buffer");
}
