use super::*;

fn links(n: usize) -> Vec<AtomicU16> {
    (0..n).map(|_| AtomicU16::new(NONE)).collect()
}

#[test]
fn a_queue_is_first_in_first_out() {
    let links = links(4);
    let mut queue = Queue::new();
    for id in [2, 0, 3] {
        queue.push(links.as_slice(), id);
    }
    assert_eq!(queue.pop(links.as_slice()), Some(2));
    queue.push(links.as_slice(), 1);
    assert_eq!(queue.pop(links.as_slice()), Some(0));
    assert_eq!(queue.pop(links.as_slice()), Some(3));
    assert_eq!(queue.pop(links.as_slice()), Some(1));
    assert_eq!(queue.pop(links.as_slice()), None);
    assert!(queue.is_empty());
}

#[test]
fn taking_from_the_middle_or_the_end_keeps_the_list_whole() {
    let links = links(4);
    let links = links.as_slice();
    let mut queue = Queue::new();
    for id in 0..4 {
        queue.push(links, id);
    }
    assert_eq!(queue.take(links, |id| id == 1), Some(1));
    assert_eq!(queue.take(links, |id| id == 3), Some(3));
    queue.push(links, 1);
    assert_eq!(queue.take(links, |id| id == 3), None);
    assert_eq!(queue.pop(links), Some(0));
    assert_eq!(queue.pop(links), Some(2));
    assert_eq!(queue.pop(links), Some(1));
    assert!(queue.is_empty());
}

proptest::proptest! {
    #[test]
    fn a_queue_behaves_like_a_deque(steps in proptest::collection::vec((0u8..4, 0u16..16), 0..200)) {
        let links = links(16);
        let links = links.as_slice();
        let mut queue = Queue::new();
        let mut model = std::collections::VecDeque::new();
        for (action, id) in steps {
            match action {
                0 if !model.contains(&id) => {
                    queue.push(links, id);
                    model.push_back(id);
                }
                3 if !model.contains(&id) => {
                    queue.push_front(links, id);
                    model.push_front(id);
                }
                1 => assert_eq!(queue.pop(links), model.pop_front()),
                2 => {
                    let expected = model.iter().position(|&x| x == id).and_then(|at| model.remove(at));
                    assert_eq!(queue.take(links, |x| x == id), expected);
                }
                _ => {}
            }
            assert_eq!(queue.is_empty(), model.is_empty());
        }
    }
}

#[test]
fn work_for_an_idle_cpu_kicks_it_once() {
    let links = links(4);
    let links = links.as_slice();
    let run = RunQueues::new(2);
    assert!(!run.enter_idle(1));
    assert_eq!(run.choose(0), 1);
    assert_eq!(run.push(links, 1, 0, Place::Last), Some(1));
    assert_eq!(run.push(links, 1, 1, Place::Last), None);
    assert_eq!(run.pop(links, 1), Some(0));
    assert_eq!(run.pop(links, 1), Some(1));
    assert_eq!(run.pop(links, 1), None);
}

#[test]
fn work_on_a_busy_cpu_kicks_an_idle_one_to_steal_it() {
    let links = links(4);
    let links = links.as_slice();
    let run = RunQueues::new(3);
    assert!(!run.enter_idle(2));
    assert_eq!(run.push(links, 0, 3, Place::Last), Some(2));
    assert_eq!(run.steal(links, 2, |_| false), None);
    assert_eq!(run.steal(links, 2, |_| true), Some(3));
    assert!(!run.waiting(0));
}

#[test]
fn a_task_that_preempts_is_the_next_one() {
    let links = links(3);
    let links = links.as_slice();
    let run = RunQueues::new(1);
    run.push(links, 0, 0, Place::Last);
    run.push(links, 0, 1, Place::Next);
    run.push(links, 0, 2, Place::Last);
    assert_eq!([1, 0, 2].map(Some), [0; 3].map(|cpu| run.pop(links, cpu)));
}

#[test]
fn a_cpu_that_goes_idle_sees_work_that_came_just_before() {
    let links = links(1);
    let links = links.as_slice();
    let run = RunQueues::new(2);
    assert_eq!(run.push(links, 0, 0, Place::Last), None);
    assert!(run.enter_idle(1), "work is queued: no sleep");
    assert_eq!(run.choose(0), 0, "the bit was cleared again");
}

#[test]
fn no_task_is_lost_or_doubled_between_threads() {
    use std::sync::atomic::AtomicUsize;
    const TASKS: usize = 64;
    const ROUNDS: usize = 20_000;
    let links = links(TASKS);
    let run = RunQueues::new(4);
    for id in 0..TASKS {
        run.push(links.as_slice(), id % 4, id as TaskId, Place::Last);
    }
    let running: Vec<AtomicUsize> = (0..TASKS).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for cpu in 0..4 {
            let (links, run, running) = (links.as_slice(), &run, &running);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let Some(id) = run.pop(links, cpu).or_else(|| run.steal(links, cpu, |_| true)) else {
                        continue;
                    };
                    assert_eq!(running[id as usize].fetch_add(1, Ordering::SeqCst), 0, "runs twice");
                    running[id as usize].fetch_sub(1, Ordering::SeqCst);
                    run.push(links, (cpu + round) % 4, id, Place::Last);
                }
            });
        }
    });
    let left = (0..4).map(|cpu| std::iter::from_fn(|| run.pop(links.as_slice(), cpu)).count()).sum::<usize>();
    assert_eq!(left, TASKS);
}
