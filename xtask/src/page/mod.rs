//! `cargo xtask report`: results of benches on one page of HTML, and what the console of a board says.
//!
//! | file | |
//! |---|---|
//! | `mod.rs` | the command |
//! | `html.rs` | the page |
//! | `bars.rs` | its plots |
//! | `style.css` | how it looks |
//! | `serial.rs` | reading a console's log |

mod bars;
mod html;
mod serial;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::paths;
use crate::results::Results;

/// What `cargo xtask report` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask report\n  cargo xtask report vmid.json syscall.json -o report.html\n  \
    cargo xtask report --from serial.log"
)]
pub struct ReportArgs {
    /// Results that benches wrote [default: the newest of each bench in odometer/results in cargo's target directory]
    #[arg(value_name = "RESULT.json", conflicts_with = "from")]
    pub results: Vec<PathBuf>,
    /// The page [default: odometer/report.html in cargo's target directory]
    #[arg(short, long, value_name = "FILE", conflicts_with = "from")]
    pub output: Option<PathBuf>,
    /// Read the log of a console, of a board's serial port for example, and print what it reports
    #[arg(long, value_name = "SERIAL.log")]
    pub from: Option<PathBuf>,
}

/// Does it.
///
/// # Errors
/// A file that can't be read, is no result or no such log; a page that can't be written.
pub fn run(args: &ReportArgs) -> Result<()> {
    if let Some(log) = &args.from {
        let bytes = fs::read(log).with_context(|| format!("--from: reading {}", log.display()))?;
        let text = serial::text(&String::from_utf8_lossy(&bytes))
            .with_context(|| format!("--from {}", log.display()))?;
        print!("{text}");
        return Ok(());
    }
    let results = if args.results.is_empty() {
        newest(&paths::kept("results")?)?
    } else {
        args.results.iter().map(|path| Results::read(path)).collect::<Result<_>>()?
    };
    let page = html::page(&results);
    let path = match &args.output {
        Some(path) => path.clone(),
        None => paths::target()?.join("odometer").join("report.html"),
    };
    paths::write_whole(&path, page.as_bytes())
        .with_context(|| format!("--output: writing {}", path.display()))?;
    println!("{}: {} results", path.display(), results.len());
    Ok(())
}

/// The newest whole results of each bench in a directory, or the newest at all where none is whole; says what it passes over.
///
/// # Errors
/// There are none.
fn newest(directory: &Path) -> Result<Vec<Results>> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut found: BTreeMap<String, Results> = BTreeMap::new();
    let mut passed_over = 0;
    for path in &files {
        let results = match Results::read(path) {
            Ok(results) => results,
            Err(error) => {
                eprintln!("passed over: {error:#}");
                continue;
            }
        };
        let rank = |results: &Results| (results.complete, results.started);
        match found.get(&results.bench) {
            Some(other) if rank(other) > rank(&results) => passed_over += 1,
            other => {
                passed_over += usize::from(other.is_some());
                found.insert(results.bench.clone(), results);
            }
        }
    }
    if passed_over > 0 {
        eprintln!("passed over: {passed_over} older results; name files to show these");
    }
    ensure!(
        !found.is_empty(),
        "there are no results in {}; run `cargo xtask bench` first, or name files that it wrote",
        directory.display()
    );
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn the_newest_whole_results_of_each_bench_are_shown() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bench: &str, started: u64, complete: bool| {
            let mut results = results(&[("off", &[1.0])]);
            (results.bench, results.started, results.complete) = (bench.into(), started, complete);
            results.write(&directory.path().join(name)).unwrap();
        };
        write("a.json", "one", 5, true);
        write("b.json", "one", 9, true);
        write("c.json", "one", 11, false);
        write("d.json", "two", 3, false);
        fs::write(directory.path().join("e.json"), "{}").unwrap();
        let found: Vec<(String, u64)> =
            newest(directory.path()).unwrap().into_iter().map(|found| (found.bench, found.started)).collect();
        assert_eq!(found, [("one".to_owned(), 9), ("two".to_owned(), 3)]);
        let empty = tempfile::tempdir().unwrap();
        assert!(newest(empty.path()).unwrap_err().to_string().contains("no results"));
    }
}
