use super::state::*;
use super::*;
use std::cell::Cell;
use std::vec::Vec;

const WORD: AccessSize = AccessSize::Word;
const HALF: AccessSize = AccessSize::Half;

/// A UART and the interrupt line as told.
struct Bench {
    uart: Pl011,
    level: Cell<bool>,
}

impl Bench {
    fn new() -> Self {
        Bench { uart: Pl011::new(), level: Cell::new(false) }
    }

    fn line(&self) -> impl FnOnce(bool) + '_ {
        |level| {
            assert_ne!(level, self.level.replace(level), "only changes are told");
        }
    }

    fn read(&self, offset: u64) -> u32 {
        self.uart.read(offset, HALF, self.line()).0 as u32
    }

    fn write(&self, offset: u64, value: u32) -> Effect {
        self.uart.write(offset, HALF, value.into(), self.line())
    }

    fn send(&self, text: &[u8]) {
        text.iter().for_each(|b| {
            self.write(DR, (*b).into());
        });
    }

    fn take(&self, partial: bool, most: usize) -> (Vec<u8>, Taken) {
        let mut buffer = std::vec![0; most];
        let taken = self.uart.take_output(partial, &mut buffer, self.line());
        buffer.truncate(taken.len);
        (buffer, taken)
    }

    fn give(&self, byte: u8) -> bool {
        self.uart.give_input(byte, self.line())
    }
}

#[test]
fn is_found_by_the_amba_bus() {
    let bench = Bench::new();
    let byte = |offset| bench.uart.read(offset, WORD, |_| ()).0 & 0xFF;
    let id = (0..4).fold(0, |id, i| id | byte(0xFE0 + 4 * i) << (8 * i));
    assert_eq!(id & 0xF_FFFF, 0x4_1011);
    assert!((id >> 20) & 0xF >= 3, "a revision with a FIFO of 32 bytes");
    assert_eq!((0..4).fold(0, |id, i| id | byte(0xFF0 + 4 * i) << (8 * i)), 0xB105_F00D);
}

#[test]
fn registers_after_reset() {
    let bench = Bench::new();
    for (offset, value) in [(FR, 0x90), (CR, 0x300), (IFLS, 0x12), (IMSC, 0), (RIS, 0), (MIS, 0), (LCR_H, 0)]
    {
        assert_eq!(bench.read(offset), value, "{offset:#x}");
    }
    for (offset, kept) in [(IBRD, 0xFFFF), (FBRD, 0x3F), (LCR_H, 0xFF), (CR, 0xFF87), (IMSC, 0x7FF)] {
        bench.uart.write(offset, WORD, u64::MAX, |_| ());
        assert_eq!(bench.read(offset), kept, "{offset:#x}");
    }
    bench.uart.reset(|_| ());
    for (offset, value) in [(FR, 0x90), (CR, 0x300), (IFLS, 0x12), (IMSC, 0), (LCR_H, 0), (IBRD, 0)] {
        assert_eq!(bench.read(offset), value, "{offset:#x} after reset");
    }
}

#[test]
fn any_access_at_any_offset_is_harmless() {
    let bench = Bench::new();
    for size in [0, 1, 2, 3].map(AccessSize::from_sas) {
        for offset in (0..=0x1010).chain([u64::MAX, u64::MAX - 3, 1 << 63]) {
            let _ = bench.uart.read(offset, size, |_| ());
            let _ = bench.uart.write(offset, size, u64::MAX, |_| ());
        }
    }
    assert_eq!(bench.uart.read(0x19, AccessSize::Byte, |_| ()).0, 0);
    assert_eq!(bench.uart.read(0x1000, WORD, |_| ()).0, 0);
}

#[test]
fn a_line_is_taken_when_it_has_ended() {
    let bench = Bench::new();
    bench.send(b"hel");
    assert_eq!(bench.take(false, 64).1, Taken { len: 0, end: End::Open, more: false });
    assert!(bench.uart.unfinished_line().is_some());
    bench.send(b"lo\nwor");
    let (text, taken) = bench.take(false, 64);
    assert_eq!((&text[..], taken.end, taken.more), (&b"hello\n"[..], End::Newline, false));
    assert_eq!(bench.take(true, 64).0, b"wor");
    assert!(bench.uart.unfinished_line().is_none());
}

#[test]
fn effects_ask_for_attention_only_when_it_pays() {
    let bench = Bench::new();
    assert_eq!(bench.write(DR, b'a'.into()), Effect::empty());
    assert_eq!(bench.write(DR, b'\n'.into()), Effect::OUTPUT);
    bench.uart.set_eager(true);
    assert_eq!(bench.write(DR, b'a'.into()), Effect::OUTPUT);
    assert_eq!(bench.uart.read_flags().1, Effect::empty());
}

#[test]
fn a_poller_waits_on_txff_and_loses_nothing() {
    let bench = Bench::new();
    let mut sent = 0;
    let mut full = 0;
    let mut received = Vec::new();
    while sent < 20_000u32 {
        let (flags, effect) = bench.uart.read_flags();
        if flags as u32 & FR_TXFF != 0 {
            full += 1;
            if effect == Effect::OUTPUT {
                // The poll is an occasion to take something.
                received.extend(bench.take(false, 64).0);
            } else {
                assert_eq!(bench.read(FR) & FR_TXFF, 0, "full for a burst only, and only once");
            }
            continue;
        }
        bench.write(DR, b'0' as u32 + sent % 10);
        sent += 1;
    }
    received.extend(bench.take(true, OUTPUT).0);
    assert_eq!(bench.uart.lost_bytes(), 0);
    assert_eq!(received.len(), 20_000);
    assert!((20_000 / BURST..20_000 / 10).contains(&full), "looks {full} times more often");
    assert!(received.iter().enumerate().all(|(i, b)| *b == b'0' + (i % 10) as u8));
}

#[test]
fn what_is_written_into_a_full_queue_is_lost_and_counted() {
    let bench = Bench::new();
    bench.send(&[b'x'; OUTPUT + 7]);
    assert_eq!(bench.uart.lost_bytes(), 7);
    assert_eq!(bench.read(FR) & (FR_TXFF | FR_TXFE), FR_TXFF);
}

#[test]
fn linux_style_sender_is_woken_and_never_overruns() {
    // As a driver does that fills the queue while TXFF is clear, then leaves the rest to the interrupt, where it writes half a
    // FIFO for each time that it sees TXRIS, without looking at TXFF.
    let bench = Bench::new();
    let mut left = 50_000usize;
    let mut received = 0;
    loop {
        let (flags, effect) = bench.uart.read_flags();
        if flags as u32 & FR_TXFF == 0 {
            bench.send(b"y");
            left -= 1;
        } else if effect == Effect::OUTPUT {
            break;
        }
    }
    assert_eq!(bench.read(RIS) & INT_TX, 0);
    bench.write(IMSC, INT_TX);
    let mut interrupts = 0;
    while left > 0 {
        assert!(!bench.level.get());
        for _ in 0..CHUNK / 64 {
            received += bench.take(false, 64).0.len();
        }
        assert!(bench.level.get(), "woken by the console's making room");
        interrupts += 1;
        while left > 0 && bench.read(RIS) & INT_TX != 0 {
            for _ in 0..(FIFO / 2).min(left) {
                bench.send(b"y");
                left -= 1;
            }
        }
    }
    assert_eq!(bench.uart.lost_bytes(), 0);
    assert!(interrupts < 60, "a queue's worth for an interrupt, not a byte: {interrupts}");
    bench.write(IMSC, 0);
    received += bench.take(true, OUTPUT).0.len();
    assert_eq!(received, 50_000);
}

#[test]
fn a_driver_that_can_be_interrupted_hardly_polls() {
    // As Linux sends a line: it polls TXFF before each byte until it shows, then has itself interrupted.
    let bench = Bench::new();
    let line = [b'l'; 105];
    let (mut left, mut accesses) = (line.len(), 0);
    while left > 0 {
        accesses += 1;
        if bench.read(FR) & FR_TXFF != 0 {
            break;
        }
        accesses += 1;
        bench.send(b"l");
        left -= 1;
    }
    // Some clear old interrupts before they ask for new ones.
    bench.write(ICR, INT_TX);
    bench.write(IMSC, INT_TX);
    accesses += 2;
    while left > 0 {
        assert!(bench.level.get(), "room again: {left} left");
        accesses += 2;
        bench.write(ICR, INT_TX);
        for _ in 0..left.min(FIFO / 2) {
            accesses += 1;
            bench.send(b"l");
            left -= 1;
        }
        assert_ne!(bench.read(RIS) & INT_TX, 0);
    }
    assert_eq!(bench.uart.lost_bytes(), 0);
    assert!(accesses < line.len() * 4 / 3, "{accesses} accesses");
}

#[test]
fn transmit_interrupt_is_a_latch() {
    let bench = Bench::new();
    bench.write(IMSC, INT_TX);
    assert!(!bench.level.get(), "nothing has been sent yet");
    bench.send(b"a");
    assert!(bench.level.get());
    bench.write(ICR, INT_TX);
    assert!(!bench.level.get(), "cleared, and stays so though there is room");
    assert_eq!(bench.read(MIS), 0);
    bench.send(b"b");
    assert!(bench.level.get());
}

#[test]
fn a_long_line_comes_in_pieces_and_others_get_a_turn() {
    let bench = Bench::new();
    bench.send(&[b'z'; OUTPUT - FIFO + 1]);
    let mut taken_in_piece = 0;
    loop {
        let (text, taken) = bench.take(false, 64);
        taken_in_piece += text.len();
        // The guest refills at once.
        bench.send(&[b'z'; 64]);
        if taken.end != End::Inside {
            assert_eq!(taken.end, End::Open);
            break;
        }
    }
    assert_eq!(taken_in_piece, CHUNK);
}

#[test]
fn input_raises_the_interrupt_until_it_is_read() {
    let bench = Bench::new();
    bench.write(LCR_H, LCR_H_FEN);
    bench.give(b'a');
    bench.write(ICR, INT_ALL);
    bench.write(IMSC, INT_RX | INT_RT);
    assert!(bench.level.get(), "input that came before the driver was ready is not stuck");
    assert_eq!(bench.read(RIS), INT_RT);
    for byte in *b"bcdefghijklmnop" {
        bench.give(byte);
    }
    assert_eq!(bench.read(MIS), INT_RT | INT_RX, "half of a FIFO");
    for byte in *b"abcdefghijklmnop" {
        assert_eq!(bench.read(FR) & FR_RXFE, 0);
        assert!(bench.level.get());
        assert_eq!(bench.read(DR), u32::from(byte));
    }
    assert!(!bench.level.get());
    assert_eq!(bench.read(FR) & FR_RXFE, FR_RXFE);
    assert_eq!(bench.read(DR), 0, "nothing there");
}

#[test]
fn a_masked_interrupt_does_not_show() {
    let bench = Bench::new();
    bench.give(b'a');
    assert!(!bench.level.get() && !bench.uart.interrupt_level());
    bench.write(IMSC, INT_RT);
    assert!(bench.level.get() && bench.uart.interrupt_level());
    bench.write(IMSC, 0);
    assert!(!bench.level.get());
}

#[test]
fn held_input_is_asked_for_when_there_is_room() {
    let bench = Bench::new();
    let mut given = 0;
    while bench.uart.has_input_room() && bench.give(given as u8) {
        given += 1;
    }
    assert_eq!(given, INPUT);
    assert_eq!(bench.read(FR) & FR_RXFF, FR_RXFF);
    let mut asked = 0;
    for i in 0..INPUT {
        let (byte, effect) = bench.uart.read(DR, WORD, bench.line());
        assert_eq!(byte, i as u64 & 0xFF);
        asked += usize::from(effect == Effect::INPUT);
    }
    assert_eq!(asked, 1, "once, not for every byte");
}

#[test]
fn a_narrow_access_beside_the_data_takes_nothing() {
    let bench = Bench::new();
    bench.give(b'q');
    assert_eq!(bench.uart.read(1, AccessSize::Byte, |_| ()).0, 0);
    assert_eq!(bench.uart.read(2, HALF, |_| ()).0, 0);
    bench.uart.write(1, AccessSize::Byte, 0x41, |_| ());
    assert_eq!(bench.take(true, 8).0, b"");
    assert_eq!(bench.uart.read(DR, AccessSize::Byte, |_| ()).0, u64::from(b'q'));
}

#[test]
fn reset_lowers_the_line_and_keeps_output() {
    let bench = Bench::new();
    bench.send(b"last words");
    bench.give(b'x');
    bench.write(IMSC, INT_ALL);
    assert!(bench.level.get());
    bench.uart.reset(bench.line());
    assert!(!bench.level.get());
    assert_eq!(bench.read(FR), FR_RXFE | FR_TXFE);
    assert_eq!(bench.take(true, 64).0, b"last words");
}

#[test]
fn memory_of_a_uart_is_bounded() {
    assert!(size_of::<Pl011>() <= OUTPUT + INPUT + 128, "{}", size_of::<Pl011>());
}
