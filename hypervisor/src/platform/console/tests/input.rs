//! What goes in, and the escape key.

use super::*;

#[test]
fn the_end_of_a_vm_ends_its_line_and_moves_the_input() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.send(0, "first\nlast words");
    console.vm_ended(VmId(0));
    assert_eq!(wire.take_text(), "a| first\r\na| last words\r\n");
    console.flush(VmId(0));
    assert_eq!(wire.take_text(), "", "nothing there");
    console.type_in("x");
    assert_eq!(console.receive(1), "x");
    console.vm_ended(VmId(1));
    console.type_in("into the void");
    assert!(wire.input.lock().unwrap().is_empty());
}

#[test]
fn escape_key_chooses_by_number_name_and_tab() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["web", "db-0", "db-1"]);
    console.type_in("0");
    let check = |keys: &str, vm: u16, notice: &str| {
        console.type_in(keys);
        console.type_in("z");
        for other in 0..3 {
            let received = console.receive(other);
            assert_eq!(received.contains('z'), other == vm, "{keys:?}: VM {other} got {received:?}");
        }
        assert_eq!(wire.take_text(), notice, "{keys:?}");
    };
    check("\x0f2", 2, "odometer: input goes to db-1 (VM 2)\r\n");
    check("\x0f\t", 0, "odometer: input goes to web (VM 0)\r\n");
    check("\x0fdb-0\r", 1, "odometer: input goes to db-0 (VM 1)\r\n");
    check("\x0fw\r", 0, "odometer: input goes to web (VM 0)\r\n");
    check("\x0fdb\r", 0, "odometer: no VM db; Ctrl-O ? lists them\r\n");
    check("\x0f7", 0, "odometer: no VM 7; Ctrl-O ? lists them\r\n");
    check("\x0fdbx\x7f-1\r", 2, "odometer: input goes to db-1 (VM 2)\r\n");
    check("\x0f\x1b", 2, "");
    check("\x0fdb\x03", 2, "");
    check("\x0f\r", 2, "odometer: no VM ; Ctrl-O ? lists them\r\n");
    check(
        &format!("\x0f{}\r", "n".repeat(300)),
        2,
        &format!("odometer: no VM {}; Ctrl-O ? lists them\r\n", "n".repeat(32)),
    );
}

#[test]
fn escape_key_twice_goes_through() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.type_in("x\x0f\x0fy");
    assert_eq!(console.receive(0), "x\x0fy");
    assert_eq!(wire.text(), "");
}

#[test]
fn escape_key_takes_longer_numbers_where_they_can_be_meant() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let names: Vec<String> = (0..120).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let console = console(&wire, &levels, &names);
    for (keys, vm) in
        [("\x0f115", 115), ("\x0f11\r", 11), ("\x0f13", 13), ("\x0f1\r", 1), ("\x0f0", 0), ("\x0f99", 99)]
    {
        console.type_in(keys);
        console.type_in("k");
        assert_eq!(console.receive(vm), "k", "{keys:?}");
    }
}

#[test]
fn escape_key_lists_and_asks_for_a_report() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b", "c"]);
    console.vm_ended(VmId(1));
    assert!(!console.take_report_request());
    console.type_in("\x0f\x12");
    assert!(console.take_report_request() && !console.take_report_request());
    console.type_in("\x0f?");
    let lines = wire.lines();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[0].contains("Ctrl-O"));
    assert_eq!(lines[2..], ["odometer: * 0 a", "odometer:   1 b (ended)", "odometer:   2 c"]);
    assert_eq!(console.receive(0), "");
}

#[test]
fn a_paste_arrives_whole_in_spite_of_a_slow_guest() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.guest_write(VmId(0), IMSC, BYTE, INT_RX_RT);
    let paste: String = (0..4096).map(|i| (b'a' + (i % 26) as u8) as char).collect();
    console.type_in(&paste);
    assert_eq!(wire.interrupts(), (false, false), "held back: no interrupt again and again");
    let mut received = String::new();
    let mut now = 0;
    while received.len() < paste.len() {
        assert!(levels.get(0), "the guest is told as long as there is something");
        received.push(console.guest_read(VmId(0), DR, BYTE) as u8 as char);
        now += 1000;
        console.tick(now);
    }
    assert_eq!(received, paste);
    assert!(!levels.get(0));
    assert_eq!(wire.interrupts(), (true, false));
}

#[test]
fn a_guest_that_reads_nothing_does_not_take_the_escape_key_away() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["dead", "alive"]);
    console.type_in(&"x".repeat(300));
    console.type_in("\x0f1hello");
    console.tick(0);
    console.tick(4_000_000);
    assert_eq!(console.receive(1), "", "still waiting for the dead one");
    console.tick(6_000_000);
    assert_eq!(console.receive(1), "hello");
    assert!(wire.text().contains("input goes to alive (VM 1)"));
    console.type_in("\x0f0");
    assert_eq!(console.receive(0).len(), 256, "what it had room for is still there");
    console.type_in("y");
    assert_eq!(console.receive(0), "y");
}

#[test]
fn input_is_taken_by_tick_where_the_port_has_no_interrupt() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    console.tick(20_000);
    wire.input.lock().unwrap().extend(b"k");
    console.tick(21_000);
    assert_eq!(console.receive(0), "", "not yet: a tick is a load most of the time");
    console.tick(30_001);
    assert_eq!(console.receive(0), "k");
}
