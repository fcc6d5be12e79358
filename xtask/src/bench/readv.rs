//! `cargo xtask bench readv`: vectored reads of single bytes with each access checked by shadow memory or not (E3).

use anyhow::Result;

use super::BenchArgs;
use super::harness::{About, cost, count};
use super::own_guest::{self, Load, deterministic, number};
use crate::results::{Published, Results, Variant};

/// Vectored reads where none are asked for. The published runs had 300,000.
const CALLS: u32 = 10_000;
/// How accesses are checked. Published, in seconds: before shadow was kept by page, and with it.
const CHECKING: [(&str, Option<f64>); 3] = [("off", None), ("full", Some(7.017)), ("page", Some(8.196))];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let n = args.calls.unwrap_or(CALLS);
    let about = About {
        bench: "readv",
        question: "What do checks of each access by shadow memory cost, in full and by page?",
        quantities: vec![cost(deterministic(args), "a read"), count("shadow", "shadow, bytes")],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            format!("{n} reads of 1,024 buffers of a byte."),
            "Published, other hardware, 300,000 reads: with a full shadow, and with one by page (+16.8 %)."
                .into(),
        ],
    };
    let loads = CHECKING.map(|(checking, published)| Load {
        name: format!("readv, {checking}"),
        bootargs: format!("load=readv n={n} checking={checking}"),
        cpu: None,
        selects: |record| record["kind"] == "readv",
        rows: vec![Variant {
            name: checking.into(),
            group: "checking".into(),
            base: (checking != "off").then(|| "off".into()),
            settings: [("checking".to_owned(), checking.to_owned())].into(),
            published: published.map(|value| Published { label: "s".into(), value }).into_iter().collect(),
        }],
    });
    own_guest::run(args, about, &loads, deterministic(args), |record| {
        Ok(vec![("cost", own_guest::cost(record, "n")?), ("shadow", number(record, "shadow_bytes")?)])
    })
}
