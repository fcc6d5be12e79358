//! Threads of a load that are one on each of the first vCPUs, and run from a common start to their end.

use spin::Once;

use crate::arch::{cpu, mmu};
use crate::kernel::memory::Arena;
use crate::kernel::{cpus, error};
use crate::samples::nanoseconds;

/// What each thread does, by its number, and the address space that it does it in.
struct Work {
    each: &'static (dyn Fn(usize) + Sync),
    space: Option<u64>,
}

/// A boot runs one load, and a load does this once.
static WORK: Once<Work> = Once::new();

fn thread() {
    if let Some(work) = WORK.get() {
        if let Some(space) = work.space {
            mmu::switch_space(space);
        }
        (work.each)(cpu::index());
    }
}

/// Lets so many threads do `each`, in `space` if there is one. Returns the nanoseconds until all have ended; `None` if they can't be had,
/// which has been said.
pub fn run(
    arena: &mut Arena,
    threads: u32,
    space: Option<u64>,
    each: impl Fn(usize) + Sync + 'static,
) -> Option<u64> {
    let (threads, vcpus) = (threads as usize, cpus::number());
    if threads > vcpus {
        error(format_args!("threads={threads} needs as many vCPUs, this guest has {vcpus}"));
        return None;
    }
    if threads > 1 && !cpus::start_all() {
        return None;
    }
    let Some(each) = arena.keep(each) else {
        error(format_args!("too little memory for the threads"));
        return None;
    };
    WORK.call_once(|| Work { each, space });
    let start = cpu::counter();
    (1..threads).for_each(|index| cpus::run_on(index, thread));
    thread();
    while !(1..threads).all(cpus::is_done) {
        crate::sync::relax();
    }
    Some(nanoseconds(cpu::counter() - start, cpu::frequency()))
}
