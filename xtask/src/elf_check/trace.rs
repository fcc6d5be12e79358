//! What a trace costs: few instructions for an event, and none on an exit's way where there is no trace.
//!
//! The code on that way is compiled twice. Here it is looked at who can come to the function that writes an event: along branches and
//! calls, backwards. A call through a table isn't seen; so handlers, which are called through one, count as part of the way.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use object::{Object, ObjectSymbol, SymbolKind};

use super::{instructions, parse, path, path_through, refuse};

/// The function that writes an event.
const RECORD: &str = "odometer::trace::tracer::record";
/// The most instructions for that.
const MOST: usize = 40;
/// What asks for a trace when it comes to it, off the way that is compiled twice: a kick, and a VM's end.
const ASK: [&str; 2] = ["odometer::trace::tracer::note_kick", "odometer::vm::life::release_traced"];
/// What an exit is handled by, without a trace and with one.
const ENTRIES: [&str; 4] = ["exit_sync", "exit_irq", "exit_fiq", "exit_serror"];
/// Where the handlers are that the table of exception classes names.
const HANDLERS: [&str; 4] = [
    "odometer::exit::dispatch::",
    "odometer::exit::abort::",
    "odometer::exit::call::",
    "odometer::exit::sysreg::",
];

/// Writing an event takes at most 40 instructions, and no exit without a trace comes to it.
///
/// # Errors
/// It is otherwise, or the image has no trace.
pub fn tracing(file: &[u8]) -> Result<path::Path> {
    let elf = parse(file)?;
    let found = path_through(&elf, RECORD)?;
    let all = found.instructions + found.frame;
    ensure!(all <= MOST, "{RECORD}: {all} instructions for an event; at most {MOST} are allowed");

    let mut functions: Vec<Function> = elf
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
            Some(Function { start: symbol.address(), end: symbol.address() + symbol.size(), name })
        })
        .collect();
    functions.sort_by_key(|function| function.start);
    let at = |address: u64| {
        let index = functions.partition_point(|function| function.start <= address).checked_sub(1)?;
        (address < functions[index].end).then_some(index)
    };
    let calls: Vec<(usize, usize)> = instructions(&elf)?
        .into_iter()
        .filter_map(|(address, word)| at(address).zip(at(path::target(address, word)?)))
        .filter(|(from, to)| from != to)
        .collect();
    let comes_there = before(
        &calls,
        |index| functions[index].name == RECORD,
        |index| ASK.contains(&functions[index].name.as_str()),
    );
    let names: BTreeSet<&str> = comes_there.iter().map(|&index| functions[index].name.as_str()).collect();
    for entry in ENTRIES {
        let traced = format!("{entry}_traced");
        ensure!(names.contains(traced.as_str()), "{traced} never records anything");
    }
    let on_the_way =
        |name: &&&str| ENTRIES.contains(*name) || HANDLERS.iter().any(|room| name.starts_with(room));
    let wrong: Vec<String> = names.iter().filter(on_the_way).map(|name| (*name).to_owned()).collect();
    refuse("functions on an exit's way without a trace that record events", &wrong)?;
    Ok(found)
}

struct Function {
    start: u64,
    end: u64,
    name: String,
}

/// All functions from which calls lead to a `goal`, but not by way of one that is a `bar`.
fn before(
    calls: &[(usize, usize)],
    goal: impl Fn(usize) -> bool,
    bar: impl Fn(usize) -> bool,
) -> BTreeSet<usize> {
    let mut found: BTreeSet<usize> = calls.iter().map(|(_, to)| *to).filter(|to| goal(*to)).collect();
    loop {
        let known = found.len();
        for (from, to) in calls {
            if found.contains(to) && !bar(*from) {
                found.insert(*from);
            }
        }
        if found.len() == known {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::code;
    use super::*;

    const RET: u32 = 0xd65f_03c0;
    const NOP: u32 = 0xd503_201f;

    /// `bl` or `b` from one word to another.
    fn to(link: bool, from: u32, to: u32) -> u32 {
        0x1400_0000 | u32::from(link) << 31 | (to.wrapping_sub(from) & 0x3ff_ffff)
    }

    /// The four entries with a trace call a function that calls `record`; the others call nothing but what `quiet` is, if anything.
    fn image(quiet: Option<&str>, length: u32) -> Vec<u8> {
        let mut words = Vec::new();
        let mut symbols: Vec<(String, u64)> = vec![("$x".into(), 0)];
        let begin = |words: &[u32], symbols: &mut Vec<(String, u64)>, name: &str| {
            symbols.push((name.into(), words.len() as u64 * 4));
            words.len() as u32
        };
        let record = begin(&words, &mut symbols, "odometer::trace::tracer::record");
        words.extend(std::iter::repeat_n(NOP, length as usize - 1));
        words.push(RET);
        let mut middle = |words: &mut Vec<u32>, name: &str| {
            let start = begin(words, &mut symbols, name);
            words.extend([to(true, start, record), RET]);
            start
        };
        let attend = middle(&mut words, "attend");
        let quiet = quiet.map(|name| middle(&mut words, name));
        for (name, callee) in ENTRIES
            .map(|name| (format!("{name}_traced"), Some(attend)))
            .into_iter()
            .chain(ENTRIES.map(|name| (name.into(), quiet)))
        {
            let start = begin(&words, &mut symbols, &name);
            words.push(callee.map_or(NOP, |callee| to(false, start, callee)));
        }
        let symbols: Vec<(&str, u64)> = symbols.iter().map(|(name, at)| (name.as_str(), *at)).collect();
        code(&words, &symbols)
    }

    #[test]
    fn an_event_on_an_ordinary_exits_way_is_found() {
        tracing(&image(None, 40)).unwrap();
        tracing(&image(Some(ASK[0]), 40)).unwrap();
        let error = tracing(&image(Some("odometer::scheduler::wake::notify"), 40)).unwrap_err().to_string();
        assert!(error.contains("exit_irq") && !error.contains("traced"), "{error}");
        let handler = tracing(&image(Some("odometer::exit::call::hvc"), 40)).unwrap_err().to_string();
        assert!(handler.contains("odometer::exit::call::hvc"), "{handler}");
    }

    #[test]
    fn a_long_event_is_refused() {
        let error = tracing(&image(None, 41)).unwrap_err().to_string();
        assert!(error.contains("41 instructions"), "{error}");
    }
}
