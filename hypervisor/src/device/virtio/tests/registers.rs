//! The window: identification, features, status, configuration.

use super::*;

fn machine() -> FakeMachine {
    FakeMachine::new(&[ALL])
}

#[test]
fn a_window_says_what_it_is() {
    let machine = machine();
    for (window, id) in [(CONSOLE, 3), (BLOCK, 2), (NET, 1)] {
        let driver = Driver::new(&machine, 0, window, 8);
        assert_eq!(driver.register(0x000), 0x7472_6976);
        assert_eq!(driver.register(0x004), 2);
        assert_eq!(driver.register(0x008), id);
        assert_eq!(driver.register(0x0fc), 0);
        assert_eq!([driver.register(0xb0), driver.register(0xb4)], [u32::MAX; 2], "no shared memory");
    }
    assert_eq!(machine.read(0, 3, 0, AccessSize::Word), 0, "no window");
}

#[test]
fn registers_take_words_only() {
    let machine = machine();
    for size in [AccessSize::Byte, AccessSize::Half, AccessSize::Double] {
        assert_eq!(machine.read(0, BLOCK, 0, size), 0);
        machine.vms[0].devices.write(&machine, u64::from(BLOCK) * 0x200 + 0x70, size, 1);
    }
    assert_eq!(machine.read(0, BLOCK, 2, AccessSize::Word), 0, "not aligned");
    assert_eq!(Driver::new(&machine, 0, BLOCK, 8).status(), 0);
}

#[test]
fn configuration_is_read_in_any_width_and_never_beyond_its_end() {
    let machine = machine();
    let read = |window, offset: u64, size| machine.read(0, window, 0x100 + offset, size);
    assert_eq!(read(BLOCK, 0, AccessSize::Double), 10, "5000 bytes are ten sectors, the last one cut");
    assert_eq!(read(BLOCK, 0, AccessSize::Word), 10);
    assert_eq!(read(BLOCK, 20, AccessSize::Word), 512);
    assert_eq!(read(BLOCK, 21, AccessSize::Byte), 2);
    let mac: Vec<u64> = (0..6).map(|at| read(NET, at, AccessSize::Byte)).collect();
    assert_eq!(mac, [2, 0x6f, 0x64, 0x6f, 0, 0]);
    assert_eq!(read(NET, 6, AccessSize::Half), 1, "link up");
    assert_eq!(read(NET, 5, AccessSize::Half), 0, "not aligned");
    for window in [CONSOLE, BLOCK, NET] {
        for offset in 60..0x100 {
            for size in [AccessSize::Byte, AccessSize::Half, AccessSize::Word, AccessSize::Double] {
                assert_eq!(read(window, offset, size), 0);
            }
        }
        machine.write(0, window, 0x100, 0xffff_ffff);
    }
    assert_eq!(read(BLOCK, 0, AccessSize::Double), 10, "it can't be written");
}

#[test]
fn features_are_those_that_were_offered() {
    let machine = machine();
    for window in [CONSOLE, BLOCK, NET] {
        let driver = Driver::new(&machine, 0, window, 8);
        let half = |select| {
            driver.set(0x14, select);
            u64::from(driver.register(0x10))
        };
        let offered = half(0) | half(1) << 32;
        assert_eq!(half(2), 0);
        assert_ne!(offered & VERSION_1, 0);
        assert!(driver.negotiate(offered));
        assert!(driver.negotiate(VERSION_1));
        assert!(!driver.negotiate(0), "a legacy driver");
        assert!(!driver.negotiate(offered & !VERSION_1));
        for bit in (0..64).filter(|bit| offered & 1 << bit == 0) {
            assert!(!driver.negotiate(VERSION_1 | 1 << bit), "feature {bit}");
        }
        driver.set(0x70, 0);
        driver.set(0x24, 7);
        driver.set(0x20, 1);
        driver.set(0x24, 1);
        driver.set(0x20, 1);
        driver.set(0x70, 1 | 2 | status::FEATURES_OK);
        assert_eq!(driver.status(), 1 | 2, "a feature beyond the 64");
    }
}

#[test]
fn features_stay_once_they_are_agreed_on() {
    let machine = machine();
    let driver = Driver::new(&machine, 0, BLOCK, 8);
    assert!(driver.negotiate(VERSION_1));
    driver.set(0x24, 0);
    driver.set(0x20, u32::MAX);
    driver.set(0x70, 1 | 2 | status::FEATURES_OK | status::DRIVER_OK);
    assert_eq!(driver.status(), 1 | 2 | status::FEATURES_OK | status::DRIVER_OK);
}

#[test]
fn a_driver_runs_only_after_features_and_sets_only_its_own_bits() {
    let machine = machine();
    let driver = Driver::new(&machine, 0, BLOCK, 8);
    driver.set(0x70, 1 | 2 | status::DRIVER_OK);
    assert_eq!(driver.status(), 1 | 2);
    driver.set(0x70, !status::FEATURES_OK);
    assert_eq!(driver.status(), 1 | 2 | 128, "NEEDS_RESET is the device's to set");
    driver.set(0x70, 1);
    assert_eq!(driver.status(), 1 | 2 | 128, "no bit is taken back");
    driver.set(0x70, 0);
    assert_eq!(driver.status(), 0);
}

#[test]
fn queues_that_cannot_be_break_the_device() {
    let machine = machine();
    let good = Driver::new(&machine, 0, CONSOLE, 8).rings[0];
    let ram_end = RAM + RAM_BYTES;
    // Size, descriptors, available, used.
    let cases = [
        (0, good.base, good.available(), good.used()),
        (3, good.base, good.available(), good.used()),
        (128, good.base, good.available(), good.used()),
        (0x1_0008, good.base, good.available(), good.used()),
        (8, good.base + 8, good.available(), good.used()),
        (8, good.base, good.available() + 1, good.used()),
        (8, good.base, good.available(), good.used() + 2),
        (8, ram_end - 112, good.available(), good.used()),
        (8, good.base, ram_end - 20, good.used()),
        (8, good.base, good.available(), ram_end - 68),
        (8, 0, good.available(), good.used()),
        (8, good.base, good.available(), u64::MAX - 3),
        (8, !15, good.available(), good.used()),
    ];
    for case in cases {
        let driver = Driver::new(&machine, 0, CONSOLE, 8);
        assert!(driver.negotiate(VERSION_1));
        driver.set(0x30, 1);
        driver.set(0x38, case.0);
        for (offset, at) in [(0x80, case.1), (0x90, case.2), (0xa0, case.3)] {
            driver.set(offset, at as u32);
            driver.set(offset + 4, (at >> 32) as u32);
        }
        driver.set(0x44, 1);
        let before = machine.interrupts(0, CONSOLE);
        driver.set(0x70, 1 | 2 | status::FEATURES_OK | status::DRIVER_OK);
        assert!(driver.needs_reset(), "{case:x?}");
        assert_eq!(machine.interrupts(0, CONSOLE), before + 1);
        assert_eq!(driver.register(0x60), 2, "configuration changed");
        driver.kick(1);
    }
}

#[test]
fn a_queue_that_is_ready_is_not_changed() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 8);
    driver.set(0x30, 1);
    driver.set(0x38, 3);
    driver.set(0x80, 0);
    driver.ram().put(DATA, b"still");
    driver.add(1, &[(DATA, 5, false)]);
    driver.kick(1);
    assert_eq!(*machine.vms[0].output.lock().unwrap(), b"still");
    assert_eq!(driver.register(0x44), 1);
    driver.set(0x30, 2);
    assert_eq!([driver.register(0x34), driver.register(0x44)], [0, 0], "there are two queues only");
    driver.set(0x44, 1);
    assert!(!driver.needs_reset());
}

#[test]
fn an_interrupt_comes_when_the_status_leaves_zero_and_when_more_is_left() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 8);
    driver.ram().put(DATA, b"x");
    let send = |driver: &mut Driver<'_>| {
        driver.add(1, &[(DATA, 1, false)]);
        driver.kick(1);
    };
    send(&mut driver);
    send(&mut driver);
    assert_eq!(machine.interrupts(0, CONSOLE), 1, "the first one is not acknowledged yet");
    assert_eq!(driver.acknowledge(), 1);
    assert_eq!(driver.register(0x60), 0);
    send(&mut driver);
    assert_eq!(machine.interrupts(0, CONSOLE), 2);
    // A rule is broken before it is acknowledged.
    driver.offer(1, 99);
    driver.kick(1);
    assert!(driver.needs_reset());
    assert_eq!(machine.interrupts(0, CONSOLE), 2);
    driver.set(0x64, 1);
    assert_eq!(machine.interrupts(0, CONSOLE), 3, "it has not seen the other bit");
    assert_eq!(driver.acknowledge(), 2);
    assert_eq!(machine.interrupts(0, CONSOLE), 3);
}

#[test]
fn a_driver_that_wants_no_interrupts_gets_none() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 8);
    driver.want_interrupts(1, false);
    driver.add(1, &[(DATA, 1, false)]);
    driver.kick(1);
    assert_eq!(machine.interrupts(0, CONSOLE), 0);
    assert!(driver.done(1).is_some());
}

#[test]
fn a_reset_forgets_everything() {
    let machine = machine();
    let mut driver = Driver::running(&machine, 0, CONSOLE, 8);
    driver.add(1, &[(DATA, 1, false)]);
    driver.set(0x70, 0);
    assert_eq!([driver.status(), driver.register(0x60)], [0, 0]);
    driver.set(0x30, 1);
    assert_eq!(driver.register(0x44), 0);
    driver.kick(1);
    assert!(driver.done(1).is_none() && machine.vms[0].output.lock().unwrap().is_empty());
    driver.start(VERSION_1);
    driver.add(1, &[(DATA, 1, false)]);
    driver.kick(1);
    assert_eq!(driver.done(1), Some((0, 0)));
    machine.vms[0].devices.reset(&machine);
    assert_eq!(driver.status(), 0);
}
