use super::*;
use crate::carrier::Carrier;

/// Runs the whole load on the host, one step of each worker in turn, with the carriers of the real one.
fn run(m: &Messaging) -> (u64, bool) {
    let size = m.size as usize;
    let mut storage: Vec<Vec<u8>> = (0..m.carriers()).map(|_| vec![0; m.storage()]).collect();
    let mut carriers: Vec<Carrier> =
        storage.iter_mut().map(|bytes| Carrier::new(m.carrier, m.capacity(), bytes)).collect();
    struct Worker {
        role: Role,
        message: Vec<u8>,
        done: usize,
        count: u64,
        books: Books,
    }
    let mut workers: Vec<Worker> = (0..m.workers().unwrap())
        .map(|i| Worker {
            role: m.role(i),
            message: vec![0; size],
            done: 0,
            count: 0,
            books: Books::default(),
        })
        .collect();
    let each = m.received();
    loop {
        let mut progress = false;
        for (index, w) in workers.iter_mut().enumerate() {
            while w.count < each {
                let n = match w.role {
                    Role::Sender { first } => {
                        let number = (w.count / u64::from(m.fds)) as u32;
                        if m.labelled() {
                            w.message[..LABEL].copy_from_slice(&label(index as u32, number).to_le_bytes());
                        }
                        let to = first as usize + (w.count % u64::from(m.fds)) as usize;
                        carriers[to].write(&w.message[w.done..])
                    }
                    Role::Receiver { carrier } => carriers[carrier as usize].read(&mut w.message[w.done..]),
                };
                if n == 0 {
                    break;
                }
                progress = true;
                w.done += n;
                if w.done == size {
                    w.done = 0;
                    w.count += 1;
                    if matches!(w.role, Role::Receiver { .. }) {
                        w.books.enter(&w.message, m.labelled());
                    }
                }
            }
        }
        if !progress {
            break;
        }
    }
    let mut messages = 0;
    let mut ok = true;
    for w in &workers {
        ok &= w.count == each;
        if let Role::Receiver { carrier } = w.role {
            messages += w.books.messages;
            ok &= w.books == m.expected(carrier);
        }
    }
    (messages, ok && carriers.iter().all(|carrier| !carrier.is_readable()))
}

#[test]
fn all_messages_pass_and_the_books_agree() {
    for carrier in [Kind::Pipe, Kind::Socket] {
        for (groups, fds, loops, size) in [(1, 1, 1, 1), (2, 3, 5, 100), (3, 2, 300, 100), (1, 2, 3, 70_000)]
        {
            for buffer in [None, Some(4096), Some(5000)] {
                let m = Messaging { groups, fds, loops, size, carrier, buffer, ..Messaging::default() };
                let (messages, ok) = run(&m);
                assert_eq!(messages, m.messages(), "{m:?}");
                assert!(ok, "{m:?}");
            }
        }
    }
}

#[test]
fn a_lost_doubled_or_misdirected_message_shows_in_the_books() {
    let m = Messaging { groups: 2, fds: 2, loops: 3, ..Messaging::default() };
    let senders = [6u32, 7];
    let mut books = Books::default();
    let message = |sender, number| {
        let mut bytes = [0u8; 100];
        bytes[..LABEL].copy_from_slice(&label(sender, number).to_le_bytes());
        bytes
    };
    for sender in senders {
        for number in 0..3 {
            books.enter(&message(sender, number), true);
        }
    }
    assert_eq!(books, m.expected(2));
    assert_eq!(books, m.expected(3), "both receivers of a group get the same");
    assert_ne!(books, m.expected(0), "another group's messages");
    let mut lost = Books::default();
    lost.enter(&message(6, 0), true);
    assert_ne!(lost, m.expected(2));
}

#[test]
fn roles_follow_hackbenchs_order() {
    let m = Messaging { groups: 2, fds: 3, ..Messaging::default() };
    let roles: Vec<Role> = (0..12).map(|i| m.role(i)).collect();
    assert_eq!(roles[2], Role::Receiver { carrier: 2 });
    assert_eq!(roles[3], Role::Sender { first: 0 });
    assert_eq!(roles[6], Role::Receiver { carrier: 3 });
    assert_eq!(roles[11], Role::Sender { first: 3 });
}

#[test]
fn only_whole_messages_are_labelled() {
    let with = |carrier, size| Messaging { carrier, size, ..Messaging::default() }.labelled();
    assert!(!with(Kind::Pipe, 7));
    assert!(with(Kind::Pipe, 8) && with(Kind::Pipe, 4096));
    assert!(!with(Kind::Pipe, 4097));
    assert!(with(Kind::Socket, 32_768) && !with(Kind::Socket, 32_769));
}

#[test]
fn too_many_tasks_are_refused_without_overflow() {
    let m = Messaging { groups: u32::MAX, fds: u32::MAX, ..Messaging::default() };
    assert_eq!(m.workers(), None);
}
