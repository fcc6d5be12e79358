//! Tests of the ELF checks, on files made here.

use object::write::{Object as Written, StandardSection, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};

use super::*;

const NOP: u32 = 0xd503_201f;
const STP_Q: u32 = 0xad00_0400;
const FMOV: u32 = 0x1e6e_1000;

/// An object file with these words as code and these symbols in it, each function as long as there is up to the next one.
pub(super) fn code(words: &[u32], symbols: &[(&str, u64)]) -> Vec<u8> {
    let mut file = Written::new(BinaryFormat::Elf, Architecture::Aarch64, Endianness::Little);
    let text = file.section_id(StandardSection::Text);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.append_section_data(text, &bytes, 4);
    for (name, value) in symbols {
        let others = symbols.iter().filter(|(other, at)| !other.starts_with('$') && at > value);
        let end = others.map(|(_, at)| *at).min().unwrap_or(4 * words.len() as u64);
        file.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: *value,
            size: if name.starts_with('$') { 0 } else { end - value },
            kind: SymbolKind::Text,
            scope: SymbolScope::Compilation,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }
    file.write().expect("an object file")
}

/// An executable with these segments: (address, bytes in memory, flags). No bytes of them are in the file.
fn segments_of(list: &[(u64, u64, u32)]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(3_u16.to_le_bytes());
    file.extend(183_u16.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, list.len() as u16, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for (address, memory, flags) in list {
        file.extend(1_u32.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [0, *address, *address, 0, *memory, 1] {
            file.extend(word.to_le_bytes());
        }
    }
    file
}

#[test]
fn a_stray_fp_instruction_is_named_with_its_function() {
    let file = code(&[NOP, NOP, STP_Q], &[("$x", 0), ("memcpy", 4)]);
    let error = no_fp(&file).unwrap_err().to_string();
    assert!(error.contains("0x8 0xad000400") && error.contains("memcpy"), "{error}");
}

#[test]
fn the_switch_of_guest_registers_may_touch_them_and_nothing_else() {
    let symbols = [("$x", 0), ("__fp_switch_start", 4), ("__fp_switch_end", 12)];
    let summary = no_fp(&code(&[NOP, STP_Q, FMOV, NOP], &symbols)).expect("allowed");
    assert_eq!((summary.instructions, summary.allowed), (4, 2));
    assert!(no_fp(&code(&[NOP, STP_Q, FMOV, FMOV], &symbols)).is_err());
}

#[test]
fn the_switch_cannot_be_stretched_over_the_whole_image() {
    let words = [NOP; 200];
    let error = no_fp(&code(&words, &[("__fp_switch_start", 0), ("__fp_switch_end", 800)])).unwrap_err();
    assert!(error.to_string().contains("at most 512 bytes"), "{error}");
}

#[test]
fn data_between_instructions_is_no_code() {
    let file = code(&[NOP, STP_Q, NOP], &[("$x", 0), ("$d.1", 4), ("$x.2", 8)]);
    assert_eq!(no_fp(&file).expect("only data").instructions, 2);
    // Without marks all of it is code.
    assert!(no_fp(&code(&[NOP, STP_Q, NOP], &[])).is_err());
}

#[test]
fn other_files_are_refused() {
    assert!(no_fp(b"").is_err());
    assert!(no_fp(b"\x7fELF nonsense").is_err());
    assert!(no_fp(&code(&[], &[])).unwrap_err().to_string().contains("no code"));
    let x86 =
        Written::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little).write().expect("written");
    assert!(no_fp(&x86).unwrap_err().to_string().contains("not for arm64"));
}

#[test]
fn a_segment_is_writable_or_executable_or_neither() {
    assert!(write_xor_execute(&segments_of(&[(0, 4096, 5), (4096, 4096, 4), (8192, 4096, 6)])).is_ok());
    let error = write_xor_execute(&segments_of(&[(0, 4096, 5), (0x1000, 4096, 7)])).unwrap_err();
    assert!(error.to_string().contains("0x1000 is writable and executable"), "{error}");
    let error = write_xor_execute(&segments_of(&[(0, 4096, 6)])).unwrap_err();
    assert!(error.to_string().contains("no segment is executable"), "{error}");
}

#[test]
fn the_size_counts_zeroed_data_and_gaps() {
    let file = segments_of(&[(0x1_0000, 0x1000, 5), (0x2_0000, 0x1_0000, 6)]);
    assert_eq!(size(&file, MEMORY_LIMIT).expect("small enough"), 0x2_0000);
    assert!(size(&file, 0x1_ffff).unwrap_err().to_string().contains("128 KiB in memory"));
    assert!(size(&segments_of(&[]), 1).is_err());
    assert!(size(&segments_of(&[(u64::MAX, 2, 5)]), 1).is_err());
}
