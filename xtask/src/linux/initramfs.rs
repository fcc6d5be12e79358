//! The initramfs of a Linux guest: busybox, hackbench with its libraries, and our `/init`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::libraries;

/// The first process.
const INIT: &str = include_str!("init.sh");
/// Commands of busybox that get a name of their own, for init and for a person at the shell.
const APPLETS: &[&str] = &[
    "[", "awk", "basename", "cat", "chmod", "clear", "cmp", "cp", "cttyhack", "cut", "date", "dd", "devmem",
    "df", "dmesg", "du", "echo", "env", "expr", "false", "find", "free", "grep", "head", "hexdump", "id",
    "insmod", "ip", "kill", "less", "ln", "ls", "md5sum", "mkdir", "more", "mount", "mv", "nc", "nproc",
    "ping", "poweroff", "ps", "reboot", "rm", "sed", "seq", "setsid", "sh", "sleep", "sort", "stty", "sync",
    "tail", "taskset", "tee", "test", "time", "timeout", "top", "tr", "true", "umount", "uname", "uptime",
    "usleep", "vi", "wc", "xargs", "yes",
];
/// Debian's drivers of virtio devices, in the order in which init loads them: each after those that it needs.
const MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_mmio",
    "virtio_console",
    "virtio_blk",
    "failover",
    "net_failover",
    "dimlib",
    "virtio_net",
];
/// Opened by name when a thread ends: without it glibc aborts in thread mode (`-T`).
const OPENED_LATER: &[&str] = &["libgcc_s.so.1"];

/// Builds the archive from packages unpacked in `root`, with the modules of the kernel unpacked in `kernel`, and perf if it is unpacked in
/// `perf`.
///
/// # Errors
/// A package lacks a file that is needed.
pub fn build(root: &Path, kernel: &Path, perf: Option<&Path>) -> Result<Vec<u8>> {
    let busybox = first(root, &["bin/busybox", "usr/bin/busybox"])?;
    let hackbench = first(root, &["usr/bin/hackbench"])?;
    let mut libraries = libraries::closure(&hackbench, OPENED_LATER, root)?;
    let perf =
        perf.map(|root| Ok::<_, anyhow::Error>((first(root, &["usr/bin/perf"])?, root))).transpose()?;
    if let Some((program, root)) = &perf {
        for (path, file) in libraries::closure(program, &[], root)? {
            libraries.entry(path).or_insert(file);
        }
    }

    let mut archive = Archive::default();
    let mut directories: BTreeSet<String> =
        ["bin", "dev", "etc", "lib", "lib/modules", "proc", "root", "sys", "tmp"].map(str::to_owned).into();
    for path in libraries.keys() {
        let mut parents = Path::new(path.trim_start_matches('/')).ancestors().skip(1);
        directories
            .extend(parents.by_ref().filter_map(|p| p.to_str()).filter(|p| !p.is_empty()).map(str::to_owned));
    }
    // In the order of names, a parent comes before what is in it.
    for directory in &directories {
        archive.directory(directory)?;
    }
    archive.character_device("dev/console", 0o600, (5, 1))?;
    archive.character_device("dev/null", 0o666, (1, 3))?;
    archive.file("init", 0o755, INIT.as_bytes())?;
    archive.file("bin/busybox", 0o755, &read(&busybox)?)?;
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox")?;
    }
    archive.file("bin/hackbench", 0o755, &read(&hackbench)?)?;
    if let Some((program, _)) = &perf {
        archive.file("bin/perf", 0o755, &read(program)?)?;
    }
    for (name, module) in modules(kernel)? {
        archive.file(&format!("lib/modules/{name}.ko"), 0o644, &module)?;
    }
    for (path, file) in &libraries {
        archive.file(path.trim_start_matches('/'), 0o755, &read(file)?)?;
    }
    archive.finish()
}

/// The modules of [`MODULES`] that are not built into the kernel.
fn modules(root: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let mut files = Vec::new();
    files_below(&root.join("lib/modules"), &mut files);
    files.sort();
    let mut found = Vec::new();
    for name in MODULES {
        let is = |file: &&PathBuf, end: &str| file.file_name().is_some_and(|n| *n == *format!("{name}{end}"));
        if let Some(file) = files.iter().find(|file| is(file, ".ko")) {
            found.push((*name, read(file)?));
        } else if let Some(file) = files.iter().find(|file| is(file, ".ko.xz")) {
            let mut module = Vec::new();
            lzma_rs::xz_decompress(&mut read(file)?.as_slice(), &mut module)
                .map_err(|error| anyhow::anyhow!("{error:?}"))
                .with_context(|| format!("cannot unpack {}", file.display()))?;
            found.push((*name, module));
        }
    }
    Ok(found)
}

/// One of [`MODULES`] of the kernel unpacked in `root`.
///
/// # Errors
/// The kernel doesn't have it as a module.
pub fn module(root: &Path, wanted: &str) -> Result<Vec<u8>> {
    let found = modules(root)?.into_iter().find(|(name, _)| *name == wanted);
    found.map(|(_, module)| module).with_context(|| format!("no module {wanted} in {}", root.display()))
}

/// All files below a directory; none if there is no such directory.
fn files_below(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), files),
            _ => files.push(entry.path()),
        }
    }
}

fn first(root: &Path, paths: &[&str]) -> Result<PathBuf> {
    let mut files = paths.iter().map(|path| root.join(path));
    files.find(|file| file.is_file()).with_context(|| format!("no package has {}", paths.join(" or ")))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let error = build(Path::new("/nonexistent"), Path::new("/nonexistent"), None).unwrap_err();
        assert!(error.to_string().contains("busybox"), "{error}");
    }

    #[test]
    fn init_uses_only_commands_that_are_there() {
        for command in [
            "mount", "mkdir", "cat", "sed", "cut", "uname", "nproc", "setsid", "cttyhack", "poweroff",
            "insmod", "ip", "grep", "tr", "dmesg", "stty",
        ] {
            assert!(APPLETS.contains(&command), "{command}");
        }
        assert!(INIT.starts_with("#!/bin/sh\n"));
        // Every module is loaded, those of a device in the order that they need.
        let at = |module: &&str| {
            INIT.split_whitespace().position(|word| word == *module).unwrap_or_else(|| panic!("{module}"))
        };
        for group in [&MODULES[..3], &MODULES[5..]] {
            assert!(group.iter().map(at).is_sorted(), "{group:?}");
        }
        assert!(MODULES.iter().all(|module| at(module) > 0));
    }
}
