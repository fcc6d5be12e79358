//! `cargo xtask bench stacktrace`: what part of a load's time goes into stack traces, by frame pointers and by a shadow call stack (E2).

use anyhow::Result;

use super::BenchArgs;
use super::harness::{About, cost};
use super::own_guest::{self, Load, deterministic};
use crate::results::{Results, ShareOf, Variant};

/// Calls of each tree where none are asked for.
pub const CALLS: u32 = 10_000;
/// Depths of the trees.
const DEPTHS: [u32; 5] = [4, 8, 16, 32, 64];
/// What a tree does, in the order of the guest's records: floor, work, work with traces by frames, by shadow call stack.
const METHODS: [&str; 4] = ["floor", "none", "frames", "shadow"];
/// Published shares of a boot, in %: by frames, by shadow call stack.
const PUBLISHED: [f64; 2] = [9.03, 4.19];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let n = args.calls.unwrap_or(CALLS);
    let shares = DEPTHS.iter().flat_map(|depth| {
        METHODS[2..].iter().zip(PUBLISHED).map(move |(method, published)| ShareOf {
            label: format!("traces by {method}, depth {depth}"),
            floor: name("floor", *depth),
            with: name(method, *depth),
            without: name("none", *depth),
            published: Some(published),
        })
    });
    let about = About {
        bench: "stacktrace",
        question: "What part of a load's time goes into stack traces?",
        quantities: vec![cost(deterministic(args), "a call of the tree")],
        variants: Vec::new(),
        shares: if args.a.is_empty() && args.b.is_empty() { shares.collect() } else { Vec::new() },
        notes: vec![
            format!("{n} calls of each tree. floor: no work, no traces; none: work without traces."),
            "Published, other hardware, boot of a VM: with console output on, the shares were 1.64 % and 0.62 %.".into(),
        ],
    };
    let loads = DEPTHS.map(|depth| Load {
        name: format!("depth {depth}"),
        bootargs: format!("load=stacktrace n={n} depth={depth}"),
        cpu: None,
        selects: |record| record["kind"] == "stacktrace",
        rows: METHODS.map(|method| row(method, depth)).into(),
    });
    own_guest::run(args, about, &loads, deterministic(args), |record| {
        Ok(vec![("cost", own_guest::cost(record, "n")?)])
    })
}

/// A row's name.
fn name(method: &str, depth: u32) -> String {
    format!("{method}, depth {depth}")
}

fn row(method: &str, depth: u32) -> Variant {
    Variant {
        name: name(method, depth),
        group: format!("depth {depth}"),
        base: matches!(method, "frames" | "shadow").then(|| name("none", depth)),
        settings: [("method".to_owned(), method.to_owned()), ("depth".to_owned(), depth.to_string())].into(),
        published: Vec::new(),
    }
}
