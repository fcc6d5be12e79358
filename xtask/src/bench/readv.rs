//! `cargo xtask bench readv`: vectored reads of single bytes with each access checked by shadow memory or not (E3).

use anyhow::{Result, ensure};

use super::BenchArgs;
use super::harness::{About, cost, count};
use super::own_guest::{self, Load, deterministic, number};
use crate::results::{Published, Results, Variant};

/// Vectored reads where none are asked for. The published runs had 300,000.
const CALLS: u32 = 10_000;
/// Bytes of the file where none are asked for.
const FILE_SIZE: u64 = 1024;
/// Bytes that the guest's file can have at most.
const MOST: u64 = 1 << 20;
/// How accesses are checked. Published, in seconds: before shadow was kept by page, and with it.
const CHECKING: [(&str, Option<f64>); 3] = [("off", None), ("full", Some(7.017)), ("page", Some(8.196))];

/// Measures.
///
/// # Errors
/// Anything that keeps the results from being complete.
pub fn run(args: &BenchArgs) -> Result<Results> {
    let n = args.calls.unwrap_or(CALLS);
    ensure!(n <= 100_000_000, "--calls {n}: `bench readv` takes 1 to 100000000 reads");
    let size = args.file_size.unwrap_or(FILE_SIZE);
    ensure!((1..=MOST).contains(&size), "--file-size {size}: `bench readv` takes files of 1 byte to 1M");
    let threads = args.vcpus.unwrap_or(1);
    let buffers = size.min(FILE_SIZE);
    let bytes = f64::from(n) * f64::from(threads) * buffers as f64;
    let about = About {
        bench: "readv",
        question: "What do checks of each access by shadow memory cost, in full and by page?",
        quantities: vec![cost(deterministic(args), "a read"), count("shadow", "shadow, bytes")],
        variants: Vec::new(),
        shares: Vec::new(),
        notes: vec![
            format!("A file of {size} bytes; reads of each thread: {n}, into {buffers} buffers of a byte; threads: {threads}."),
            "A read's cost is the time until all threads have ended over the number of all reads.".into(),
            "Published, other hardware, 300,000 reads of one thread: with a full shadow, and with one by page (+16.8 %).".into(),
        ],
    };
    let loads = CHECKING.map(|(checking, published)| Load {
        name: format!("readv, {checking}"),
        bootargs: format!("load=readv size={size} n={n} threads={threads} checking={checking}"),
        cpu: None,
        selects: |record| record["kind"] == "readv",
        rows: vec![Variant {
            name: checking.into(),
            group: "checking".into(),
            base: (checking != "off").then(|| "off".into()),
            settings: [
                ("checking", checking.to_owned()),
                ("size", size.to_string()),
                ("threads", threads.to_string()),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
            published: published.map(|value| Published { label: "s".into(), value }).into_iter().collect(),
        }],
    });
    own_guest::run(args, about, &loads, deterministic(args), |record| {
        let copied = number(record, "bytes")?;
        ensure!(copied == bytes, "{copied} bytes were copied, not {bytes}");
        let cost = own_guest::cost(record, "n")? / f64::from(threads);
        Ok(vec![("cost", cost), ("shadow", number(record, "shadow_bytes")?)])
    })
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::*;

    #[test]
    fn what_the_guest_would_refuse_is_refused_before_it_starts() {
        let error = |line: &str| run(&args(line)).unwrap_err().to_string();
        assert!(error("readv --file-size 2M").contains("--file-size 2097152"));
        assert!(error("readv --file-size 0").contains("1 byte to 1M"));
        assert!(error("readv --calls 1000000000").contains("--calls 1000000000"));
    }
}
