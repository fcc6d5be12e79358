//! The plugin on the host: built, tried, and given to QEMU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSymbol};

use crate::image::Program;
use crate::setup::command;
use crate::{interrupt, paths};

/// The plugin's package.
const PACKAGE: &str = "auditor";
/// Where QEMU's `virt` puts an `Image` whose header asks for no distance from a 2 MiB boundary: RAM begins with QEMU's own few
/// instructions, and the next boundary is the image's.
const IMAGE_BASE: u64 = 0x4020_0000;
/// QEMU says so, if it doesn't take the plugin, or the plugin does, if it could be loaded; it ends at once in both cases.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// The plugin, and what it must know of the hypervisor's image.
#[derive(Debug)]
pub struct Plugin {
    library: PathBuf,
    image_bytes: u64,
    vectors: u64,
}

impl Plugin {
    /// Builds it, for an image; `traced`: which of its two tables of vectors is in use.
    ///
    /// # Errors
    /// It can't be built, or the image's ELF file doesn't say where the vectors are.
    pub fn build(image: &Program, traced: bool) -> Result<Self> {
        let elf = fs::read(&image.elf).with_context(|| format!("reading {}", image.elf.display()))?;
        let elf = object::File::parse(&*elf).with_context(|| format!("reading {}", image.elf.display()))?;
        let address = |name: &str| {
            let symbol = elf.symbol_by_name(name).map(|symbol| symbol.address());
            symbol.with_context(|| format!("{} has no symbol `{name}`", image.elf.display()))
        };
        let vectors = address(if traced { "vectors_traced" } else { "vectors" })? - address("__image_start")?;
        Ok(Self { library: compile()?, image_bytes: image.memory_bytes, vectors })
    }

    /// Whether a QEMU loads it.
    ///
    /// # Errors
    /// It doesn't; the message is its own.
    pub fn probe(&self, qemu: &Path) -> Result<()> {
        let mut command = Command::new(qemu);
        command.args(["-M", "none", "-display", "none", "-plugin"]);
        command.arg(format!("{},probe=on", self.path()));
        let said = command::capture(&mut command, PROBE_LIMIT)?.stderr;
        ensure!(
            said.contains("auditor: can be loaded"),
            "{} doesn't load the auditor, which needs a QEMU from 9.1 to 10.x that is built with plugins: {}",
            qemu.display(),
            command::tail(&said, 3)
        );
        Ok(())
    }

    /// QEMU's arguments for a run that is counted; the counts will be in `out`. `instructions`: those of each exit, too.
    pub fn arguments(&self, out: &Path, instructions: bool) -> [String; 2] {
        let counts = format!(
            "{},base={IMAGE_BASE:#x},size={:#x},vectors={:#x},instructions={},out={}",
            self.path(),
            self.image_bytes,
            self.vectors,
            if instructions { "on" } else { "off" },
            escaped(out)
        );
        ["-plugin".into(), counts]
    }

    fn path(&self) -> String {
        escaped(&self.library)
    }
}

/// A file's name in a list of QEMU's: a comma in it is written twice.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Compiles the plugin for the host; returns where the library is.
fn compile() -> Result<PathBuf> {
    let cargo = paths::cargo();
    let output = Command::new(&cargo)
        .current_dir(paths::workspace())
        .args(["build", "--quiet", "--package", PACKAGE, "--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", cargo.display()))?;
    if !output.status.success() {
        // A Ctrl-C on the terminal comes to cargo, too.
        interrupt::check()?;
        bail!("building the auditor failed (see above)");
    }
    library(&String::from_utf8_lossy(&output.stdout)).context("cargo built the auditor but named no library")
}

/// Finds the library in cargo's messages, one JSON object a line.
fn library(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == PACKAGE)
        .find_map(|message| Some(PathBuf::from(message["filenames"][0].as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"serde_json"},"filenames":["/t/s.rlib"]}
{"reason":"compiler-artifact","target":{"name":"auditor"},"filenames":["/t/debug/libauditor.so"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(library(messages), Some(PathBuf::from("/t/debug/libauditor.so")));
        assert_eq!(library("{}"), None);
    }

    #[test]
    fn qemu_takes_a_comma_in_a_name_for_the_next_argument() {
        let plugin = Plugin { library: "/a,b/p.so".into(), image_bytes: 0x6c000, vectors: 0x800 };
        assert_eq!(
            plugin.arguments(Path::new("/x,y.json"), false),
            [
                "-plugin",
                "/a,,b/p.so,base=0x40200000,size=0x6c000,vectors=0x800,instructions=off,out=/x,,y.json"
            ]
        );
    }
}
