use super::*;
use proptest::prelude::*;

fn storage(kind: Kind, capacity: usize, size: usize) -> Vec<u8> {
    vec![0; kind.storage(capacity, size)]
}

#[test]
fn a_socket_holds_as_many_messages_of_100_bytes_as_linux() {
    let mut bytes = storage(Kind::Socket, SOCKET_LIMIT, 100);
    let mut socket = Carrier::new(Kind::Socket, SOCKET_LIMIT, &mut bytes);
    let mut n = 0;
    while socket.write(&[7; 100]) == 100 {
        n += 1;
    }
    assert_eq!(n, 277);
}

#[test]
fn a_pipe_takes_a_short_write_whole_or_not_at_all() {
    let mut bytes = storage(Kind::Pipe, 4096, 100);
    let mut pipe = Carrier::new(Kind::Pipe, 4096, &mut bytes);
    for _ in 0..40 {
        assert_eq!(pipe.write(&[1; 100]), 100);
    }
    assert_eq!(pipe.write(&[2; 100]), 0, "96 bytes are free");
    assert_eq!(pipe.wake(), Wake::Nobody);
    assert_eq!(pipe.write(&[2; 96]), 96);
    let mut out = [0; 5000];
    assert_eq!(pipe.read(&mut out), 4096);
    assert_eq!(pipe.wake(), Wake::One);
}

#[test]
fn a_write_over_the_atomic_limit_is_split() {
    let mut bytes = storage(Kind::Pipe, 8192, 100_000);
    let mut pipe = Carrier::new(Kind::Pipe, 8192, &mut bytes);
    assert_eq!(pipe.write(&vec![1; 100_000]), 8192);
    assert_eq!(pipe.write(&vec![1; 100_000]), 0);
}

#[test]
fn a_long_socket_message_goes_in_pieces_and_a_short_read_leaves_the_rest() {
    let mut bytes = storage(Kind::Socket, SOCKET_LIMIT, 40_000);
    let mut socket = Carrier::new(Kind::Socket, SOCKET_LIMIT, &mut bytes);
    assert_eq!(socket.write(&vec![3; 40_000]), SOCKET_MESSAGE);
    assert_eq!(socket.write(&vec![4; 40_000 - SOCKET_MESSAGE]), 40_000 - SOCKET_MESSAGE);
    let mut out = vec![0; 39_999];
    assert_eq!(socket.read(&mut out), 39_999, "a read takes from several messages");
    assert!(socket.is_readable());
    assert_eq!(socket.read(&mut out), 1);
    assert!(!socket.is_readable());
    assert_eq!(socket.wake(), Wake::All);
}

#[test]
fn an_empty_carrier_reads_nothing_and_always_lets_a_writer_on() {
    for kind in [Kind::Pipe, Kind::Socket] {
        for capacity in [LEAST_CAPACITY, kind.capacity()] {
            for size in [1, 8, 100, 4096, 50_000] {
                let mut bytes = storage(kind, capacity, size);
                let mut carrier = Carrier::new(kind, capacity, &mut bytes);
                assert_eq!(carrier.read(&mut [0; 10]), 0);
                assert_ne!(carrier.wake(), Wake::Nobody);
                assert!(carrier.write(&vec![0; size]) > 0, "{kind:?} {capacity} {size}");
                carrier.clear();
                assert!(!carrier.is_readable());
            }
        }
    }
}

proptest! {
    /// Whatever is written and read in whatever pieces: bytes come out in order, none lost, none invented;
    /// and a full carrier that is read empty wakes its writers.
    #[test]
    fn bytes_come_out_in_order(
        socket in any::<bool>(),
        size in 1usize..600,
        steps in proptest::collection::vec((any::<bool>(), 1usize..1500), 1..300),
    ) {
        let kind = if socket { Kind::Socket } else { Kind::Pipe };
        let mut bytes = storage(kind, LEAST_CAPACITY, size);
        let mut carrier = Carrier::new(kind, LEAST_CAPACITY, &mut bytes);
        let mut model = std::collections::VecDeque::new();
        let mut next = 0u8;
        for (write, length) in steps {
            if write {
                let data: Vec<u8> = (0..length.min(size)).map(|i| next.wrapping_add(i as u8)).collect();
                let n = carrier.write(&data);
                prop_assert!(n <= data.len());
                model.extend(&data[..n]);
                next = next.wrapping_add(n as u8);
            } else {
                let mut out = vec![0; length];
                let n = carrier.read(&mut out);
                prop_assert_eq!(n, length.min(model.len()), "a read takes all there is");
                for byte in &out[..n] {
                    prop_assert_eq!(Some(*byte), model.pop_front());
                }
            }
            prop_assert_eq!(carrier.is_readable(), !model.is_empty());
        }
        let mut out = vec![0; model.len()];
        carrier.read(&mut out);
        prop_assert_ne!(carrier.wake(), Wake::Nobody);
    }
}
