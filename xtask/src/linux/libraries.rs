//! Which shared libraries an ELF program needs: its interpreter and its `DT_NEEDED` entries, with those of the
//! libraries themselves. (System V ABI, chapter 5, "Dynamic linking".)

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::elf::{self, FileHeader64};
use object::endian::LittleEndian;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// What one ELF file names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// The interpreter's path, such as `/lib/ld-linux-aarch64.so.1`.
    interpreter: Option<String>,
    /// Names of libraries, such as `libc.so.6`.
    libraries: Vec<String>,
}

/// Everything that `program` needs at run time, found below `root` (unpacked packages): from the path in the guest to
/// the file on the host. `extra` are libraries that it opens by name as it runs.
///
/// # Errors
/// A file is no ELF file, or no package has a library that is needed.
pub fn closure(program: &Path, extra: &[&str], root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let needs = needs_of(program)?;
    let mut wanted = needs.libraries;
    wanted.extend(extra.iter().map(|name| (*name).to_owned()));
    if let Some(interpreter) = needs.interpreter {
        let file = root.join(interpreter.trim_start_matches('/'));
        if !file.is_file() {
            bail!("no package has {interpreter}");
        }
        found.insert(interpreter, file);
    }
    while let Some(name) = wanted.pop() {
        let guest = format!("/lib/aarch64-linux-gnu/{name}");
        if found.contains_key(&guest) {
            continue;
        }
        let dirs = ["lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib", "usr/lib"];
        let file = dirs.iter().map(|dir| root.join(dir).join(&name)).find(|file| file.is_file());
        let Some(file) = file else { bail!("{}: no package has the library {name}", program.display()) };
        wanted.extend(needs_of(&file)?.libraries);
        found.insert(guest, file);
    }
    Ok(found)
}

fn needs_of(file: &Path) -> Result<Needs> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&bytes).with_context(|| format!("{} is no 64-bit little-endian ELF file", file.display()))
}

fn parse(bytes: &[u8]) -> Result<Needs> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let mut needs = Needs::default();
    for segment in header.program_headers(endian, bytes)? {
        if let Some(interpreter) = segment.interpreter(endian, bytes)? {
            needs.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
    }
    if let Some((entries, strings)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        for entry in entries {
            if entry.tag(endian) == elf::DT_NEEDED {
                let name = entry.string(endian, strings)?;
                needs.libraries.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needs_of_a_program_are_read() {
        // This test program itself is a dynamically linked ELF file on the hosts that we support.
        let own = std::env::current_exe().expect("has a path");
        let needs = needs_of(&own).expect("ELF");
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc.so")), "{needs:?}");
        assert!(needs.interpreter.is_some());
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(parse(b"#!/bin/sh\n").is_err());
        assert!(parse(&[]).is_err());
        let mut cut = vec![0_u8; 64];
        cut[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        cut[32] = 0xff; // program headers beyond the file's end
        cut[56] = 1;
        assert!(parse(&cut).is_err());
    }

    #[test]
    fn a_library_that_no_package_has_is_named() {
        let own = std::env::current_exe().expect("has a path");
        let error = closure(&own, &["libnothing.so.9"], Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("no package has"), "{error}");
    }
}
