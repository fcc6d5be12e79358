//! Debian's arm64 packages for Linux guests, fetched and unpacked under `target/`.
//!
//! The release is fixed, so that everybody measures the same kernel series: Debian 12 with Linux 6.1.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::initramfs;
use crate::paths;
use crate::setup::Apt;

/// The Debian release that guests are made of.
const SUITE: &str = "bookworm";
/// The package that depends on the newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-arm64";
/// Programs and the libraries that they need.
const PROGRAMS: [&str; 5] = ["busybox-static", "rt-tests", "libc6", "libgcc-s1", "libnuma1"];
/// A kernel and an initramfs made of Debian's packages.
#[derive(Debug, Clone)]
pub struct Packages {
    /// The kernel as Debian ships it.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// Packages with their versions.
    pub description: String,
}

/// Finds what was fetched before, or fetches it.
///
/// # Errors
/// No apt, no network, or a package lacks what is expected in it.
pub fn ensure() -> Result<Packages> {
    let dir = paths::kept("linux")?;
    // Written last, so that an interrupted fetch starts again.
    let list = dir.join("packages.txt");
    let root = dir.join("root");
    let description = match std::fs::read_to_string(&list) {
        Ok(text) if root.exists() => text.trim().to_owned(),
        _ => {
            let description = fetch(&dir)?;
            replace(&list, description.as_bytes())?;
            description
        }
    };
    let kernel = kernel_in(&root).context("the kernel's package has no vmlinuz")?;
    // A name that doesn't change with the version, for scenario files.
    let link = dir.join("vmlinuz");
    if std::fs::read_link(&link).ok().as_deref() != Some(&*kernel) {
        // Mostly there is none yet.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&kernel, &link).with_context(|| format!("making {}", link.display()))?;
    }
    // Made anew each time (it takes some milliseconds), so that a change of ours is never missed.
    let initrd = dir.join("initramfs.cpio");
    replace(&initrd, &initramfs::build(&root)?)?;
    Ok(Packages { kernel, initrd, description })
}

/// Fetches and unpacks; returns names and versions.
fn fetch(dir: &Path) -> Result<String> {
    eprintln!("setup: fetching Debian's arm64 kernel, busybox and rt-tests (about 25 MB, once)");
    let suites = [SUITE, "bookworm-updates", "bookworm-security"];
    let apt = Apt::for_architecture(&dir.join("apt"), &suites, "arm64")?;
    apt.update()?;
    // The package of that name is empty: it depends on the kernel's own, which has its version in its name.
    let kernel = apt.dependencies(KERNEL)?;
    let kernel = kernel.into_iter().find(|name| name.starts_with("linux-image-"));
    let mut names = vec![kernel.with_context(|| format!("{KERNEL} depends on no kernel"))?];
    names.extend(PROGRAMS.map(str::to_owned));
    let mut description = Vec::new();
    for name in &names {
        let version = apt
            .candidate(name)?
            .with_context(|| format!("the Debian mirror has no package {name} for arm64"))?;
        description.push(format!("{name} {version}"));
    }
    apt.unpack(&names, dir)?;
    Ok(description.join(", "))
}

fn kernel_in(root: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(root.join("boot")).ok()?.flatten().map(|entry| entry.path());
    files
        .into_iter()
        .find(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")))
}

/// Writes a file if it is not as it should be: beside its place, and then moves it there, so that another run never
/// sees half of it.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let fresh = path.with_extension(format!("new.{}", std::process::id()));
    std::fs::write(&fresh, bytes).with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("cannot write {}", path.display()))
}
