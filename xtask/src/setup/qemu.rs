//! QEMU's `qemu-system-aarch64`: found on the path, or installed from Debian's packages.
//!
//! 7.2 and later are accepted. Debian 12 has 7.2 itself and 10 in its backports: what is missing is installed from
//! there, because the counter ticks at 1 GHz only on machines `virt-9.1` and later, and so a counter difference is a
//! number of instructions under `-icount`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use super::os::Os;
use super::{Qemu, command, privilege};
use crate::paths;

/// The emulator's name.
const PROGRAM: &str = "qemu-system-aarch64";
/// Debian's package that has it.
const PACKAGE: &str = "qemu-system-arm";
/// The oldest version that will do.
const OLDEST: (u32, u32, u32) = (7, 2, 0);

/// Finds QEMU; installs it where it is missing or too old.
///
/// # Errors
/// It is missing and can't be installed: the message says what to do.
pub fn ensure() -> Result<Qemu> {
    if let Some(qemu) = find()? {
        return Ok(qemu);
    }
    install()?;
    find()?.with_context(|| format!("{PACKAGE} was installed, yet there is no {PROGRAM} on the path"))
}

/// QEMU as `ODOMETER_QEMU` names it, or from the path, if it is new enough.
///
/// # Errors
/// `ODOMETER_QEMU` names something that is no QEMU, or one that is too old.
pub fn find() -> Result<Option<Qemu>> {
    if let Some(path) = std::env::var_os("ODOMETER_QEMU").map(PathBuf::from) {
        let version = version_of(&path).with_context(|| format!("ODOMETER_QEMU={}", path.display()))?;
        if version < OLDEST {
            bail!("ODOMETER_QEMU={} is version {}, needed is 7.2 or later", path.display(), dotted(version));
        }
        return Ok(Some(Qemu { path, version }));
    }
    let Some(path) = on_path(PROGRAM) else { return Ok(None) };
    let version = version_of(&path)?;
    if version < OLDEST {
        eprintln!("setup: {} is QEMU {}: too old, 7.2 or later is needed", path.display(), dotted(version));
        return Ok(None);
    }
    Ok(Some(Qemu { path, version }))
}

/// A version as people write it.
pub fn dotted((major, minor, patch): (u32, u32, u32)) -> String {
    format!("{major}.{minor}.{patch}")
}

/// Looks a program up on `PATH`.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Asks a QEMU for its version.
fn version_of(path: &Path) -> Result<(u32, u32, u32)> {
    let output = command::checked(Command::new(path).arg("--version"), Duration::from_secs(20))?;
    parse_version(&output.stdout)
        .with_context(|| format!("{} doesn't say its version: {:?}", path.display(), output.stdout))
}

/// Reads `QEMU emulator version 10.0.2 (Debian ...)`.
fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let word = text.split_once("version ")?.1.split_whitespace().next()?;
    let mut parts = word.split(['.', '-', '+', '~']).map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?, parts.next().unwrap_or(0)))
}

/// Installs QEMU: from backports on Debian 12, from the distribution on other Debians and Ubuntus.
fn install() -> Result<()> {
    let os = Os::here();
    let why = "installing QEMU for arm64";
    if !os.is_like("debian") || on_path("apt-get").is_none() {
        bail!("QEMU 7.2 or later ({PROGRAM}) is missing. To get it: {}", os.qemu_install_hint());
    }
    if os.id == "debian" && os.codename == "bookworm" {
        eprintln!("setup: fetching package lists for QEMU");
        let suites = ["bookworm", "bookworm-updates", "bookworm-security", "bookworm-backports"];
        let apt = Apt::for_host(&paths::kept("setup/apt-host")?, &suites)?;
        apt.update()?;
        return privilege::run_as_root(why, &apt.install(Some("bookworm-backports"), &[PACKAGE]));
    }
    // A fresh container has no package lists at all, so they are fetched by the same command.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("apt-get update && apt-get install -y --no-install-recommends {PACKAGE}")]);
    privilege::run_as_root(why, &command)
}

/// QEMU 7.2 beside a newer one, unpacked under `target/` from Debian 12's package, for tests on the oldest version
/// that is accepted. Nothing is installed: a script beside it sets what it needs to run from there.
///
/// # Errors
/// This is no Debian 12, the package can't be fetched, or it doesn't run on this machine's libraries.
pub fn oldest_beside() -> Result<Qemu> {
    let os = Os::here();
    if os.id != "debian" || os.codename != "bookworm" {
        bail!("QEMU 7.2 is fetched on Debian 12 only (this is {} {})", os.id, os.version);
    }
    let dir = paths::kept("setup/qemu-7.2")?;
    let usr = dir.join("root/usr");
    if !usr.join("bin").join(PROGRAM).exists() {
        eprintln!("setup: fetching QEMU 7.2 for the tests (about 40 MB, once)");
        fetch_oldest(&dir)?;
    }
    let script = dir.join(PROGRAM);
    let text = format!(
        "#!/bin/sh\nexport LD_LIBRARY_PATH={}\nexec {} -L {} \"$@\"\n",
        quoted(&usr.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))),
        quoted(&usr.join("bin").join(PROGRAM)),
        quoted(&usr.join("share/qemu")),
    );
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let version = version_of(&script)?;
    Ok(Qemu { path: script, version })
}

fn quoted(path: &Path) -> String {
    command::quoted(&path.to_string_lossy())
}

fn fetch_oldest(dir: &Path) -> Result<()> {
    let architecture =
        command::checked(Command::new("dpkg").arg("--print-architecture"), Duration::from_secs(20))?;
    // As if nothing were installed: libraries of the machine may come from backports, where 7.2 can't be had with them.
    let suites = ["bookworm", "bookworm-updates", "bookworm-security"];
    let apt = Apt::for_architecture(&dir.join("apt"), &suites, architecture.stdout.trim())?;
    apt.update()?;
    let mut packages = apt.would_install(&[PACKAGE])?;
    packages.retain(|package| runs_beside_the_machine(package));
    apt.unpack(&packages, dir).map(drop)
}

/// Of all packages that QEMU needs: its own and libraries, but not the C library, which goes with the machine's loader.
fn runs_beside_the_machine(package: &str) -> bool {
    let name = package.split('=').next().unwrap_or(package);
    name != "libc6" && (name.starts_with("qemu-") || name.starts_with("lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_qemu_says() {
        assert_eq!(
            parse_version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds)\nCopyright"),
            Some((10, 0, 2))
        );
        assert_eq!(parse_version("QEMU emulator version 7.2.22 (x)"), Some((7, 2, 22)));
        assert_eq!(parse_version("QEMU emulator version 9.2-rc1"), Some((9, 2, 0)));
        assert_eq!(parse_version("QEMU emulator version unknown"), None);
        assert_eq!(parse_version(""), None);
        assert!((7, 1, 9) < OLDEST && (7, 2, 0) >= OLDEST && (10, 0, 0) > OLDEST);
    }

    #[test]
    fn the_c_library_is_the_machines() {
        for (package, wanted) in
            [("libc6=2.36", false), ("libcap2=1", true), ("qemu-system-data=7", true), ("passwd=4", false)]
        {
            assert_eq!(runs_beside_the_machine(package), wanted, "{package}");
        }
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on_path("sh").is_some());
        assert_eq!(on_path("no-such-program-here"), None);
    }
}
