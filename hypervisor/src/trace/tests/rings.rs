use super::super::area::{MAGIC, VERSION};
use super::super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

fn memory(layout: Layout) -> Vec<AtomicU64> {
    (0..layout.words()).map(|_| AtomicU64::new(0)).collect()
}

pub(super) fn copy(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
}

fn events() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(&Kind::ALL[..]);
    (any::<u64>(), kind, any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>())
        .prop_map(|(time, kind, detail, vm, vcpu, value)| Event { time, kind, detail, vm, vcpu, value })
}

proptest! {
    /// What is read is the end of what was written, and what is missing is counted.
    #[test]
    fn rings_keep_the_newest_events(
        cpus in 1usize..5,
        bits in 1u32..6,
        written in prop::collection::vec((0usize..5, events()), 0..200),
    ) {
        let layout = Layout::new(cpus as u64, 1 << bits).unwrap();
        let words = memory(layout);
        let area = Area::new(layout, 62_500_000, &words).unwrap();
        let mut expected = vec![Vec::new(); cpus];
        for (cpu, event) in written {
            area.ring(cpu % cpus).unwrap().record(event);
            expected[cpu % cpus].push(event);
        }
        let decoded = decode(&copy(&words)).unwrap();
        prop_assert_eq!(decoded.counter_hz, 62_500_000);
        prop_assert_eq!(decoded.cpus.len(), cpus);
        for (trace, all) in decoded.cpus.iter().zip(&expected) {
            let lost = if all.len() < 1 << bits { 0 } else { all.len() + 1 - (1 << bits) };
            prop_assert_eq!(trace.lost, lost as u64);
            prop_assert_eq!(&trace.events[..], &all[lost..]);
        }
    }

    /// Whatever the memory holds, reading it ends, in an answer.
    #[test]
    fn any_memory_is_read_or_refused(
        header in prop::array::uniform3(0u64..9),
        rest in prop::collection::vec(any::<u64>(), 0..100),
    ) {
        let words = [MAGIC, VERSION].into_iter().chain(header).chain(rest);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        if let Err(error) = decode(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn a_cpu_has_a_ring_of_its_own() {
    let layout = Layout::new(2, 4).unwrap();
    let words = memory(layout);
    assert!(Area::new(layout, 1, &words[1..]).is_none());
    let area = Area::new(layout, 1, &words).unwrap();
    assert!(area.ring(1).is_some() && area.ring(2).is_none());
    assert!(copy(&words).starts_with(b"ODOTRACE"));
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    assert_eq!(Layout::new(0, 4), Err(LayoutError::Cpus(0)));
    assert_eq!(Layout::new(u64::MAX, 4), Err(LayoutError::Cpus(u64::MAX)));
    for entries in [0, 1, 3, Layout::MOST_ENTRIES * 2, u64::MAX] {
        assert_eq!(Layout::new(1, entries), Err(LayoutError::Entries(entries)));
    }
}

#[test]
fn what_is_no_trace_is_named() {
    let layout = Layout::new(1, 4).unwrap();
    let words = memory(layout);
    let area = Area::new(layout, 1, &words).unwrap();
    let ring = area.ring(0).unwrap();
    ring.record(Event { time: 1, kind: Kind::Enter, detail: 0, vm: 0, vcpu: 0, value: 0 });
    let good = copy(&words);
    assert_eq!(decode(&good).unwrap().cpus[0].events.len(), 1);

    assert_eq!(decode(&good[..39]), Err(DecodeError::Short(39, 64)));
    // Up to the end of the first event all is there.
    assert_eq!(decode(&good[..143]), Err(DecodeError::Short(143, 192)));
    let with = |word: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        decode(&bytes)
    };
    assert_eq!(with(0, 7), Err(DecodeError::Magic(7)));
    assert_eq!(with(1, 2), Err(DecodeError::Version(2)));
    assert_eq!(with(2, 0), Err(DecodeError::Layout(LayoutError::Cpus(0))));
    assert_eq!(with(4, 0), Err(DecodeError::Frequency));
    let unknown = with(17, 0x1_00fe).unwrap_err();
    assert_eq!(unknown.to_string(), "CPU 0, event 0: 0x00000000000100fe is no event: kind 254 is unknown");
}
