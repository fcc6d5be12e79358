//! What recording stack traces costs in a call tree, along frame pointers and from a shadow call stack (E2).

use crate::arch::cpu;
use crate::arch::tree::{self, Stacks, Tree};
use crate::json::Tenths;
use crate::kernel::console::report;
use crate::kernel::error;
use crate::samples::nanoseconds;
use crate::stacktrace::{Method, StackTrace};

fn measure(method: Method, load: &StackTrace, stacks: &mut Stacks) -> bool {
    let tree = Tree::new(method, load.signed);
    let turns = if method == Method::Floor { 0 } else { u64::from(load.work / 2) };
    let (ok, ticks) = tree::signing(load.signed, || {
        let ok = load.signed == tree::signs() && tree.is_right(load.depth, stacks);
        let start = cpu::counter();
        for _ in 0..load.n {
            tree.call(load.depth, turns, stacks);
        }
        (ok, cpu::counter() - start)
    });
    let time = nanoseconds(ticks, cpu::frequency());
    report!(
        "stacktrace",
        "\"method\":\"{}\",\"pauth\":{},\"depth\":{},\"work\":{},\"n\":{},\"time_ns\":{},\"call_ns\":{},\"ok\":{}",
        method.name(),
        load.signed,
        load.depth,
        load.work,
        load.n,
        time,
        Tenths(time * 10 / u64::from(load.n)),
        ok
    );
    ok
}

/// Runs the load.
pub fn run(load: &StackTrace) -> bool {
    if load.signed && !tree::can_sign() {
        error(format_args!("pauth=on: this CPU has no pointer authentication"));
        return false;
    }
    let mut stacks = Stacks::new();
    Method::ALL.into_iter().all(|method| measure(method, load, &mut stacks))
}
