use super::*;

#[test]
fn messaging_defaults_are_hackbenchs() {
    let Ok(Load::Messaging(m)) = Load::parse("load=messaging") else { panic!() };
    assert_eq!((m.groups, m.fds, m.loops, m.size, m.runs), (10, 20, 100, 100, 1));
    assert_eq!((m.mode, m.carrier), (Mode::Process, Kind::Socket));
    assert_eq!(m.messages(), 400_000);
    assert_eq!(m.workers(), Some(400));
}

#[test]
fn every_parameter_is_read() {
    let text = "groups=2 fds=3 loops=4  size=5 mode=thread carrier=pipe runs=6 pause_us=500 buffer=4096 tick_us=1000 load=messaging";
    let Ok(Load::Messaging(m)) = Load::parse(text) else { panic!() };
    assert_eq!((m.groups, m.fds, m.loops, m.size, m.runs), (2, 3, 4, 5, 6));
    assert_eq!((m.mode, m.carrier), (Mode::Thread, Kind::Pipe));
    assert_eq!((m.buffer, m.tick_us, m.pause_us), (Some(4096), 1000, 500));
    let Ok(Load::Messaging(m)) = Load::parse("load=messaging preempt_us=off") else { panic!() };
    assert_eq!(m.preempt_us, None);
    assert_eq!(Load::parse("load=micro n=5").unwrap(), Load::Micro { ops: Ops::ALL, n: 5 });
    assert_eq!(Load::parse("load=idle seconds=0.25").unwrap(), Load::Idle { milliseconds: 250 });
    assert_eq!(Load::parse("load=idle seconds=0").unwrap(), Load::Idle { milliseconds: 0 });
    assert_eq!(
        Load::parse("load=spin masked=on seconds=2").unwrap(),
        Load::Spin { milliseconds: 2000, masked: true }
    );
    assert_eq!(Load::parse("load=yield n=7").unwrap(), Load::Yield { n: 7 });
    assert_eq!(Load::parse("load=tick rounds=7").unwrap(), Load::Tick { rounds: 7 });
    assert_eq!(Load::parse("load=reset n=7").unwrap(), Load::Reset { n: 7 });
    assert_eq!(Load::parse("load=selftest end=vcpu1").unwrap(), Load::SelfTest { end: End::Vcpu1 });
}

#[test]
fn operations_are_chosen_by_name() {
    let Ok(Load::Micro { ops, n }) = Load::parse("load=micro ops=hypercall,vmid_fast") else { panic!() };
    assert_eq!(n, 1000);
    let chosen: Vec<_> = Op::ALL.into_iter().filter(|op| ops.contains(*op)).collect();
    assert_eq!(chosen, [Op::Hypercall, Op::VmidFast]);
    assert!(Op::ALL.into_iter().all(|op| Ops::ALL.contains(op)));
    assert!(Load::parse("load=micro ops=").is_err());
    assert!(Load::parse("load=micro ops=hypercall,nothing").is_err());
}

#[test]
fn what_is_wrong_is_named_with_what_is_right() {
    let message = |text| Load::parse(text).unwrap_err().to_string();
    assert!(message("").contains("load=NAME"));
    assert!(message("load=nothing").contains("'nothing'") && message("load=nothing").contains("messaging"));
    assert!(message("load=idle quiet").contains("'quiet'"));
    assert!(message("load=idle n=5").contains("'n'") && message("load=idle n=5").contains("seconds"));
    assert!(message("load=idle load=spin").contains("twice"));
    assert!(message("load=messaging groups=0").contains("groups=0"));
    assert!(message("load=messaging groups=1000 fds=1000").contains("2 x groups x fds"));
    for bad in [
        "groups=-1",
        "fds=x",
        "loops=",
        "size=1048577",
        "mode=fork",
        "carrier=tcp",
        "buffer=1",
        "pause_us=10000001",
        "preempt_us=on",
    ] {
        let text = format!("load=messaging {bad}");
        assert!(matches!(Load::parse(&text), Err(ArgumentError::BadValue { .. })), "{bad}");
    }
    for bad in ["-1", "1.2345", ".5", "1.", "x", "99999999999999999999", "86400.001"] {
        let text = format!("load=idle seconds={bad}");
        assert!(matches!(Load::parse(&text), Err(ArgumentError::BadValue { .. })), "{bad}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_without_a_panic(text in "(load=(messaging|micro|idle|spin) )?[ -~]{0,60}") {
        if let Err(error) = Load::parse(&text) {
            assert!(!error.to_string().is_empty());
        }
    }
}
