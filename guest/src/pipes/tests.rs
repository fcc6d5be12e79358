use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use crate::arguments::Load;

use super::*;

/// Remembers which words are forbidden.
#[derive(Clone, Default)]
struct Books {
    forbidden: Rc<RefCell<HashSet<usize>>>,
    accesses: u64,
    bad: u64,
}

fn addresses(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().map(|word| core::ptr::from_ref(word).addr())
}

impl Guard for Books {
    fn access(&mut self, word: &u64) {
        self.accesses += 1;
        self.bad += u64::from(self.forbidden.borrow().contains(&core::ptr::from_ref(word).addr()));
    }
    fn allow(&mut self, object: &[u64]) {
        addresses(object).for_each(|address| assert!(self.forbidden.borrow_mut().remove(&address)));
    }
    fn forbid(&mut self, object: &[u64]) {
        addresses(object).for_each(|address| assert!(self.forbidden.borrow_mut().insert(address)));
    }
    fn seal(&mut self, memory: &[u64]) {
        self.forbidden.borrow_mut().extend(addresses(memory));
    }
    fn reported(&self) -> u64 {
        self.bad
    }
}

/// Opens and closes the first pipes so many times.
fn rounds<A: Guard>(table: Table<'_, Books, A>, times: usize, pipes: usize) -> Lock<Table<'_, Books, A>> {
    let table = Lock::new(table);
    assert!((0..times).all(|_| round(&table, 0..pipes)));
    table
}

/// Runs `body` with a table of `pipes` pipes in memory that is full of rubbish, descriptors apart.
fn with<A: Guard>(pipes: usize, allocator: impl Fn(&Books) -> A, body: impl FnOnce(Table<Books, A>)) {
    let mut objects = vec![[!0; WORDS]; pipes];
    let (mut descriptors, mut own) = (vec![0; 2 * pipes], vec![!0; own_words(pipes)]);
    let memory = Memory { objects: &mut objects, descriptors: &mut descriptors, own: &mut own };
    let books = Books::default();
    let allocator = allocator(&books);
    body(Table::new(memory, books, allocator));
}

#[test]
fn objects_are_used_again_in_every_round_and_no_access_is_forbidden() {
    with(3, Books::clone, |table| {
        let table = rounds(table, 5, 3);
        let table = table.lock();
        assert_eq!((table.opens, table.closes, table.used(), table.reported()), (15, 30, 0, 0));
        // Clearing; two readers' and writers' counts, three accesses for each close; the descriptors.
        assert_eq!(table.guard.accesses, 15 * (WORDS as u64 + 2 + 6 + 8));
        assert_eq!(table.allocator.accesses, 15 * 10);
    });
}

#[test]
fn a_pipe_has_an_object_of_its_own_that_is_cleared() {
    with(2, Books::clone, |mut table| {
        assert!(table.open(0) && table.open(1));
        assert_eq!(table.used(), 2);
        for object in table.memory.objects.iter() {
            assert!(object[..2] == [1, 1] && object[2..].iter().all(|word| *word == 0));
        }
        assert!(table.close(1) && !table.close(1));
        assert_eq!(table.used(), 2);
        assert!(table.close(0));
        assert_eq!(table.used(), 1);
    });
}

#[test]
fn what_is_open_or_not_there_cannot_be_opened() {
    with(2, Books::clone, |mut table| {
        assert!(table.open(0) && !table.open(0));
        assert_eq!(table.allocate(), Some(1));
        assert!(!table.open(1));
        assert_eq!(table.opens, 1);
    });
}

#[test]
fn threads_have_their_pipes_from_one_allocator() {
    let (mut objects, mut descriptors, mut own) = ([[0; WORDS]; 4], [0; 8], [0; own_words(4)]);
    let memory = Memory { objects: &mut objects, descriptors: &mut descriptors, own: &mut own };
    let table = Lock::new(Table::new(memory, Unchecked, Unchecked));
    std::thread::scope(|scope| {
        for own in [0..2, 2..4] {
            let table = &table;
            scope.spawn(move || assert!((0..500).all(|_| round(table, own.clone()))));
        }
    });
    let table = table.lock();
    assert_eq!((table.opens, table.closes, table.used()), (2000, 4000, 0));
}

#[test]
fn trespassing_is_reported_where_it_is_checked() {
    let mut parameters = Pipes { checking: Checking::Page, allocator: true, ..Pipes::default() };
    with(4, Books::clone, |table| {
        assert_eq!(rounds(table, 1, 4).lock().trespass(), trespasses(&parameters));
    });
    parameters.allocator = false;
    with(
        4,
        |_| Unchecked,
        |table| {
            assert_eq!(rounds(table, 1, 4).lock().trespass(), trespasses(&parameters));
        },
    );
}

#[test]
fn parameters_are_read_and_wrong_ones_named() {
    assert_eq!(Load::parse("load=pipes"), Ok(Load::Pipes(Pipes::default())));
    let expected =
        Pipes { pipes: 3, n: 5, threads: 2, checking: Checking::Page, common: true, allocator: true };
    assert_eq!(expected.contradiction(), None);
    let words = "load=pipes pipes=3 n=5 threads=2 checking=page poisoned=common allocator=checked";
    assert_eq!(Load::parse(words), Ok(Load::Pipes(expected)));
    for (word, right) in [
        ("checking=on", "off, full or page"),
        ("poisoned=no", "own or common"),
        ("allocator=on", "checked or unchecked"),
        ("pipes=0", "1 to 1000"),
        ("threads=0", "1 to 8, as many as the guest has vCPUs"),
    ] {
        let words = format!("load=pipes {word}");
        let message = Load::parse(&words).unwrap_err().to_string();
        assert!(message.contains(right), "{message}");
    }
}

#[test]
fn what_cannot_be_together_is_named() {
    let full = Pipes { checking: Checking::Full, common: true, ..Pipes::default() };
    assert!(full.contradiction().is_some_and(|text| text.contains("checking=page")));
    let many = Pipes { pipes: 501, threads: 2, ..Pipes::default() };
    assert!(many.contradiction().is_some_and(|text| text.contains("pipes x threads")));
    let off = Pipes { allocator: true, ..Pipes::default() };
    assert!(off.contradiction().is_some_and(|text| text.contains("allocator=checked")));
}
