//! Chains: those that are right, and each kind that is wrong.

use super::super::fake::{DESC_NEXT, DESC_WRITE};
use super::super::queue::{Broken, Queue, Table};
use super::*;
use proptest::prelude::*;

const SIZE: u16 = 8;

/// A live queue whose tables are those of a driver's ring 0.
fn queue<'a>(machine: &'a FakeMachine) -> (Queue, Driver<'a>) {
    let driver = Driver::new(machine, 0, CONSOLE, SIZE);
    let ring = driver.rings[0];
    driver.ram().put(ring.available(), &[0; 4]);
    driver.ram().put(ring.used(), &[0; 4]);
    let mut queue = Queue::new(64, false);
    queue.set_size(SIZE.into());
    queue.set_address(Table::Descriptors, |at| *at = ring.base);
    queue.set_address(Table::Available, |at| *at = ring.available());
    queue.set_address(Table::Used, |at| *at = ring.used());
    queue.set_ready(true);
    queue.start(&driver.ram(), false).unwrap();
    (queue, driver)
}

/// What comes of a chain of these descriptors (address, length, flags, next), the first of which is the head.
fn broken(descriptors: &[(u64, u32, u16, u16)]) -> Result<(), Broken> {
    let machine = FakeMachine::new(&[ALL]);
    let (mut queue, mut driver) = queue(&machine);
    for (index, (at, len, flags, next)) in (0..).zip(descriptors) {
        driver.descriptor(0, index, *at, *len, *flags, *next);
    }
    driver.offer(0, 0);
    queue.pop(&driver.ram()).map(|_| ())
}

#[test]
fn malformed_chains_are_told_by_their_fault() {
    const W: u16 = DESC_WRITE;
    const N: u16 = DESC_NEXT;
    let end = RAM + RAM_BYTES;
    assert_eq!(broken(&[(DATA, 16, 0, 0)]), Ok(()));
    assert_eq!(broken(&[(DATA, 16, N, 1), (DATA, 16, W, 0)]), Ok(()));
    assert_eq!(broken(&[(DATA, 0, 0, 0)]), Ok(()), "an empty piece");
    assert_eq!(broken(&[(end - 16, 16, 0, 0)]), Ok(()), "up to the end of RAM");
    assert_eq!(broken(&[(end - 16, 17, 0, 0)]), Err(Broken::Memory));
    assert_eq!(broken(&[(RAM - 1, 2, 0, 0)]), Err(Broken::Memory));
    assert_eq!(broken(&[(0, 1, W, 0)]), Err(Broken::Memory));
    assert_eq!(broken(&[(u64::MAX, u32::MAX, 0, 0)]), Err(Broken::Memory), "the end wraps");
    assert_eq!(broken(&[(DATA, 1, N, SIZE)]), Err(Broken::Index));
    assert_eq!(broken(&[(DATA, 1, N, u16::MAX)]), Err(Broken::Index));
    assert_eq!(broken(&[(DATA, 1, N, 0)]), Err(Broken::Loop), "its own successor");
    assert_eq!(broken(&[(DATA, 1, N, 1), (DATA, 1, N, 0)]), Err(Broken::Loop));
    assert_eq!(broken(&[(DATA, 16, 4, 0)]), Err(Broken::Indirect));
    assert_eq!(broken(&[(DATA, 1, W | N, 1), (DATA, 1, 0, 0)]), Err(Broken::Order));
    let all: Vec<_> = (0..SIZE).map(|n| (DATA, 1, if n + 1 < SIZE { N } else { 0 }, n + 1)).collect();
    assert_eq!(broken(&all), Ok(()), "as long as the queue");
}

#[test]
fn more_than_the_queue_holds_is_not_taken() {
    let machine = FakeMachine::new(&[ALL]);
    let (mut queue, driver) = queue(&machine);
    let index = driver.rings[0].available() + 2;
    for (value, expected) in [(8_u16, Ok(8)), (9, Err(Broken::Available)), (u16::MAX, Err(Broken::Available))]
    {
        driver.ram().put(index, &value.to_le_bytes());
        assert_eq!(queue.waiting(&driver.ram()), expected);
    }
    assert_eq!(queue.pop(&driver.ram()).err(), Some(Broken::Available));
}

#[test]
fn a_head_beyond_the_table_is_refused() {
    let machine = FakeMachine::new(&[ALL]);
    let (mut queue, mut driver) = queue(&machine);
    driver.offer(0, SIZE);
    assert_eq!(queue.pop(&driver.ram()).err(), Some(Broken::Index));
}

#[test]
fn indices_wrap_around() {
    let machine = FakeMachine::new(&[ALL]);
    let mut driver = Driver::running(&machine, 0, CONSOLE, SIZE);
    driver.want_interrupts(1, false);
    for n in 0..0x1_0010_u32 {
        let count = 1 + n % 3;
        let heads: Vec<u32> = (0..count).map(|_| driver.add(1, &[(DATA, 1, false)]).into()).collect();
        driver.kick(1);
        for head in heads {
            assert_eq!(driver.done(1), Some((head, 0)), "round {n}");
        }
        assert_eq!(driver.done(1), None);
    }
    assert!(!driver.needs_reset());
}

#[test]
fn a_chain_that_was_put_back_comes_again() {
    let machine = FakeMachine::new(&[ALL]);
    let (mut queue, mut driver) = queue(&machine);
    let head = driver.add(0, &[(DATA, 4, false)]);
    let memory = driver.ram();
    assert_eq!(queue.pop(&memory).unwrap().unwrap().head(), head);
    queue.put_back(3);
    assert_eq!((queue.progress, queue.waiting(&memory)), (3, Ok(1)));
    assert_eq!(queue.pop(&memory).unwrap().unwrap().head(), head);
    queue.push(&memory, head, 0).unwrap();
    assert_eq!((queue.progress, queue.waiting(&memory)), (0, Ok(0)));
}

#[test]
fn a_queue_that_was_stopped_takes_and_gives_nothing() {
    let machine = FakeMachine::new(&[ALL]);
    let (mut queue, mut driver) = queue(&machine);
    driver.add(0, &[(DATA, 4, false)]);
    queue.stop();
    assert!(queue.pop(&driver.ram()).unwrap().is_none());
    queue.push(&driver.ram(), 0, 0).unwrap();
    assert!(driver.done(0).is_none());
    queue.start(&driver.ram(), false).unwrap();
    assert!(queue.pop(&driver.ram()).unwrap().is_some(), "it is still ready");
}

proptest! {
    /// The parts of a chain are the bytes of its pieces, however they are cut.
    #[test]
    fn parts_are_rows_of_bytes(
        lens in prop::collection::vec(0_u32..20, 1..SIZE as usize),
        readable in 0_usize..8,
        skip in 0_u32..200,
        take in 0_u32..200,
    ) {
        let machine = FakeMachine::new(&[ALL]);
        let (mut queue, mut driver) = queue(&machine);
        let readable = readable.min(lens.len());
        let mut at = DATA;
        let mut pieces = Vec::new();
        let mut parts = [Vec::new(), Vec::new()];
        for (n, len) in lens.iter().enumerate() {
            let bytes: Vec<u8> = (0..*len).map(|byte| (n as u32 * 20 + byte) as u8).collect();
            driver.ram().put(at, &bytes);
            pieces.push((at, *len, n >= readable));
            parts[usize::from(n >= readable)].extend(bytes);
            at += 100;
        }
        driver.add(0, &pieces);
        let memory = driver.ram();
        let chain = queue.pop(&memory).unwrap().unwrap();
        for (part, bytes) in [chain.readable(), chain.writable()].into_iter().zip(&parts) {
            prop_assert_eq!(part.len() as usize, bytes.len());
            let from = (skip as usize).min(bytes.len());
            let to = (from + take as usize).min(bytes.len());
            let cut = part.skip(skip).take(take);
            prop_assert_eq!(cut.len() as usize, to - from);
            let mut read = vec![0; 300];
            let count = cut.read(&memory, &mut read).unwrap();
            prop_assert_eq!(&read[..count], &bytes[from..to]);
            let sum: u32 = cut.pieces().map(|(_, len)| len).sum();
            prop_assert_eq!(sum, cut.len());
            // What is written is read again, and nothing around it has changed.
            prop_assert_eq!(cut.write(&memory, &[0xee; 300]).unwrap(), to - from);
            let mut expected = bytes.clone();
            expected[from..to].fill(0xee);
            let count = part.read(&memory, &mut read).unwrap();
            prop_assert_eq!(&read[..count], &expected[..]);
        }
    }

    /// Whatever stands in the tables: a chain is within RAM and no longer than the queue, or it is refused.
    #[test]
    fn chains_of_any_content_are_bounded(
        table in prop::collection::vec(
            (prop_oneof![Just(DATA), any::<u64>(), RAM..RAM + RAM_BYTES], 0_u32..70_000, 0_u16..8, 0_u16..10),
            SIZE as usize,
        ),
        head in 0_u16..10,
    ) {
        let machine = FakeMachine::new(&[ALL]);
        let (mut queue, mut driver) = queue(&machine);
        for (index, (at, len, flags, next)) in (0..).zip(&table) {
            driver.descriptor(0, index, *at, *len, *flags, *next);
        }
        driver.offer(0, head);
        let memory = driver.ram();
        if let Ok(Some(chain)) = queue.pop(&memory) {
            prop_assert!(chain.readable().segments() + chain.writable().segments() <= SIZE as usize);
            for (at, len) in chain.readable().pieces().chain(chain.writable().pieces()) {
                prop_assert!(at.0 >= RAM && at.0 + u64::from(len) <= RAM + RAM_BYTES);
            }
        }
    }
}
