//! Debian's arm64 packages for Linux guests, fetched and unpacked under `target/`.
//!
//! The release is fixed, so that everybody measures the same kernel series: Debian 12, with Linux 6.1, and the later kernels
//! that its backports have ([`Release`]).

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};

use super::initramfs;
use super::release::Release;
use crate::paths;
use crate::setup::Apt;

/// Programs and the libraries that they need; they are fetched together with the default kernel.
const PROGRAMS: [&str; 5] = ["busybox-static", "rt-tests", "libc6", "libgcc-s1", "libnuma1"];

/// Debian's perf, for guests in which system calls are measured.
const PERF: &str = "linux-perf";

/// Two system tests may want the same at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A kernel and an initramfs made of Debian's packages.
#[derive(Debug, Clone)]
pub struct Packages {
    /// The kernel as Debian ships it.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// Packages with their versions.
    pub description: String,
    /// Where the kernel's package is unpacked.
    pub root: PathBuf,
}

/// Finds what was fetched before, or fetches it.
///
/// # Errors
/// No apt, no network, or a package lacks what is expected in it.
pub fn ensure(release: Release) -> Result<Packages> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|broken| broken.into_inner());
    let dir = paths::kept("linux")?;
    let programs = unpacked(&dir, &dir, Release::default(), &PROGRAMS)?;
    let own = if release == Release::default() { dir.clone() } else { dir.join(release.name()) };
    let mut description = programs.clone();
    if release != Release::default() {
        let kernel = unpacked(&dir, &own, release, &[])?;
        // The default kernel comes first in the list, and is not part of this guest.
        let rest = programs.split_once(", ").map_or("", |(_, rest)| rest);
        description = format!("{kernel}, {rest}");
    }
    let root = own.join("root");
    let kernel = kernel_in(&root).context("the kernel's package has no vmlinuz")?;
    // A name that doesn't change with the version, for scenario files.
    let link = own.join("vmlinuz");
    if std::fs::read_link(&link).ok().as_deref() != Some(&*kernel) {
        // Mostly there is none yet.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&kernel, &link).with_context(|| format!("making {}", link.display()))?;
    }
    // Made anew each time (it takes some milliseconds), so that a change of ours is never missed.
    let initrd = own.join("initramfs.cpio");
    replace(&initrd, &initramfs::build(&dir.join("root"), &root, None)?)?;
    Ok(Packages { kernel, initrd, description, root })
}

/// The same with Debian's perf in the initramfs, which is several times as large.
///
/// # Errors
/// As [`ensure`].
pub fn with_perf(release: Release) -> Result<Packages> {
    let plain = ensure(release)?;
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|broken| broken.into_inner());
    let dir = paths::kept("linux")?;
    let own = dir.join("perf");
    let list = own.join("packages.txt");
    if !list.exists() || !own.join("root").exists() {
        eprintln!("setup: fetching Debian's arm64 package {PERF} and what it needs (once)");
        std::fs::create_dir_all(&own).with_context(|| format!("cannot create {}", own.display()))?;
        let apt = Apt::for_architecture(&dir.join("apt"), Release::default().suites(), "arm64")?;
        apt.update()?;
        let names = apt.would_install(&[PERF])?;
        let version = apt.candidate(PERF)?.with_context(|| format!("the Debian mirror has no {PERF}"))?;
        apt.unpack(&names, &own)?;
        replace(&list, format!("{PERF} {version}").as_bytes())?;
    }
    let perf = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let initrd = own.join(format!("initramfs-{}.cpio", release.name()));
    replace(&initrd, &initramfs::build(&dir.join("root"), &plain.root, Some(&own.join("root")))?)?;
    Ok(Packages { initrd, description: format!("{}, {perf}", plain.description), ..plain })
}

/// Sees to it that a kernel's package, and `more`, are unpacked in `own`/root; returns names and versions. Package lists
/// are kept in `dir`, for each archive once.
fn unpacked(dir: &Path, own: &Path, release: Release, more: &[&str]) -> Result<String> {
    // Written last, so that an interrupted fetch starts again.
    let list = own.join("packages.txt");
    match std::fs::read_to_string(&list) {
        Ok(text) if own.join("root").exists() => Ok(text.trim().to_owned()),
        _ => {
            std::fs::create_dir_all(own).with_context(|| format!("cannot create {}", own.display()))?;
            let description = fetch(dir, own, release, more)?;
            replace(&list, description.as_bytes())?;
            Ok(description)
        }
    }
}

/// Fetches and unpacks; returns names and versions.
fn fetch(dir: &Path, own: &Path, release: Release, more: &[&str]) -> Result<String> {
    eprintln!(
        "setup: fetching Debian's arm64 packages {} (once)",
        [&[release.package()], more].concat().join(", ")
    );
    let suites = release.suites();
    // The main archive's lists have always been in `apt`.
    let lists = if suites.len() == 1 { format!("apt-{}", suites[0]) } else { "apt".to_owned() };
    let apt = Apt::for_architecture(&dir.join(lists), suites, "arm64")?;
    apt.update()?;
    // The package of that name is empty: it depends on the kernel's own, which has its version in its name.
    let kernel = apt.dependencies(release.package())?;
    let kernel = kernel.into_iter().find(|name| name.starts_with("linux-image-"));
    let mut names = vec![kernel.with_context(|| format!("{} depends on no kernel", release.package()))?];
    names.extend(more.iter().map(|name| (*name).to_owned()));
    let mut description = Vec::new();
    for name in &names {
        let version = apt
            .candidate(name)?
            .with_context(|| format!("the Debian mirror has no package {name} for arm64"))?;
        description.push(format!("{name} {version}"));
    }
    apt.unpack(&names, own)?;
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
