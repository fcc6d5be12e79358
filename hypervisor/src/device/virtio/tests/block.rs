//! virtio-blk.

use super::*;
use std::sync::atomic::Ordering::SeqCst;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;
const STATUS: u64 = DATA + 0x4_0000;
const BODY: u64 = DATA + 0x1000;

/// Sends a request with `len` bytes of data; status and bytes written.
fn request(driver: &mut Driver<'_>, kind: u32, sector: u64, len: u32) -> (u8, u32) {
    driver.ram().put(DATA, &(u128::from(kind) | u128::from(sector) << 64).to_le_bytes());
    driver.ram().put(STATUS, &[0xee]);
    let header = (DATA, 16, false);
    let status = (STATUS, 1, true);
    let write = kind != OUT;
    let (first, second) = (len / 3, len - len / 3);
    let body = [(BODY, first, write), (BODY + u64::from(first), second, write)];
    driver.add(0, &if len == 0 { vec![header, status] } else { vec![header, body[0], body[1], status] });
    driver.kick(0);
    let (_, written) = driver.done(0).expect("it is done at once");
    (driver.ram().bytes(STATUS, 1)[0], written)
}

fn image() -> &'static [u8] {
    let bytes: Vec<u8> = (0..20_100_u32).map(|n| (n / 512 * 3 + n) as u8).collect();
    Box::leak(bytes.into_boxed_slice())
}

fn with(image: &'static [u8], read_only: bool, vms: usize) -> FakeMachine {
    let disk = Some(Disk { image, read_only });
    FakeMachine::new(&vec![DeviceSet { disk, ..DeviceSet::default() }; vms])
}

#[test]
fn sectors_are_read_and_the_last_one_is_filled_up() {
    let image = image();
    let machine = with(image, true, 1);
    let mut driver = Driver::running(&machine, 0, 0, 16);
    assert_eq!(machine.read(0, 0, 0x100, AccessSize::Double), 40);
    assert_eq!(request(&mut driver, IN, 3, 8192), (OK, 8193));
    assert_eq!(driver.ram().bytes(BODY, 8192), image[1536..1536 + 8192]);
    assert_eq!(request(&mut driver, IN, 39, 512), (OK, 513));
    let mut last = image[39 * 512..].to_vec();
    last.resize(512, 0);
    assert_eq!(driver.ram().bytes(BODY, 512), last);
    assert_eq!(driver.acknowledge(), 1);
}

#[test]
fn what_is_not_on_the_disk_or_too_much_is_an_error() {
    let machine = with(image(), false, 1);
    let mut driver = Driver::running(&machine, 0, 0, 16);
    for (sector, len) in
        [(40, 512), (39, 1024), (0, 511), (u64::MAX, 512), (1 << 55, 512), (u64::MAX / 512, 1024)]
    {
        assert_eq!(request(&mut driver, IN, sector, len), (IO_ERROR, 1), "{sector} {len}");
        assert_eq!(request(&mut driver, OUT, sector, len), (IO_ERROR, 1), "{sector} {len}");
    }
    static LARGE: [u8; 1 << 20] = [0; 1 << 20];
    let machine = with(&LARGE, false, 1);
    let mut driver = Driver::running(&machine, 0, 0, 16);
    let most = machine.read(0, 0, 0x108, AccessSize::Word) * machine.read(0, 0, 0x10c, AccessSize::Word);
    assert!(most < 1 << 20);
    driver.ram().put(DATA, &[0; 16]);
    // Not that much RAM is needed: the same again and again.
    let body = vec![(RAM, 0x4_0000, true); (most / 0x4_0000 + 1) as usize];
    driver.add(0, &[&[(DATA, 16, false)], &body[..], &[(STATUS, 1, true)]].concat());
    driver.kick(0);
    assert!(driver.done(0).is_some());
    assert_eq!(driver.ram().bytes(STATUS, 1), [IO_ERROR]);
}

#[test]
fn a_read_only_disk_says_so_and_stays_as_it_is() {
    let machine = with(image(), true, 1);
    let mut driver = Driver::new(&machine, 0, 0, 16);
    driver.set(0x14, 0);
    assert_ne!(driver.register(0x10) & 1 << 5, 0);
    driver.start(VERSION_1);
    assert_eq!(request(&mut driver, OUT, 0, 512), (IO_ERROR, 1));
}

#[test]
fn what_is_written_is_private_and_is_read_again() {
    let image = image();
    let machine = with(image, false, 2);
    let mut a = Driver::running(&machine, 0, 0, 16);
    let mut b = Driver::running(&machine, 1, 0, 16);
    let text: Vec<u8> = (0..9 * 512).map(|n| (n % 251) as u8).collect();
    a.ram().put(BODY, &text);
    assert_eq!(request(&mut a, OUT, 6, 9 * 512), (OK, 1), "over the end of a page");
    assert_eq!(request(&mut a, FLUSH, 0, 0), (OK, 1));
    let mut expected = image.to_vec();
    expected[6 * 512..15 * 512].copy_from_slice(&text);
    for (driver, bytes) in [(&mut a, &expected[..]), (&mut b, image)] {
        assert_eq!(request(driver, IN, 0, 20 * 512), (OK, 20 * 512 + 1));
        assert_eq!(driver.ram().bytes(BODY, 20 * 512), bytes[..20 * 512]);
    }
    // The last page, of which the image has only a part.
    a.ram().put(BODY, &text);
    assert_eq!(request(&mut a, OUT, 38, 512), (OK, 1));
    assert_eq!(request(&mut a, IN, 39, 512), (OK, 513));
    let mut last = image[39 * 512..].to_vec();
    last.resize(512, 0);
    assert_eq!(a.ram().bytes(BODY, 512), last);
    // A reset keeps it; the end gives it back.
    machine.vms[0].devices.reset(&machine);
    a.start(VERSION_1);
    assert_eq!(request(&mut a, IN, 6, 512), (OK, 513));
    assert_eq!(a.ram().bytes(BODY, 512), text[..512]);
    assert_eq!(machine.vms[0].devices.end(&machine), 3);
    assert_eq!(machine.free.load(SeqCst), usize::MAX);
}

#[test]
fn a_write_without_memory_is_an_error_and_nothing_else() {
    let machine = with(image(), false, 1);
    let mut driver = Driver::running(&machine, 0, 0, 16);
    machine.free.store(1, SeqCst);
    assert_eq!(request(&mut driver, OUT, 0, 512), (OK, 1));
    assert_eq!(request(&mut driver, OUT, 8, 512), (IO_ERROR, 1));
    assert_eq!(request(&mut driver, OUT, 1, 512), (OK, 1), "in the page that there is");
    assert!(!driver.needs_reset());
}

#[test]
fn the_id_names_the_disk() {
    let machine = with(image(), true, 2);
    let mut driver = Driver::running(&machine, 1, 0, 16);
    assert_eq!(request(&mut driver, GET_ID, 0, 20), (OK, 21));
    assert_eq!(driver.ram().bytes(BODY, 20), b"odometer-disk-1\0\0\0\0\0");
    assert_eq!(request(&mut driver, GET_ID, 0, 6), (OK, 7));
}

#[test]
fn unknown_requests_are_unsupported() {
    let machine = with(image(), true, 1);
    let mut driver = Driver::running(&machine, 0, 0, 16);
    for kind in [2, 3, 11, 13, u32::MAX] {
        assert_eq!(request(&mut driver, kind, 0, 512), (UNSUPPORTED, 1));
    }
}

#[test]
fn requests_without_header_or_status_break_the_device() {
    for chain in [
        &[(DATA, 15, false), (STATUS, 1, true)][..],
        &[(DATA, 16, false)],
        &[(DATA, 16, false), (STATUS, 0, true)],
        &[(STATUS, 1, true)],
    ] {
        let machine = with(image(), true, 1);
        let mut driver = Driver::running(&machine, 0, 0, 16);
        driver.add(0, chain);
        driver.kick(0);
        assert!(driver.needs_reset() && driver.done(0).is_none(), "{chain:x?}");
        driver.start(VERSION_1);
        assert_eq!(request(&mut driver, IN, 0, 512), (OK, 513), "after a reset it works again");
    }
}
