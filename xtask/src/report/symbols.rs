//! Names for addresses: where in the hypervisor a fault was, from the `fault` record's load base and the ELF file.

use std::fmt::Write;
use std::path::Path;

use addr2line::Loader;
use serde_json::Value;

/// Where QEMU's `virt` puts an `Image` with a text offset of 0: assumed where a record names no base.
const USUAL_BASE: u64 = 0x4020_0000;

/// Whether a record says that the hypervisor itself faulted; of a guest that had to be stopped there are such records, too.
pub fn is_own_fault(record: &Value) -> bool {
    record["kind"] == "fault" && record["el"].as_u64().is_none_or(|level| level >= 2)
}

/// Describes a `fault` record for a person: each address with its function, file and line, as far as the ELF file
/// knows them.
pub fn describe_fault(fault: &Value, elf: &Path) -> String {
    let base = address(&fault["base"]).unwrap_or(USUAL_BASE);
    let symbols = Loader::new(elf).map_err(|error| format!("(no names: {}: {error})", elf.display()));
    let mut text = String::new();
    let mut line = |label: &str, value: u64| {
        let names = symbols.as_ref().map(|loader| names(loader, value.wrapping_sub(base)));
        let _ = write!(text, "    {label:<10} {value:#018x}");
        match names {
            Ok(names) if names.is_empty() => text.push_str("  ?\n"),
            Ok(names) => {
                let _ = writeln!(text, "  {}", names.join("\n                                  inlined in "));
            }
            Err(_) => text.push('\n'),
        }
    };
    if let Some(pc) = address(&fault["pc"]) {
        line("pc", pc);
    }
    for entry in fault["backtrace"].as_array().into_iter().flatten().filter_map(address) {
        line("called by", entry);
    }
    if let Err(error) = &symbols {
        let _ = writeln!(text, "    {error}");
    }
    let known = ["schema", "kind", "base", "pc", "backtrace"];
    for (key, value) in
        fault.as_object().into_iter().flatten().filter(|(key, _)| !known.contains(&key.as_str()))
    {
        let _ = writeln!(text, "    {key}: {value}");
    }
    text
}

/// The functions at an address of the ELF file, innermost first.
fn names(loader: &Loader, address: u64) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let name =
                frame.function.as_ref().and_then(|function| Some(function.demangle().ok()?.into_owned()));
            let place = frame.location.as_ref().map_or(String::new(), |location| {
                let file = location.file.unwrap_or("?");
                // Beside the function's name the last parts of the path are enough.
                let file = file.rsplit_once("src/").map_or(file, |(_, end)| end);
                format!(" at {file}:{}", location.line.unwrap_or(0))
            });
            names.extend(name.map(|name| name + &place));
        }
    }
    if names.is_empty()
        && let Some(symbol) = loader.find_symbol(address)
    {
        names.push(format!("{:#}", rustc_demangle::demangle(symbol)));
    }
    names
}

/// An address in a record: a number, or a string with hexadecimal digits (64-bit numbers don't fit every reader).
fn address(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).ok(),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_guest_is_not_the_hypervisors_fault() {
        assert!(is_own_fault(&serde_json::json!({"kind": "fault", "el": 2})));
        assert!(is_own_fault(&serde_json::json!({"kind": "fault"})));
        assert!(!is_own_fault(&serde_json::json!({"kind": "fault", "el": 1})));
        assert!(!is_own_fault(&serde_json::json!({"kind": "end"})));
    }

    #[test]
    fn addresses_are_numbers_or_hexadecimal_strings() {
        assert_eq!(address(&serde_json::json!("0xffff")), Some(0xffff));
        assert_eq!(address(&serde_json::json!(65535)), Some(0xffff));
        assert_eq!(address(&serde_json::json!(null)), None);
    }

    /// The test program itself stands for the hypervisor: its own functions have names.
    #[test]
    fn addresses_get_the_names_of_the_program_they_are_in() {
        let program = std::env::current_exe().unwrap();
        let loader = Loader::new(&program).unwrap();
        let function = address as fn(&Value) -> Option<u64>;
        // Where this position-independent program was loaded: the difference of one function's two addresses.
        let bytes = std::fs::read(&program).unwrap();
        let file = object::File::parse(&bytes[..]).unwrap();
        use object::{Object, ObjectSymbol};
        let symbol = file.symbols().find(|symbol| {
            symbol.name().is_ok_and(|name| name.contains("symbols") && name.contains("7address"))
        });
        let symbol = symbol.expect("the test program has symbols");
        assert!(names(&loader, symbol.address()).join(" ").contains("symbols::address"));
        let base = (function as usize as u64).wrapping_sub(symbol.address());
        let fault = serde_json::json!({"kind": "fault", "base": base, "pc": function as usize as u64, "esr": "0x96000045"});
        let text = describe_fault(&fault, &program);
        assert!(text.contains("symbols::address") && text.contains("esr: \"0x96000045\""), "{text}");
    }
}
