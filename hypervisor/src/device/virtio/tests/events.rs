//! Event indices: fewer interrupts, and no bell that is not rung.

use super::*;
use std::sync::Mutex;

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const SIZE: u16 = 8;

fn machine() -> FakeMachine {
    FakeMachine::new(&[ALL, ALL])
}

fn driver(machine: &FakeMachine, window: u32) -> Driver<'_> {
    let mut driver = Driver::new(machine, 0, window, SIZE);
    driver.start(VERSION_1 | EVENT_INDEX);
    driver
}

#[test]
fn the_bell_is_wanted_for_the_next_chain_always() {
    let machine = machine();
    let mut driver = driver(&machine, CONSOLE);
    for round in 0..0x1_0010_u32 {
        let count = 1 + (round % 3) as u16;
        for _ in 0..count {
            driver.add(TRANSMIT, &[(DATA, 1, false)]);
        }
        assert!(driver.must_ring(TRANSMIT, count), "round {round}");
        driver.kick(1);
        while driver.done(TRANSMIT).is_some() {}
    }
    assert!(!driver.needs_reset());
}

#[test]
fn the_bell_is_never_wanted_for_buffers_of_a_network_card() {
    let machine = machine();
    let mut receiver = driver(&machine, NET);
    let mut sender = Driver::running(&machine, 1, NET, SIZE);
    let to_all = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0; 48]].concat();
    sender.want_interrupts(TRANSMIT, false);
    sender.ram().put(DATA + 12, &to_all);
    for round in 0..0x1_2000_u32 {
        receiver.add(RECEIVE, &[(DATA, 100, true)]);
        assert!(!receiver.must_ring(RECEIVE, 1), "round {round}");
        sender.add(TRANSMIT, &[(DATA, 72, false)]);
        sender.kick(1);
        assert!(receiver.done(RECEIVE).is_some() && sender.done(TRANSMIT).is_some());
    }
}

#[test]
fn a_console_that_has_buffers_wants_no_bell_until_it_is_out_of_them() {
    let machine = machine();
    let mut driver = driver(&machine, CONSOLE);
    // Linux gives a buffer at a time, and would ring for each.
    for n in 0..4 {
        driver.add(RECEIVE, &[(DATA + 0x100 * n, 4, true)]);
        assert_eq!(driver.must_ring(RECEIVE, 1), n == 0, "buffer {n}");
        if n == 0 {
            driver.kick(0);
        }
    }
    // It must have sent something to get any.
    driver.add(TRANSMIT, &[(DATA + 0x800, 1, false)]);
    driver.kick(1);
    let give = |text: &[u8]| {
        machine.vms[0].input.lock().unwrap().extend(text);
        machine.vms[0].devices.console_has_input(&machine);
    };
    give(b"eight by");
    assert_eq!((driver.done(RECEIVE), driver.done(RECEIVE)), (Some((0, 4)), Some((1, 4))));
    driver.add(RECEIVE, &[(DATA, 4, true)]);
    assert!(!driver.must_ring(RECEIVE, 1), "two are left");
    give(b"and thirteen.");
    assert_eq!((0..3).filter(|_| driver.done(RECEIVE).is_some()).count(), 3);
    driver.add(RECEIVE, &[(DATA, 4, true)]);
    assert!(driver.must_ring(RECEIVE, 1), "a byte waits for it");
    driver.kick(0);
    assert!(driver.done(RECEIVE).is_some_and(|(_, written)| written == 1));
}

#[test]
fn an_interrupt_comes_when_the_index_that_was_asked_for_is_passed() {
    let machine = machine();
    let mut driver = driver(&machine, CONSOLE);
    let mut sent = 0_u16;
    let mut before = 0;
    let mut send = |driver: &mut Driver<'_>, count: u16| {
        for _ in 0..count {
            driver.add(TRANSMIT, &[(DATA, 1, false)]);
        }
        driver.kick(1);
        sent = sent.wrapping_add(count);
        driver.acknowledge();
        let now = machine.interrupts(0, CONSOLE);
        now - core::mem::replace(&mut before, now)
    };
    driver.want_event(TRANSMIT, 2);
    assert_eq!(send(&mut driver, 2), 0, "indices 0 and 1");
    assert_eq!(send(&mut driver, 1), 1);
    assert_eq!(send(&mut driver, 5), 0, "it is past");
    driver.want_event(TRANSMIT, 9);
    assert_eq!(send(&mut driver, 4), 1, "one for four");
    // Around the end of 16 bits.
    for round in 0..0x3ffd_u32 {
        assert_eq!(send(&mut driver, 4), 0, "round {round}");
    }
    driver.want_event(TRANSMIT, 1);
    assert_eq!([send(&mut driver, 1), send(&mut driver, 1)], [0, 1]);
}

#[test]
fn an_index_that_will_not_stand_still_is_a_broken_rule() {
    // As far as one CPU can show it: more than the queue holds is found here too.
    let machine = machine();
    let driver = driver(&machine, CONSOLE);
    driver.ram().put(driver.rings[TRANSMIT].available() + 2, &9_u16.to_le_bytes());
    driver.kick(1);
    assert!(driver.needs_reset());
}

/// Several vCPUs share a queue: under their lock they add chains and see whether the bell is to be rung, without it they ring.
/// No chain is left lying.
#[test]
fn no_chain_is_left_when_several_cpus_add_at_once() {
    const ROUNDS: u32 = 20_000;
    let machine = machine();
    // The driver, and how many chains the device has.
    let shared = Mutex::new((driver(&machine, CONSOLE), 0));
    let run = || {
        let mut rounds = 0;
        while rounds < ROUNDS {
            let mut guard = shared.lock().unwrap();
            let (driver, outstanding) = &mut *guard;
            while driver.done(TRANSMIT).is_some() {
                *outstanding -= 1;
            }
            if *outstanding == SIZE {
                // Somebody is about to ring.
                drop(guard);
                std::thread::yield_now();
                continue;
            }
            driver.add(TRANSMIT, &[(DATA, 1, false)]);
            *outstanding += 1;
            rounds += 1;
            let ring = driver.must_ring(TRANSMIT, 1);
            drop(guard);
            if ring {
                machine.write(0, CONSOLE, 0x50, 1);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(run);
        }
    });
    let (driver, outstanding) = &mut *shared.lock().unwrap();
    while driver.done(TRANSMIT).is_some() {
        *outstanding -= 1;
    }
    assert_eq!(*outstanding, 0);
    assert!(!driver.needs_reset());
}
