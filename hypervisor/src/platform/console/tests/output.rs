//! What comes out, and when.

use super::Words;
use super::*;

#[test]
fn lines_come_out_whole_behind_their_names() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["red", "blue"]);
    for (a, b) in "one two\n".bytes().zip("ONE TWO\n".bytes()) {
        console.guest_write(VmId(0), DR, BYTE, a.into());
        console.guest_write(VmId(1), DR, BYTE, b.into());
    }
    console.send(1, "carriage return\r\n\nlone\rone\n");
    let expected =
        ["red| one two", "blue| ONE TWO", "blue| carriage return", "blue| ", "blue| lone\rone", ""];
    assert_eq!(wire.text(), expected.join("\r\n"));
}

#[test]
fn report_and_log_lines_stand_alone() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    wire.room.store(6, Ordering::SeqCst);
    console.send(0, "half a line\nand an unfinished one");
    assert_eq!(wire.text(), "a| hal");
    wire.room.store(usize::MAX, Ordering::SeqCst);
    console.report(|out| {
        assert_eq!(wire.interrupts(), (false, false), "nobody could do anything about them now");
        write_end(out, &EndLine { elapsed_ns: 1, vms: 1, failed: 0, reason: "r" })
    });
    assert_eq!(wire.interrupts(), (true, false));
    console.message(format_args!("two\nlines"));
    console.report(|out| out.write_str("without an end"));
    console.send(0, ".\n");
    let lines = wire.lines();
    assert_eq!(lines[0], "a| half a line");
    assert!(lines[1].starts_with("@odometer {\"schema\":1,\"kind\":\"end\"") && lines[1].ends_with('}'));
    let rest = ["odometer: two", "odometer: lines", "without an end", "a| and an unfinished one."];
    assert_eq!(lines[2..], rest);
}

#[test]
fn log_records_say_how_bad_it_is() {
    use log::Log;
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    let log = |level, text: &str| {
        Log::log(&console, &log::Record::builder().level(level).args(format_args!("{text}")).build());
    };
    let before = log::max_level();
    log::set_max_level(log::LevelFilter::Info);
    log(log::Level::Error, "e");
    log(log::Level::Warn, "w");
    log(log::Level::Info, "i");
    log(log::Level::Debug, "d");
    log::set_max_level(before);
    assert_eq!(wire.lines(), ["odometer: error: e", "odometer: warning: w", "odometer: i"]);
}

#[test]
fn a_panic_asks_for_no_lock() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    let _held = console.mux.lock();
    console.emergency(|out| write!(out, "panic: it burns"));
    assert_eq!(wire.text(), "\r\npanic: it burns\r\n");
}

#[test]
fn an_unfinished_line_is_shown_at_once_to_who_types() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.send(0, "login: ");
    console.send(1, "never mind");
    assert_eq!(wire.text(), "");
    console.type_in("r");
    assert_eq!(wire.text(), "a| login: ");
    console.send(0, "ro");
    console.send(0, "ot\r\n# ");
    assert_eq!(wire.take_text(), "a| login: root\r\na| # ");
    console.send(1, ", it is over\n");
    console.send(0, "ls");
    console.send(1, "b\n");
    console.send(0, "\nfile\n");
    assert_eq!(wire.take_text(), "\r\nb| never mind, it is over\r\na|+ ls\r\nb| b\r\na| file\r\n");
}

#[test]
fn an_unfinished_line_is_shown_after_silence() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.send(0, "logi");
    console.send(1, "not the one with the input");
    console.tick(0);
    console.tick(400_000);
    console.send(0, "n: ");
    console.tick(450_000);
    console.tick(900_000);
    assert_eq!(wire.text(), "", "somebody is still writing");
    console.tick(960_000);
    assert_eq!(wire.text(), "a| login: ");
    console.tick(2_000_000);
    console.send(0, "x\n");
    assert_eq!(wire.text(), "a| login: x\r\n", "goes on in place");
}

#[test]
fn the_end_of_a_vm_ends_a_line_that_is_already_shown() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.type_in("x");
    console.send(0, "prompt> ");
    console.vm_ended(VmId(0));
    assert_eq!(wire.text(), "a| prompt> \r\n");
}

#[test]
fn without_prefix_a_single_guest_has_the_console_as_it_is() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = Console::new(&wire, &levels, RATE, false, Words::new_const(), ["only"]);
    console.enable_interrupts();
    console.send(0, "\x1b[2Jabc");
    assert_eq!(wire.take_text(), "\x1b[2Jabc", "no line has to end");
    console.type_in("\x0f\x031");
    assert_eq!(console.receive(0), "\x0f\x031", "no escape key");
    console.report(|out| write_end(out, &EndLine { elapsed_ns: 1, vms: 1, failed: 0, reason: "r" }));
    let text = wire.take_text();
    assert!(text.starts_with("\r\n@odometer {") && text.ends_with("}\r\n"), "{text:?}");
    console.send(0, "def\n");
    console.message(format_args!("hi"));
    assert_eq!(wire.take_text(), "def\nodometer: hi\r\n", "bytes as they are, no empty line");
}

#[test]
fn without_prefix_several_guests_keep_whole_lines() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = Console::new(&wire, &levels, RATE, false, Words::new_const(), ["a", "b"]);
    console.send(0, "aa");
    console.send(1, "bb\n");
    console.send(0, "aa\n");
    assert_eq!(wire.text(), "bb\r\naaaa\r\n");
}

#[test]
fn finish_sends_everything() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    wire.room.store(0, Ordering::SeqCst);
    console.send(0, "one\ntwo\nunfin");
    console.send(1, "ished");
    wire.room.store(usize::MAX, Ordering::SeqCst);
    console.finish();
    assert_eq!(wire.lines(), ["a| one", "b| ished", "a| two", "a| unfin"]);
    assert!(wire.text().ends_with("\r\n"));
}

#[test]
fn names_are_printable_and_not_too_long() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let long = "ü".repeat(40);
    let console = console(&wire, &levels, &["\x1b[31m\n", &long]);
    console.send(0, "x\n");
    console.send(1, &"\r".repeat(200));
    console.send(1, "\n");
    let lines: Vec<_> = wire.take_text().split("\r\n").map(ToString::to_string).collect();
    assert_eq!(lines[0], "?[31m?| x");
    assert!(lines[1].starts_with(&"ü".repeat(16)) && !lines[1].starts_with(&"ü".repeat(17)));
}

#[test]
fn unknown_vms_and_no_port_are_harmless() {
    let levels = Levels::default();
    let console: Console<Option<&Wire>, _> = Console::new(None, &levels, RATE, true, Words::new_const(), []);
    console.guest_write(VmId(0), DR, BYTE, 1);
    assert_eq!(console.guest_read(VmId(u16::MAX), FR, BYTE), 0);
    console.vm_ended(VmId(300));
    console.flush(VmId(u16::MAX));
    console.tick(0);
    console.interrupt();
    console.message(format_args!("into the void"));
    console.finish();
}

#[test]
fn memory_of_a_vm_is_bounded() {
    const { assert!(Bench::BYTES_PER_VM <= 6 << 10) };
}

#[test]
fn a_guests_last_words_are_seen_once_and_are_its_own() {
    let words = "[    9.0] ---[ end Kernel panic - not syncing: x ]---\n";
    let (wire, levels) = (Wire::new(), Levels::default());
    let several = console(&wire, &levels, &["a", "b", "c"]);
    several.send(0, "[ end Kernel panic");
    several.send(1, " - not syncing\n");
    assert!(levels.panicked.lock().unwrap().is_empty());
    several.send(2, words);
    assert_eq!(*levels.panicked.lock().unwrap(), [2]);
    // Without names each byte goes out as it comes.
    let raw = Console::new(&wire, &levels, RATE, false, Words::new_const(), ["only"]);
    raw.send(0, words);
    assert_eq!(*levels.panicked.lock().unwrap(), [2, 0]);
}

#[test]
fn what_a_run_waits_for_is_told_of_who_has_said_it() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let words = Words::from("login:").unwrap();
    let console = Console::new(&wire, &levels, RATE, true, words, ["a", "b"]);
    console.send(0, "logi\nlog in:\n");
    assert!(levels.said.lock().unwrap().is_empty());
    console.send(1, "host login: \n");
    assert_eq!(*levels.said.lock().unwrap(), [1]);
}
