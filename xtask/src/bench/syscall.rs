//! `cargo xtask bench syscall`: what a system call costs with the kernel in the program's map, without it, and with the switch put off
//! until a call needs it (E4).

use anyhow::Result;

use super::BenchArgs;
use super::harness::{About, cost};
use super::own_guest::{self, Load, deterministic};
use crate::results::{Published, Results, Variant};

/// Null calls where none are asked for. The published runs had 10,000,000.
const CALLS: u32 = 1_000_000;
/// There is one padded call for so many null ones, as it takes that much longer.
const PADDED_PART: u32 = 50;
/// How a program is kept apart from the kernel, in the order of the guest's records. Published: a null call, in µs, without and with.
const ARRANGEMENTS: [(&str, Option<f64>); 3] =
    [("off", Some(0.0792)), ("on", Some(0.2025)), ("deferred", None)];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let calls = args.calls.unwrap_or(CALLS);
    let loads = [load("null", calls), load("padded", (calls / PADDED_PART).max(1))];
    let about = About {
        bench: "syscall",
        question: "What does a system call cost when the kernel isn't in the program's map?",
        quantities: vec![cost(deterministic(args), "a call")],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            format!(
                "{calls} null calls, {} padded ones; a call's cost has the three instructions of the loop around it.",
                (calls / PADDED_PART).max(1)
            ),
            "Published: getppid on other hardware, where a switch of the table costs what an emulator doesn't show.".into(),
        ],
    };
    own_guest::run(args, about, &loads, deterministic(args), |record| {
        Ok(vec![("cost", own_guest::cost(record, "n")?)])
    })
}

/// One run: a kind of call in each arrangement.
fn load(call: &str, n: u32) -> Load {
    let row = |(isolation, published): (&str, Option<f64>)| Variant {
        name: format!("{call}, {isolation}"),
        group: format!("{call} call, isolation"),
        base: (isolation != "off").then(|| format!("{call}, off")),
        settings: [("call", call), ("isolation", isolation)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        published: published
            .filter(|_| call == "null")
            .map(|value| Published { label: "us a call".into(), value })
            .into_iter()
            .collect(),
    };
    Load {
        name: call.into(),
        bootargs: format!("load=syscall isolation=all call={call} n={n}"),
        cpu: None,
        selects: |record| record["kind"] == "syscall",
        rows: ARRANGEMENTS.map(row).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_compared_with_itself_without_isolation() {
        let loads = [load("null", 10), load("padded", 1)];
        for load in &loads {
            let bases: Vec<Option<String>> = load.rows.iter().map(|row| row.base.clone()).collect();
            assert_eq!(bases[0], None);
            assert!(bases[1..].iter().all(|base| *base == Some(load.rows[0].name.clone())));
        }
        assert_eq!(loads[0].rows[1].published[0].value, 0.2025);
        assert!(loads[1].rows.iter().all(|row| row.published.is_empty()), "null calls were published");
    }
}
