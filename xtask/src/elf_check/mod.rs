//! Checks of the hypervisor's ELF file: no FP/SIMD instruction outside the guest-state switch, nothing both writable and
//! executable, no relocation in code, and its size in memory.
//!
//! A stray SIMD instruction at EL2 (a `memcpy` that a compiler made of Q registers) would change a guest's registers
//! behind its back: the target is a soft-float one, and this check shows that it worked.

mod a64;
mod parking;
mod path;
mod tlb;
mod trace;

use std::ops::Range;

use anyhow::{Context, Result, bail};
use object::elf::{self, FileHeader64};
use object::endian::LittleEndian;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionFlags};

/// Symbols around the code that saves and restores a guest's FP/SIMD registers: the only code that may touch them.
const FP_SWITCH: [&str; 2] = ["__fp_switch_start", "__fp_switch_end"];
/// That code's largest size: 32 registers each way, by pairs, and the status registers.
const FP_SWITCH_LIMIT: u64 = 512;
/// The hypervisor's largest size in memory.
pub const MEMORY_LIMIT: u64 = 512 << 10;
/// How many findings of one kind are listed.
const SHOWN: usize = 10;

pub use parking::parking;
pub use tlb::invalidations;
pub use trace::tracing;

/// What the ELF file says about the image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Instructions looked at.
    pub instructions: usize,
    /// Of these, FP/SIMD ones in the place where they belong.
    pub allowed: usize,
    /// From the lowest to the highest loaded address, zeroed data included.
    pub memory_bytes: u64,
}

/// No FP/SIMD instruction but where a guest's registers are switched.
///
/// # Errors
/// It has one: the addresses and functions are named. Or the file is no arm64 ELF file.
pub fn no_fp(file: &[u8]) -> Result<Summary> {
    let elf = parse(file)?;
    let allowed = fp_switch(&elf)?;
    let mut summary = Summary::default();
    let mut found = Vec::new();
    for (address, word) in instructions(&elf)? {
        summary.instructions += 1;
        let Some(kind) = a64::vector(word) else { continue };
        if allowed.contains(&address) {
            summary.allowed += 1;
        } else {
            found.push(format!("{address:#x} {word:#010x} ({kind:?}) in {}", function(&elf, address)));
        }
    }
    if summary.instructions == 0 {
        bail!("the ELF file has no code");
    }
    refuse("FP/SIMD instructions outside the switch of guest registers", &found)?;
    Ok(summary)
}

/// No segment is writable and executable, the code is in a segment that is executable, and no relocation is in one.
///
/// # Errors
/// It is otherwise: the segments or relocations are named.
pub fn write_xor_execute(file: &[u8]) -> Result<()> {
    let elf = parse(file)?;
    let segments = segments(file)?;
    let mut found = Vec::new();
    let mut executable = Vec::new();
    for Segment { range, writable, executes } in segments {
        if writable && executes {
            found.push(format!("the segment at {:#x} is writable and executable", range.start));
        }
        if executes {
            executable.push(range);
        }
    }
    if executable.is_empty() {
        found.push("no segment is executable".into());
    }
    for (address, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        if executable.iter().any(|range| range.contains(&address)) {
            let target = match relocation.target() {
                RelocationTarget::Symbol(_) => "to a symbol",
                _ => "to an address",
            };
            found.push(format!("relocation {target} in code at {address:#x} ({})", function(&elf, address)));
        }
    }
    refuse("violations of W^X", &found)
}

/// The size in memory, zeroed data included, is at most `limit` bytes.
///
/// # Errors
/// It is larger.
pub fn size(file: &[u8], limit: u64) -> Result<u64> {
    let segments = segments(file)?;
    let start = segments.iter().map(|segment| segment.range.start).min().context("no loaded segment")?;
    let end = segments.iter().map(|segment| segment.range.end).max().unwrap_or(start);
    let bytes = end - start;
    if bytes > limit {
        bail!(
            "the image takes {} KiB in memory, at most {} KiB are allowed",
            bytes.div_ceil(1024),
            limit / 1024
        );
    }
    Ok(bytes)
}

/// The fast path of a function: see [`path`]. It takes at most `limit` instructions, one atomic operation, and no barrier.
///
/// # Errors
/// It takes more, or there is no such function, or no way through it without a call.
pub fn fast_path(file: &[u8], function: &str, limit: usize) -> Result<path::Path> {
    let found = path_through(&parse(file)?, function)?;
    let path::Path { instructions, atomics, barriers, .. } = found;
    if instructions > limit || atomics != 1 || barriers != 0 {
        bail!(
            "{function}: {instructions} instructions, {atomics} atomic operations, {barriers} barriers on the fast path; \
             at most {limit}, one and none are allowed"
        );
    }
    Ok(found)
}

/// Where a function is.
fn place(elf: &Elf<'_>, function: &str) -> Result<Range<u64>> {
    let named = |symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
        symbol.name().is_ok_and(|name| format!("{:#}", rustc_demangle::demangle(name)) == function)
    };
    let symbol =
        elf.symbols().find(named).with_context(|| format!("the image has no function {function}"))?;
    Ok(symbol.address()..symbol.address() + symbol.size())
}

/// The longest way through a function that makes no call.
fn path_through(elf: &Elf<'_>, function: &str) -> Result<path::Path> {
    let range = place(elf, function)?;
    let words: Vec<(u64, u32)> =
        instructions(elf)?.into_iter().filter(|(address, _)| range.contains(address)).collect();
    path::longest(&words).with_context(|| format!("{function} never returns without a call"))
}

type Elf<'a> = ElfFile64<'a, LittleEndian>;

fn parse(file: &[u8]) -> Result<Elf<'_>> {
    let elf = Elf::parse(file).context("not a 64-bit little-endian ELF file")?;
    if elf.architecture() != object::Architecture::Aarch64 {
        bail!("an ELF file for {:?}, not for arm64", elf.architecture());
    }
    Ok(elf)
}

/// A `PT_LOAD` program header.
struct Segment {
    range: Range<u64>,
    writable: bool,
    executes: bool,
}

fn segments(file: &[u8]) -> Result<Vec<Segment>> {
    let header = FileHeader64::<LittleEndian>::parse(file).context("not a 64-bit ELF file")?;
    let headers = header.program_headers(LittleEndian, file).context("ELF program headers")?;
    let loaded = headers.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD);
    loaded
        .filter(|segment| segment.p_memsz(LittleEndian) > 0)
        .map(|segment| {
            let start = segment.p_vaddr(LittleEndian);
            let end = start.checked_add(segment.p_memsz(LittleEndian)).context("a segment wraps around")?;
            let flags = segment.p_flags(LittleEndian);
            Ok(Segment {
                range: start..end,
                writable: flags.contains(elf::PF_W),
                executes: flags.contains(elf::PF_X),
            })
        })
        .collect()
}

/// The addresses between the two symbols; empty when they aren't there.
fn fp_switch(elf: &Elf<'_>) -> Result<Range<u64>> {
    let [start, end] =
        FP_SWITCH.map(|name| elf.symbols().find(|s| s.name() == Ok(name)).map(|s| s.address()));
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end - start <= FP_SWITCH_LIMIT => Ok(start..end),
        (Some(start), Some(end)) => {
            bail!(
                "{start:#x}..{end:#x} is no place for the switch of FP registers: at most {FP_SWITCH_LIMIT} bytes"
            )
        }
        _ => Ok(0..0),
    }
}

/// All instructions in executable sections, with their addresses. Data between them is left out: the ELF ABI for arm64
/// (AAELF64, "Mapping symbols") marks it by `$d` and code by `$x`.
fn instructions(elf: &Elf<'_>) -> Result<Vec<(u64, u32)>> {
    let mut marks: Vec<(u64, bool)> = elf
        .symbols()
        .filter_map(|symbol| {
            let kind = symbol.name().ok()?;
            let is = |mark: &str| {
                kind == mark || kind.strip_prefix(mark).is_some_and(|rest| rest.starts_with('.'))
            };
            (is("$x") || is("$d")).then(|| (symbol.address(), is("$x")))
        })
        .collect();
    marks.sort();
    let mut words = Vec::new();
    for section in elf.sections() {
        let SectionFlags::Elf { .. } = section.flags() else { continue };
        let flags = section.elf_section_header().sh_flags(LittleEndian);
        if !flags.contains(elf::SHF_EXECINSTR) {
            continue;
        }
        let data = section.data().with_context(|| format!("cannot read section {:?}", section.name()))?;
        let base = section.address();
        let mut next = marks.partition_point(|(address, _)| *address < base);
        let mut code = true;
        for (index, bytes) in data.chunks_exact(4).enumerate() {
            let address = base + 4 * index as u64;
            while let Some((_, is_code)) = marks.get(next).filter(|(at, _)| *at <= address) {
                code = *is_code;
                next += 1;
            }
            if code && let Ok(bytes) = bytes.try_into() {
                words.push((address, u32::from_le_bytes(bytes)));
            }
        }
    }
    Ok(words)
}

/// The name of the function that an address is in.
fn function(elf: &Elf<'_>, address: u64) -> String {
    let symbols =
        elf.symbols().filter(|s| s.address() <= address && s.name().is_ok_and(|n| !n.starts_with('$')));
    let name = symbols.max_by_key(|symbol| symbol.address()).and_then(|symbol| symbol.name().ok());
    name.map_or_else(|| "?".into(), |name| format!("{:#}", rustc_demangle::demangle(name)))
}

fn refuse(what: &str, found: &[String]) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    let shown = found.iter().take(SHOWN).map(|line| format!("\n  {line}")).collect::<String>();
    let more = found.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    bail!("{} {what}:{shown}{more}", found.len())
}

#[cfg(test)]
mod tests;
