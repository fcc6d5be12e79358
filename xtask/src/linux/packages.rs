//! Debian's arm64 packages for Linux guests, fetched and unpacked under `target/`.
//!
//! The release is fixed, so that everybody measures the same kernel series: Debian 12 with Linux 6.1.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::initramfs;
use crate::setup::{Apt, paths, unpack};

/// The Debian release that guests are made of.
const SUITE: &str = "bookworm";
/// The package that depends on the newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-arm64";
/// Programs and the libraries that they need.
const PROGRAMS: [&str; 5] = ["busybox-static", "rt-tests", "libc6", "libgcc-s1", "libnuma1"];
/// Raised when the way the initramfs is made from the packages changes.
const RECIPE: &str = include_str!("init.sh");

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
    let dir = paths::target().join("linux");
    let packages = Packages {
        kernel: dir.join("vmlinuz"),
        initrd: dir.join("initramfs.cpio"),
        description: std::fs::read_to_string(dir.join("packages.txt")).unwrap_or_default().trim().to_owned(),
    };
    let complete = !packages.description.is_empty() && packages.kernel.exists() && packages.initrd.exists();
    let recipe = dir.join("recipe.txt");
    if complete && std::fs::read_to_string(&recipe).is_ok_and(|text| text == RECIPE) {
        return Ok(packages);
    }
    let roots = if complete { unpacked(&dir)? } else { Vec::new() };
    let (roots, description) =
        if roots.is_empty() { fetch(&dir)? } else { (roots, packages.description.clone()) };
    let initrd = initramfs::build(&roots)?;
    replace(&packages.initrd, &initrd)?;
    let kernel =
        roots.iter().find_map(|root| kernel_in(root)).context("the kernel's package has no vmlinuz")?;
    replace(&packages.kernel, &std::fs::read(kernel)?)?;
    replace(&dir.join("packages.txt"), description.as_bytes())?;
    // Last, so that an interrupted run starts again.
    replace(&recipe, RECIPE.as_bytes())?;
    Ok(Packages { description, ..packages })
}

/// The directories of unpacked packages.
fn unpacked(dir: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(dir.join("root")) else { return Ok(Vec::new()) };
    let mut roots: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    roots.sort();
    Ok(roots)
}

fn fetch(dir: &Path) -> Result<(Vec<PathBuf>, String)> {
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
    let debs = dir.join("debs");
    // What an interrupted run left must not be mixed with what is fetched now.
    for old in [&debs, &dir.join("root")] {
        if old.exists() {
            std::fs::remove_dir_all(old)?;
        }
    }
    for (index, deb) in apt.download(&names, &debs)?.iter().enumerate() {
        unpack(deb, &dir.join("root").join(index.to_string()))?;
    }
    Ok((unpacked(dir)?, description.join(", ")))
}

fn kernel_in(root: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(root.join("boot")).ok()?.flatten().map(|entry| entry.path());
    files
        .into_iter()
        .find(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")))
}

/// Writes a file beside its place and moves it there, so that no half-written one is ever taken for a whole one.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, bytes).with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("cannot write {}", path.display()))
}
