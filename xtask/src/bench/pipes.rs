//! `cargo xtask bench pipes`: pipes opened and closed with each access checked by shadow memory or not, and the two causes of the published
//! regression (E3).

use anyhow::{Result, ensure};

use super::BenchArgs;
use super::harness::{About, cost, count};
use super::own_guest::{self, Load, deterministic, number};
use crate::results::{Published, Results, Variant};

/// Rounds where none are asked for, as in the published runs.
const CALLS: u32 = 10_000;
/// Pipes in a round where none are asked for, as in the published runs.
const PIPES: u32 = 10;
/// Pipes of all threads at most.
const MOST: u32 = 1000;
/// The rows: checking, poisoned, allocator, and what they are compared with.
const ROWS: [([&str; 3], Option<&str>); 6] = [
    (["off", "own", "unchecked"], None),
    (["full", "own", "unchecked"], Some("off")),
    (["page", "own", "unchecked"], Some("off")),
    (["page", "own", "checked"], Some("page")),
    (["page", "common", "unchecked"], Some("page")),
    (["page", "common", "checked"], Some("page")),
];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let n = args.calls.unwrap_or(CALLS);
    ensure!(n <= 100_000_000, "--calls {n}: `bench pipes` takes 1 to 100000000 rounds");
    let (pipes, threads) = (args.pipes.unwrap_or(PIPES), args.vcpus.unwrap_or(1));
    ensure!(
        pipes > 0 && pipes.checked_mul(threads).is_some_and(|all| all <= MOST),
        "--pipes {pipes}: `bench pipes` takes 1 to {} pipes for each of {threads} threads",
        MOST / threads.max(1)
    );
    let about = About {
        bench: "pipes",
        question: "What do checks by shadow memory cost an allocator, and why did the published ones cost so much?",
        quantities: vec![
            cost(deterministic(args), "a pipe"),
            count("shadow", "shadow, bytes"),
            count("opens", "pipes opened"),
        ],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            format!("Rounds of each thread: {n}, of {pipes} pipes; threads: {threads}."),
            "A pipe's cost is the time until all threads have ended over the number of all pipes.".into(),
            "Published, other hardware: 5.685 s with a full shadow, 8.383 s by page with both causes (+47.5 %).".into(),
        ],
    };
    let loads = ROWS.map(|([checking, poisoned, allocator], base)| Load {
        name: format!("pipes, {}", name([checking, poisoned, allocator])),
        bootargs: format!(
            "load=pipes pipes={pipes} n={n} threads={threads} checking={checking} poisoned={poisoned} allocator={allocator}"
        ),
        cpu: None,
        selects: |record| record["kind"] == "pipes",
        rows: vec![row([checking, poisoned, allocator], base)],
    });
    let opens = f64::from(pipes) * f64::from(n) * f64::from(threads);
    own_guest::run(args, about, &loads, deterministic(args), |record| {
        let counted = (number(record, "opens")?, number(record, "closes")?);
        ensure!(
            counted == (opens, 2.0 * opens),
            "{} pipes were opened and {} descriptors closed, not {opens} and {}",
            counted.0,
            counted.1,
            2.0 * opens
        );
        let shadow = number(record, "shadow_bytes")?;
        Ok(vec![("cost", own_guest::cost(record, "opens")?), ("shadow", shadow), ("opens", counted.0)])
    })
}

/// A row's name: how accesses are checked, and the causes that are switched on.
fn name([checking, poisoned, allocator]: [&str; 3]) -> String {
    let mut name = checking.to_owned();
    if poisoned == "common" {
        name += ", one page for all that is poisoned";
    }
    if allocator == "checked" {
        name += ", allocator checked";
    }
    name
}

fn row(settings: [&str; 3], base: Option<&str>) -> Variant {
    let published = match settings {
        ["full", ..] => Some(5.685),
        ["page", "common", "checked"] => Some(8.383),
        _ => None,
    };
    let keys = ["checking", "poisoned", "allocator"];
    Variant {
        name: name(settings),
        group: "checking".into(),
        base: base.map(Into::into),
        settings: keys
            .into_iter()
            .zip(settings)
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        published: published.map(|value| Published { label: "s".into(), value }).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::*;

    #[test]
    fn what_the_guest_would_refuse_is_refused_before_it_starts() {
        let error = |line: &str| run(&args(line)).unwrap_err().to_string();
        assert!(error("pipes --pipes 0").contains("--pipes 0"));
        assert!(error("pipes --pipes 300 --vcpus 4").contains("1 to 250 pipes for each of 4 threads"));
        assert!(error("pipes --calls 1000000000").contains("--calls 1000000000"));
    }

    #[test]
    fn each_row_has_a_name_and_a_base_of_its_own() {
        let rows = ROWS.map(|(settings, base)| row(settings, base));
        for (at, row) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(row.base.as_ref().is_none_or(|base| rows[..at].iter().any(|other| other.name == *base)));
        }
    }
}
