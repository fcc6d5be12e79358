//! Output and input of another device than the UART.

use super::*;

const A: VmId = VmId(0);

#[test]
fn blocks_stand_among_the_uarts_lines() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.send(0, "uart\n");
    assert_eq!(console.put_output(A, b"one\r\ntwo\nthr"), 12);
    console.attend(A);
    console.send(1, "other\n");
    assert_eq!(console.put_output(A, b"ee\n"), 3);
    console.attend(A);
    assert_eq!(wire.lines(), ["a| uart", "a| one", "a| two", "b| other", "a| three"]);
    assert!(levels.take_asked().0 >= 3, "whoever waits for room is asked after each turn");
}

#[test]
fn a_block_that_does_not_fit_is_taken_as_far_as_there_is_room() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    wire.room.store(0, Ordering::SeqCst);
    let text = "0123456789abcde\n".repeat(1000);
    let mut sent = console.put_output(A, text.as_bytes());
    assert!((4096..5000).contains(&sent), "{sent}");
    console.attend(A);
    // A piece is on its way to the port.
    sent += console.put_output(A, &text.as_bytes()[sent..]);
    assert_eq!(console.put_output(A, b"x"), 0);
    assert!(console.is_full(0), "the UART has no room either");
    while sent < text.len() {
        wire.room.store(500, Ordering::SeqCst);
        console.interrupt();
        sent += console.put_output(A, &text.as_bytes()[sent..]);
    }
    wire.room.store(usize::MAX, Ordering::SeqCst);
    while console.service() {}
    let lines = &by_name(&wire.text())["a"];
    assert_eq!(lines.len(), 1000);
    assert!(lines.iter().all(|line| line == "0123456789abcde"));
}

#[test]
fn input_is_for_the_uart_unless_it_is_diverted() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    let mut buffer = [0; 8];
    console.guest_write(A, IMSC, BYTE, INT_RX_RT);
    console.type_in("typed");
    assert_eq!(levels.take_asked().1, 1);
    assert!(levels.get(0));
    assert_eq!(console.take_input(A, &mut buffer), 0);
    console.divert_input(A, true);
    assert!(!levels.get(0), "the UART has nothing to say");
    assert_eq!(console.receive(0), "");
    assert_eq!(console.guest_read(A, DR, BYTE), 0);
    assert_eq!(console.take_input(A, &mut buffer[..3]), 3);
    assert_eq!(&buffer[..3], b"typ");
    console.divert_input(A, false);
    assert!(levels.get(0));
    assert_eq!(console.take_input(A, &mut buffer), 0);
    assert_eq!(console.receive(0), "ed");
}

#[test]
fn input_that_was_held_back_follows_when_a_device_takes_some() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    console.divert_input(A, true);
    let text: String = (0..4096).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    console.type_in(&text);
    let mut received = String::new();
    loop {
        let mut buffer = [0; 100];
        let taken = console.take_input(A, &mut buffer);
        received.push_str(core::str::from_utf8(&buffer[..taken]).unwrap());
        console.attend(A);
        if taken == 0 {
            break;
        }
    }
    assert_eq!(received, text);
}
