//! `cargo xtask bench pauth`: what signing each return address costs in the emulator, under both of its algorithms (E2).

use anyhow::{Result, ensure};

use super::BenchArgs;
use super::harness::{About, cost};
use super::own_guest::{self, Load};
use super::stacktrace::CALLS;
use crate::results::{Results, Variant};
use crate::setup;

/// The depth of the tree.
const DEPTH: u32 = 64;
/// The tree without work and traces: the tree alone.
const METHOD: &str = "none";

/// Properties of `-cpu max` for QEMU's own algorithm and for the architecture's. Since QEMU 10.0 `pauth-impdef=off` leaves the
/// default, which is QEMU's own by then.
fn algorithms(version: (u32, u32, u32)) -> [&'static str; 2] {
    ["pauth-impdef=on", if version >= (10, 0, 0) { "pauth-qarma5=on" } else { "pauth-impdef=off" }]
}

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    ensure!(
        args.cpu.is_none() && !args.deterministic,
        "--cpu and --deterministic are not for `bench pauth`: it sets the algorithm of `-cpu max`, and it shows in the emulator's time alone"
    );
    let n = args.calls.unwrap_or(CALLS);
    let about = About {
        bench: "pauth",
        question: "How far does emulation skew pointer authentication?",
        quantities: vec![cost(false, "a call of the tree")],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![format!("{n} calls of a tree of depth {DEPTH}, no other work, no traces.")],
    };
    let mut loads = Vec::new();
    for property in algorithms(setup::qemu()?.version) {
        for signed in ["off", "on"] {
            loads.push(Load {
                name: format!("{property}, signed {signed}"),
                bootargs: format!("load=stacktrace n={n} depth={DEPTH} work=0 pauth={signed}"),
                cpu: Some(format!("max,{property}")),
                selects: |record| record["kind"] == "stacktrace" && record["method"] == METHOD,
                rows: vec![row(signed, property)],
            });
        }
    }
    own_guest::run(args, about, &loads, false, |record| Ok(vec![("cost", own_guest::cost(record, "n")?)]))
}

fn row(signed: &str, property: &str) -> Variant {
    let name = |signed: &str| format!("{property}, signed {signed}");
    Variant {
        name: name(signed),
        group: "-cpu max,".into(),
        base: (signed == "on").then(|| name("off")),
        settings: [("cpu", property), ("signed", signed)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        published: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_rows_are_against_the_unsigned_of_the_same_algorithm() {
        let [quick, architected] = algorithms((10, 0, 2));
        assert_ne!(algorithms((9, 2, 0))[1], architected);
        assert_eq!(row("on", quick).base, Some(row("off", quick).name));
        assert_eq!(row("off", quick).base, None);
        assert_ne!(row("on", quick).name, row("on", architected).name);
    }
}
