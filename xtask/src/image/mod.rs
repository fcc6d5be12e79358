//! `cargo xtask build`: compiles the hypervisor and the guest and flattens them to images.

pub mod flatten;
pub mod header;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{interrupt, paths, setup};

/// What `cargo xtask build` is asked to do.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {
    /// Directory that gets copies of the images, `odometer.bin` and `guest.bin`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A bare-metal program: its ELF file (for symbols) and the `Image` made of it.
#[derive(Debug, Clone)]
pub struct Program {
    /// The ELF file that the linker wrote.
    pub elf: PathBuf,
    /// The flat image that QEMU, a boot loader or the bundle takes.
    pub image: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes in memory, with zeroed data, stacks and all.
    pub memory_bytes: u64,
}

/// Both programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The hypervisor.
    pub odometer: Program,
    /// The bare-metal guest.
    pub guest: Program,
}

/// Builds both programs (optimised: nothing else is worth measuring) and flattens them.
///
/// # Errors
/// A missing target, a compiler's error, or an ELF file that doesn't make a bootable image.
pub fn build() -> Result<Programs> {
    let toolchain = setup::toolchain()?;
    let odometer = compile(&toolchain, "odometer")?;
    let guest = compile(&toolchain, "guest")?;
    Ok(Programs { odometer: flat_program(odometer)?, guest: flat_program(guest)? })
}

/// Compiles the binary of one package; returns where its ELF file is.
fn compile(toolchain: &setup::Toolchain, package: &str) -> Result<PathBuf> {
    let output = Command::new(&toolchain.cargo)
        .current_dir(paths::workspace())
        .args(["build", "--release", "--quiet", "--message-format=json-render-diagnostics"])
        .args(["--package", package, "--bin", package])
        .args(&toolchain.args)
        .envs(toolchain.envs.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", toolchain.cargo.display()))?;
    if !output.status.success() {
        // A Ctrl-C on the terminal comes to cargo, too.
        interrupt::check()?;
        bail!("building `{package}` for {} failed (see above)", toolchain.target);
    }
    executable(&String::from_utf8_lossy(&output.stdout), package)
        .with_context(|| format!("cargo built `{package}` but named no executable"))
}

/// Finds the executable of a package in cargo's messages, one JSON object a line.
fn executable(messages: &str, package: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == package)
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
}

/// Writes the flat image beside the ELF file.
fn flat_program(elf: PathBuf) -> Result<Program> {
    let bytes = fs::read(&elf).with_context(|| format!("reading {}", elf.display()))?;
    let flat = flatten::flatten(&bytes).with_context(|| format!("flattening {}", elf.display()))?;
    header::check(&flat.bytes, flat.memory_bytes).with_context(|| format!("checking {}", elf.display()))?;
    ensure!(
        flat.entry == flat.load,
        "{}: the entry is at {:#x}, not at the start of the image, where a loader jumps ({:#x})",
        elf.display(),
        flat.entry,
        flat.load
    );
    let image = elf.with_extension("bin");
    write_if_changed(&image, &flat.bytes)?;
    Ok(Program { elf, image, file_bytes: flat.bytes.len() as u64, memory_bytes: flat.memory_bytes })
}

/// Leaves a file alone that has the right bytes already, so that a running QEMU never sees half of one.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let fresh = path.with_extension(format!("bin.{}", std::process::id()));
    fs::write(&fresh, bytes).with_context(|| format!("writing {}", fresh.display()))?;
    fs::rename(&fresh, path).with_context(|| format!("writing {}", path.display()))
}

/// Does `cargo xtask build`.
pub fn run(args: &BuildArgs) -> Result<()> {
    let programs = build()?;
    for (name, program) in [("odometer", &programs.odometer), ("guest", &programs.guest)] {
        println!(
            "{name:9} {:7.1} KiB in the file, {:7.1} KiB in memory  {}",
            program.file_bytes as f64 / 1024.0,
            program.memory_bytes as f64 / 1024.0,
            program.image.display()
        );
        if let Some(directory) = &args.out {
            fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
            let copy = directory.join(format!("{name}.bin"));
            fs::copy(&program.image, &copy).with_context(|| format!("writing {}", copy.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"spin"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"odometer"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"odometer"},"executable":"/t/release/odometer"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "odometer"), Some(PathBuf::from("/t/release/odometer")));
        assert_eq!(executable(messages, "guest"), None);
    }
}
