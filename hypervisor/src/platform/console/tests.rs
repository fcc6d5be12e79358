use super::*;
use crate::stats::report::{EndLine, MARKER, write_end};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::format;
use std::string::{String, ToString};
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

const DR: u64 = 0x00;
const FR: u64 = 0x18;
const IMSC: u64 = 0x38;
const TXFF: u64 = 1 << 5;
const RXFE: u64 = 1 << 4;
const INT_RX_RT: u64 = 1 << 4 | 1 << 6;
const INT_TX: u64 = 1 << 5;
const BYTE: AccessSize = AccessSize::Byte;
/// One tick is one microsecond.
const RATE: TickRate = TickRate::new(1_000_000);

/// The wire behind the port.
#[derive(Debug)]
struct Wire {
    out: StdMutex<Vec<u8>>,
    input: StdMutex<VecDeque<u8>>,
    /// Bytes that the port takes until somebody adds to it.
    room: AtomicUsize,
    interrupts: StdMutex<(bool, bool)>,
}

impl Wire {
    fn new() -> Self {
        Wire {
            out: StdMutex::default(),
            input: StdMutex::default(),
            room: AtomicUsize::new(usize::MAX),
            interrupts: StdMutex::default(),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().unwrap()).into_owned()
    }

    fn lines(&self) -> Vec<String> {
        self.text().lines().map(ToString::to_string).collect()
    }

    fn take_text(&self) -> String {
        String::from_utf8(core::mem::take(&mut self.out.lock().unwrap())).unwrap()
    }

    fn interrupts(&self) -> (bool, bool) {
        *self.interrupts.lock().unwrap()
    }
}

impl SerialPort for &Wire {
    fn can_send(&self) -> bool {
        self.room.load(Ordering::SeqCst) > 0
    }
    fn send(&self, byte: u8) {
        assert!(self.can_send(), "nothing is sent into a full port");
        self.room.fetch_sub(1, Ordering::SeqCst);
        self.out.lock().unwrap().push(byte);
    }
    fn receive(&self) -> Option<u8> {
        self.input.lock().unwrap().pop_front()
    }
    fn is_drained(&self) -> bool {
        true
    }
    fn set_interrupts(&self, receive: bool, send: bool) {
        *self.interrupts.lock().unwrap() = (receive, send);
    }
}

/// The levels of the VMs' UART interrupts as told.
#[derive(Debug, Default)]
struct Levels(StdMutex<BTreeMap<u16, bool>>);

impl Levels {
    fn get(&self, vm: u16) -> bool {
        self.0.lock().unwrap().get(&vm).copied().unwrap_or(false)
    }
}

impl UartLine for &Levels {
    fn set_level(&self, vm: VmId, level: bool) {
        self.0.lock().unwrap().insert(vm.0, level);
    }
}

type Bench<'b> = Console<&'b Wire, &'b Levels>;

fn console<'b>(wire: &'b Wire, levels: &'b Levels, names: &[&str]) -> Bench<'b> {
    let console = Console::new(wire, levels, RATE, true, names.iter().copied());
    console.enable_interrupts();
    console
}

impl Bench<'_> {
    /// A guest that writes without looking.
    fn send(&self, vm: u16, text: &str) {
        text.bytes().for_each(|byte| self.guest_write(VmId(vm), DR, BYTE, byte.into()));
    }

    fn is_full(&self, vm: u16) -> bool {
        self.guest_read(VmId(vm), FR, BYTE) & TXFF != 0
    }

    /// A guest that reads what there is.
    fn receive(&self, vm: u16) -> String {
        let mut text = String::new();
        while self.guest_read(VmId(vm), FR, BYTE) & RXFE == 0 {
            text.push(self.guest_read(VmId(vm), DR, BYTE) as u8 as char);
        }
        text
    }

    /// Somebody types.
    fn type_in(&self, text: &str) {
        self.port.input.lock().unwrap().extend(text.bytes());
        self.interrupt();
    }
}

/// What each VM has written, as a reader of the console finds it: continued lines are joined.
fn by_name(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.split_terminator("\r\n") {
        assert!(!line.contains('\n'), "{line:?}");
        if let Some((name, rest)) = line.split_once("|+ ") {
            found.get_mut(name).and_then(|lines| lines.last_mut()).expect("continues a line").push_str(rest);
        } else if let Some((name, rest)) = line.split_once("| ") {
            found.entry(name.into()).or_default().push(rest.into());
        } else {
            assert!(line.starts_with("odometer: ") || line.starts_with(MARKER), "{line:?}");
        }
    }
    found
}

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
fn a_flood_does_not_starve_the_others() {
    let (wire, levels) = (Wire::new(), Levels::default());
    wire.room.store(0, Ordering::SeqCst);
    let console = console(&wire, &levels, &["flood", "quiet"]);
    while !console.is_full(0) {
        console.send(0, "a line of the flood, forty bytes long..\n");
    }
    assert!(!console.is_full(1), "only who floods waits");
    console.send(1, "hello\n");
    // The port sends 100 bytes at a time; the flood goes on whenever it may.
    while !wire.text().contains("quiet| hello") {
        wire.room.store(100, Ordering::SeqCst);
        console.interrupt();
        while !console.is_full(0) {
            console.send(0, "flood\n");
        }
        assert!(wire.lines().len() < 6, "{}", wire.text());
    }
}

#[test]
fn a_flood_without_newlines_does_not_starve_the_others() {
    let (wire, levels) = (Wire::new(), Levels::default());
    wire.room.store(0, Ordering::SeqCst);
    let console = console(&wire, &levels, &["flood", "quiet"]);
    console.send(0, &"x".repeat(5000));
    console.send(1, "hello\n");
    for _ in 0..40 {
        wire.room.store(64, Ordering::SeqCst);
        console.interrupt();
        while !console.is_full(0) {
            console.send(0, "y");
        }
    }
    let lines = wire.lines();
    assert!(lines[0].starts_with("flood| xxx") && lines[0].len() < 1200);
    assert_eq!(lines[1], "quiet| hello");
    assert!(lines[2].starts_with("flood|+ xxx"));
}

#[test]
fn one_callers_work_for_others_is_bounded() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let names: Vec<String> = (0..100).map(|n| format!("vm{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    wire.room.store(0, Ordering::SeqCst);
    let console = console(&wire, &levels, &names);
    for vm in 0..100 {
        for _ in 0..50 {
            console.send(vm, "a line that waits for the port to get going again, and is long enough\n");
        }
    }
    wire.room.store(usize::MAX, Ordering::SeqCst);
    let sent = |action: &dyn Fn()| {
        let before = wire.text().len();
        action();
        wire.text().len() - before
    };
    let most = BUDGET + 4096 + 64;
    assert!((1..most).contains(&sent(&|| console.interrupt())));
    assert!((1..most).contains(&sent(&|| console.send(3, "\n"))));
    // Nobody else comes by: the port's own interrupt goes on until all is out.
    while wire.interrupts().1 {
        console.interrupt();
    }
    assert_eq!(wire.lines().len(), 100 * 50 + 1);
}

#[test]
fn a_blocked_port_goes_on_by_its_interrupt() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a"]);
    assert_eq!(wire.interrupts(), (true, false));
    wire.room.store(5, Ordering::SeqCst);
    console.send(0, "twelve bytes\n");
    assert_eq!(wire.text(), "a| tw");
    assert_eq!(wire.interrupts(), (true, true));
    wire.room.store(5, Ordering::SeqCst);
    console.interrupt();
    assert_eq!(wire.text(), "a| twelve ");
    wire.room.store(100, Ordering::SeqCst);
    console.interrupt();
    assert_eq!(wire.text(), "a| twelve bytes\r\n");
    assert_eq!(wire.interrupts(), (true, false), "no interrupt for nothing");
}

#[test]
fn a_full_guest_that_waits_for_the_interrupt_gets_it() {
    let (wire, levels) = (Wire::new(), Levels::default());
    wire.room.store(0, Ordering::SeqCst);
    let console = console(&wire, &levels, &["a", "b"]);
    while !console.is_full(0) {
        console.send(0, "0123456789abcde\n");
    }
    console.guest_write(VmId(0), IMSC, BYTE, INT_TX);
    assert!(!levels.get(0));
    wire.room.store(usize::MAX, Ordering::SeqCst);
    // Somebody else's line brings it about.
    console.send(1, "b\n");
    assert!(levels.get(0) && !levels.get(1));
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
fn a_guests_exit_does_not_wait_for_the_lock() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    let held = console.mux.lock();
    console.send(0, "while somebody holds the lock\n");
    assert_eq!(wire.text(), "");
    drop(held);
    assert!(!console.service());
    assert_eq!(wire.text(), "a| while somebody holds the lock\r\n");
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
fn the_end_of_a_vm_ends_a_line_that_is_already_shown() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = console(&wire, &levels, &["a", "b"]);
    console.type_in("x");
    console.send(0, "prompt> ");
    console.vm_ended(VmId(0));
    assert_eq!(wire.text(), "a| prompt> \r\n");
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

#[test]
fn without_prefix_a_single_guest_has_the_console_as_it_is() {
    let (wire, levels) = (Wire::new(), Levels::default());
    let console = Console::new(&wire, &levels, RATE, false, ["only"]);
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
    let console = Console::new(&wire, &levels, RATE, false, ["a", "b"]);
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
    let console: Console<Option<&Wire>, _> = Console::new(None, &levels, RATE, true, []);
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
fn many_cpus_at_once_mix_and_lose_nothing() {
    const VMS: u16 = 6;
    const LINES: usize = 300;
    let (wire, levels) = (Wire::new(), Levels::default());
    let names: Vec<String> = (0..VMS).map(|n| format!("vm{n}")).collect();
    let console = Console::new(&wire, &levels, RATE, true, names.iter().map(String::as_str));
    let console = &console;
    std::thread::scope(|scope| {
        for vm in 0..VMS {
            scope.spawn(move || {
                for line in 0..LINES {
                    for byte in format!("{vm} says {line} {}\n", "#".repeat(line % 100)).bytes() {
                        while console.is_full(vm) {
                            std::thread::yield_now();
                        }
                        console.guest_write(VmId(vm), DR, BYTE, byte.into());
                    }
                }
            });
        }
        scope.spawn(move || {
            for i in 0..50 {
                console.report(|out| writeln!(out, "@odometer {{\"schema\":1,\"i\":{i}}}"));
                std::thread::yield_now();
            }
        });
    });
    while console.service() {}
    let found = by_name(&wire.text());
    assert_eq!(found.len(), usize::from(VMS));
    for (name, lines) in found {
        let vm = name.strip_prefix("vm").unwrap();
        assert_eq!(lines.len(), LINES, "{name}");
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(*line, format!("{vm} says {i} {}", "#".repeat(i % 100)));
        }
    }
    assert_eq!(wire.lines().iter().filter(|line| line.starts_with(MARKER)).count(), 50);
}

/// What may happen at the console.
#[derive(Clone, Debug)]
enum Step {
    Write(u16, String),
    Room(usize),
    Message,
    Type(String),
    Tick(u64),
    Flush(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u16, "[a-z \r\n]{0,40}").prop_map(|(vm, text)| Step::Write(vm, text)),
        1 => (0..4u16, 1..3000usize).prop_map(|(vm, n)| Step::Write(vm, "w".repeat(n))),
        3 => (0..300usize).prop_map(Step::Room),
        1 => Just(Step::Message),
        1 => "[a-z0-3\x0f\t\r?]{0,10}".prop_map(Step::Type),
        1 => (0..700_000u64).prop_map(Step::Tick),
        1 => (0..4u16).prop_map(Step::Flush),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_each_vms_text_comes_out_in_order(steps in proptest::collection::vec(step(), 0..80)) {
        let (wire, levels) = (Wire::new(), Levels::default());
        let console = console(&wire, &levels, &["v0", "v1", "v2", "v3"]);
        wire.room.store(0, Ordering::SeqCst);
        let mut written = [const { String::new() }; 4];
        let mut now = 0;
        for step in steps {
            match step {
                Step::Write(vm, text) => for byte in text.bytes() {
                    if console.is_full(vm) {
                        continue;
                    }
                    console.guest_write(VmId(vm), DR, BYTE, byte.into());
                    written[usize::from(vm)].push(byte as char);
                },
                Step::Room(room) => {
                    wire.room.store(room, Ordering::SeqCst);
                    console.interrupt();
                }
                Step::Message => {
                    wire.room.store(usize::MAX, Ordering::SeqCst);
                    console.message(format_args!("log"));
                    wire.room.store(0, Ordering::SeqCst);
                }
                Step::Type(text) => console.type_in(&text),
                Step::Tick(time) => {
                    now += time;
                    console.tick(now);
                }
                Step::Flush(vm) => console.flush(VmId(vm)),
            }
        }
        wire.room.store(usize::MAX, Ordering::SeqCst);
        console.finish();
        let found = by_name(&wire.text());
        for (vm, text) in written.iter().enumerate() {
            // A flush ends a line that the guest didn't, and carriage returns before a newline go: only the text counts.
            let plain = |text: &str| text.replace(['\r', '\n'], "");
            let lines = found.get(&format!("v{vm}")).map(|lines| lines.concat()).unwrap_or_default();
            prop_assert_eq!(plain(&lines), plain(text));
        }
    }
}
