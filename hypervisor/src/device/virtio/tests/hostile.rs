//! A guest that does anything: whatever it writes, nothing panics, others go on, and after a reset its devices work.

use super::*;
use proptest::prelude::*;

/// One thing that a guest may do.
#[derive(Clone, Debug)]
enum Step {
    /// Writes a register of a window.
    Register(u32, u64, u32),
    /// Reads one.
    Read(u32, u64, u8),
    /// Writes memory: the table or ring of a queue, at some word.
    Memory(u32, u64, u64),
    /// Rings a bell.
    Kick(u32, u32),
    /// Sets a device up as it should be.
    Start(u32),
    /// The console has room, or input.
    Console(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        any::<u64>(),
        // A descriptor's address, or its other half: length, flags, next.
        (0_u64..RAM_BYTES).prop_map(|offset| RAM + offset),
        (0_u64..3000, 0_u64..8, 0_u64..18).prop_map(|(len, flags, next)| len | flags << 32 | next << 48),
        (0_u64..40).prop_map(|index| index << 16),
    ];
    prop_oneof![
        2 => (0_u32..4, (0_u64..0x80).prop_map(|n| n * 4), prop_oneof![any::<u32>(), 0_u32..20])
            .prop_map(|(window, offset, value)| Step::Register(window, offset, value)),
        1 => (0_u32..4, 0_u64..0x200, 0_u8..4).prop_map(|(window, offset, size)| Step::Read(window, offset, size)),
        8 => (0_u32..3, 0_u64..0x100, word).prop_map(|(window, at, value)| Step::Memory(window, at, value)),
        4 => (0_u32..3, 0_u32..3).prop_map(|(window, queue)| Step::Kick(window, queue)),
        2 => (0_u32..3).prop_map(Step::Start),
        1 => any::<bool>().prop_map(Step::Console),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn nothing_that_a_guest_does_reaches_beyond_it(steps in prop::collection::vec(step(), 1..150)) {
        static IMAGE: [u8; 9000] = [0x33; 9000];
        let disk = Some(Disk { image: &IMAGE, read_only: false });
        let set = DeviceSet { disk, ..ALL };
        let machine = FakeMachine::new(&[set, set]);
        let mut peer = Driver::running(&machine, 1, NET, 16);
        peer.add(0, &[(DATA, 2000, true)]);
        machine.vms[0].input.lock().unwrap().extend([7; 100]);
        let devices = &machine.vms[0].devices;
        for step in steps {
            match step {
                Step::Register(window, offset, value) => machine.write(0, window, offset, value),
                Step::Read(window, offset, size) => {
                    machine.read(0, window, offset, AccessSize::from_sas(size.into()));
                }
                Step::Memory(window, at, value) => {
                    let base = Driver::new(&machine, 0, window, 16).rings[at as usize % 2].base;
                    machine.ram(0).put(base + at / 2 * 8, &value.to_le_bytes());
                }
                Step::Kick(window, queue) => machine.write(0, window, 0x50, queue),
                Step::Start(window) => Driver::new(&machine, 0, window, 16).start(VERSION_1),
                Step::Console(true) => {
                    devices.console_has_room(&machine);
                }
                Step::Console(false) => devices.console_has_input(&machine),
            }
        }
        prop_assert!(!peer.needs_reset());
        let untouched = peer.ram().bytes(DATA + 2000, 1000);
        prop_assert!(untouched.iter().all(|byte| *byte == 0xa5));
        for window in [CONSOLE, BLOCK, NET] {
            let mut driver = Driver::running(&machine, 0, window, 16);
            prop_assert!(!driver.needs_reset());
            let queue = if window == BLOCK { 0 } else { 1 };
            driver.ram().put(DATA, &[0; 16]);
            driver.add(queue, &[(DATA, 16, false), (DATA + 64, 513, true)]);
            driver.kick(queue as u32);
            prop_assert!(driver.done(queue).is_some());
        }
        let pages = machine.vms[0].devices.end(&machine);
        prop_assert!(pages <= 3);
    }
}
