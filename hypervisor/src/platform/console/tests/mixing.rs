//! Many VMs at once: mixing, floods, a port that is slow.

use super::Words;
use super::*;
use proptest::prelude::*;

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
fn many_cpus_at_once_mix_and_lose_nothing() {
    const VMS: u16 = 6;
    const LINES: usize = 300;
    let (wire, levels) = (Wire::new(), Levels::default());
    let names: Vec<String> = (0..VMS).map(|n| format!("vm{n}")).collect();
    let console =
        Console::new(&wire, &levels, RATE, true, Words::new_const(), names.iter().map(String::as_str));
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
