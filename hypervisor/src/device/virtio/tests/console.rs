//! virtio-console.

use super::*;
use std::sync::atomic::Ordering::SeqCst;

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

fn machine() -> FakeMachine {
    FakeMachine::new(&[ALL])
}

fn output(machine: &FakeMachine) -> Vec<u8> {
    std::mem::take(&mut *machine.vms[0].output.lock().unwrap())
}

#[test]
fn a_block_of_output_costs_one_notification() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 16);
    let text: Vec<u8> = (0..3000).map(|n| b'a' + (n % 26) as u8).collect();
    driver.ram().put(DATA, &text);
    driver.add(TRANSMIT, &[(DATA, 1000, false), (DATA + 1000, 2000, false)]);
    driver.add(TRANSMIT, &[(DATA, 1, false)]);
    driver.kick(1);
    assert_eq!(output(&machine), [&text[..], b"a"].concat());
    assert_eq!([driver.done(TRANSMIT), driver.done(TRANSMIT)], [Some((0, 0)), Some((2, 0))]);
}

#[test]
fn output_waits_for_room_and_goes_on_where_it_was() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 16);
    let text: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    driver.ram().put(DATA, &text);
    driver.add(TRANSMIT, &[(DATA, 400, false), (DATA + 400, 600, false)]);
    machine.vms[0].room.store(450, SeqCst);
    driver.kick(1);
    assert_eq!(output(&machine), text[..450]);
    assert_eq!(driver.done(TRANSMIT), None, "the driver waits");
    driver.kick(1);
    assert!(!machine.vms[0].devices.console_has_room(&machine) || output(&machine).is_empty());
    for (from, to) in [(450, 451), (451, 999)] {
        machine.vms[0].room.store(to - from, SeqCst);
        assert!(machine.vms[0].devices.console_has_room(&machine));
        assert_eq!(output(&machine), text[from..to]);
        assert_eq!(driver.done(TRANSMIT), None);
    }
    machine.vms[0].room.store(usize::MAX, SeqCst);
    assert!(machine.vms[0].devices.console_has_room(&machine));
    assert_eq!(output(&machine), text[999..]);
    assert_eq!(driver.done(TRANSMIT), Some((0, 0)));
    assert!(!machine.vms[0].devices.console_has_room(&machine), "nothing waits any more");
    assert!(!driver.needs_reset());
}

#[test]
fn output_is_bounded_for_one_exit_and_the_rest_follows() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 16);
    driver.add(TRANSMIT, &[(DATA, 20_000, false)]);
    driver.add(TRANSMIT, &[(DATA, 7, false)]);
    driver.kick(1);
    assert_eq!(output(&machine).len(), 8192);
    assert!(machine.vms[0].devices.console_has_room(&machine));
    assert!(machine.vms[0].devices.console_has_room(&machine));
    assert_eq!(output(&machine).len(), 20_007 - 8192);
    assert!(driver.done(TRANSMIT).is_some() && driver.done(TRANSMIT).is_some());
}

#[test]
fn a_reset_in_the_middle_of_a_block_begins_anew() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 16);
    driver.ram().put(DATA, b"0123456789");
    driver.add(TRANSMIT, &[(DATA, 10, false)]);
    machine.vms[0].room.store(4, SeqCst);
    driver.kick(1);
    driver.start(VERSION_1);
    machine.vms[0].room.store(usize::MAX, SeqCst);
    machine.vms[0].devices.console_has_room(&machine);
    assert_eq!(output(&machine), b"0123");
    driver.add(TRANSMIT, &[(DATA, 10, false)]);
    driver.kick(1);
    assert_eq!(output(&machine), b"0123456789");
}

#[test]
fn input_comes_when_there_are_buffers_and_stays_where_it_was_before() {
    let machine = machine();
    let mut driver = Driver::new(&machine, 0, CONSOLE, 16);
    machine.vms[0].input.lock().unwrap().extend(b"typed");
    machine.vms[0].devices.console_has_input(&machine);
    driver.start(VERSION_1);
    driver.add(RECEIVE, &[(DATA, 3, true)]);
    driver.kick(0);
    machine.vms[0].devices.console_has_input(&machine);
    assert_eq!(driver.done(RECEIVE), None, "the PL011 has it until the guest has sent something here");
    driver.add(TRANSMIT, &[(DATA + 999, 1, false)]);
    driver.kick(1);
    assert_eq!(driver.done(RECEIVE), Some((0, 3)));
    driver.add(RECEIVE, &[(DATA + 3, 100, true)]);
    driver.add(RECEIVE, &[(DATA + 200, 100, true)]);
    machine.vms[0].devices.console_has_input(&machine);
    assert_eq!([driver.done(RECEIVE), driver.done(RECEIVE)], [Some((1, 2)), None]);
    assert_eq!(driver.ram().bytes(DATA, 5), b"typed");
    assert_eq!(driver.acknowledge(), 1);
}

#[test]
fn input_goes_back_to_the_uart_with_a_reset() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 16);
    driver.add(TRANSMIT, &[(DATA, 1, false)]);
    driver.kick(1);
    assert!(machine.vms[0].diverted.load(SeqCst));
    driver.start(VERSION_1);
    assert!(!machine.vms[0].diverted.load(SeqCst));
    driver.add(TRANSMIT, &[(DATA, 1, false)]);
    driver.kick(1);
    assert!(machine.vms[0].diverted.load(SeqCst));
    machine.vms[0].devices.reset(&machine);
    assert!(!machine.vms[0].diverted.load(SeqCst));
}

#[test]
fn a_buffer_that_cannot_be_written_goes_back_empty() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 16);
    driver.add(TRANSMIT, &[(DATA, 1, false)]);
    driver.kick(1);
    driver.acknowledge();
    machine.vms[0].input.lock().unwrap().extend(b"x");
    driver.add(RECEIVE, &[(DATA, 3, false)]);
    driver.add(RECEIVE, &[(DATA, 3, true)]);
    driver.kick(0);
    assert_eq!([driver.done(RECEIVE), driver.done(RECEIVE)], [Some((0, 0)), Some((1, 1))]);
}
