//! apt with a private configuration: own source list, own package lists, own cache, all under `target/`.
//!
//! A person's machine keeps its own sources and architectures: `arm64` and the backports suite are named only
//! here. apt itself checks the archive's signature (against the Debian keyring) and every package's hash. See
//! apt.conf(5), sources.list(5), apt-get(8).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::os::Os;
use super::{command, sources};

/// The public archive, for a machine whose own sources name no Debian mirror.
const PUBLIC_MIRROR: &str = "http://deb.debian.org/debian";
/// The same, for security updates.
const PUBLIC_SECURITY: &str = "http://deb.debian.org/debian-security";
/// Debian's signing keys, as its package `debian-archive-keyring` installs them.
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
/// Longest wait for lists or packages: apt itself gives up on a silent mirror much sooner.
const NETWORK_LIMIT: Duration = Duration::from_secs(300);
/// Longest wait for a question that needs no network.
const LOCAL_LIMIT: Duration = Duration::from_secs(60);

/// An apt with a configuration of its own.
#[derive(Debug)]
pub struct Apt {
    dir: PathBuf,
    architecture: Option<String>,
    /// Whether the machine's installed packages count (they don't for another architecture).
    uses_installed: bool,
}

impl Apt {
    /// An apt for this machine's own architecture that knows which packages are installed.
    ///
    /// # Errors
    /// No apt here, no Debian keyring, or the directory can't be written.
    pub fn for_host(dir: &Path, suites: &[&str]) -> Result<Self> {
        Self::new(dir, suites, None)
    }

    /// An apt for packages of another `architecture`, none of which counts as installed.
    ///
    /// # Errors
    /// As [`Apt::for_host`].
    pub fn for_architecture(dir: &Path, suites: &[&str], architecture: &str) -> Result<Self> {
        Self::new(dir, suites, Some(architecture))
    }

    fn new(dir: &Path, suites: &[&str], architecture: Option<&str>) -> Result<Self> {
        if !Path::new("/usr/bin/apt-get").exists() {
            bail!("Debian packages are wanted, but this machine has no apt-get");
        }
        let keyring = KEYRINGS.into_iter().find(|path| Path::new(path).exists()).context(
            "Debian's signing keys are missing: install the package `debian-archive-keyring` \
             (sudo apt-get install debian-archive-keyring)",
        )?;
        for sub in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(dir.join(sub))
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        // apt takes relative paths for relative to its own root, so the directory must be absolute.
        let dir = dir.canonicalize()?;
        std::fs::write(
            dir.join("sources.list"),
            source_list(&sources::here(), &Os::here(), suites, keyring),
        )?;
        std::fs::write(dir.join("status"), "")?;
        Ok(Self {
            dir,
            architecture: architecture.map(str::to_owned),
            uses_installed: architecture.is_none(),
        })
    }

    /// The options that make apt private.
    fn options(&self) -> Vec<String> {
        let dir = self.dir.display();
        let mut settings = vec![
            format!("Dir::Etc::SourceList={dir}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".into(),
            "Dir::Etc::PreferencesParts=/dev/null".into(),
            format!("Dir::State::Lists={dir}/lists"),
            format!("Dir::Cache={dir}/cache"),
            // The user `_apt` may not reach into target/; signatures and hashes are checked all the same.
            "APT::Sandbox::User=root".into(),
            "APT::Update::Error-Mode=any".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::Retries=2".into(),
            "Acquire::http::Timeout=20".into(),
            "Acquire::https::Timeout=20".into(),
        ];
        if !self.uses_installed {
            settings.push(format!("Dir::State::status={dir}/status"));
        }
        if let Some(architecture) = &self.architecture {
            settings.push(format!("APT::Architecture={architecture}"));
            settings.push(format!("APT::Architectures::={architecture}"));
        }
        settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]).collect()
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options()).env("LC_ALL", "C");
        command
    }

    /// Fetches the package lists.
    ///
    /// # Errors
    /// The mirror doesn't answer, or what it says is not signed by Debian.
    pub fn update(&self) -> Result<()> {
        command::checked(self.tool("apt-get").args(["update", "-q"]), NETWORK_LIMIT).map(drop).with_context(
            || {
                format!(
                    "cannot fetch package lists from the Debian mirror ({}); is the network there? \
                     The mirror is taken from /etc/apt",
                    self.mirrors()
                )
            },
        )
    }

    fn mirrors(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("sources.list")).unwrap_or_default();
        let mut uris: Vec<&str> = text.split_whitespace().filter(|word| word.contains("://")).collect();
        uris.dedup();
        uris.join(", ")
    }

    /// The version of `package` that would be taken, if there is one.
    ///
    /// # Errors
    /// apt itself fails.
    pub fn candidate(&self, package: &str) -> Result<Option<String>> {
        let output = command::checked(self.tool("apt-cache").args(["policy", package]), LOCAL_LIMIT)?;
        Ok(parse_candidate(&output.stdout))
    }

    /// The packages that `package` depends on directly.
    ///
    /// # Errors
    /// apt doesn't know the package.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let output = command::checked(self.tool("apt-cache").args(["depends", package]), LOCAL_LIMIT)?;
        Ok(parse_dependencies(&output.stdout))
    }

    /// The packages that installing `wanted` would add, by a dry run.
    ///
    /// # Errors
    /// Dependencies can't be satisfied.
    pub fn would_install(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let mut dry = self.tool("apt-get");
        dry.args(["install", "-s", "-y", "--no-install-recommends"]).args(wanted);
        let output = command::checked(&mut dry, LOCAL_LIMIT)?;
        Ok(parse_dry_run(&output.stdout))
    }

    /// Downloads packages (`name` or `name=version`) into a directory; apt checks each one's hash.
    ///
    /// # Errors
    /// The mirror doesn't answer, or a package is not known or not what the lists say.
    fn download(&self, packages: &[String], into: &Path) -> Result<Vec<PathBuf>> {
        std::fs::create_dir_all(into)?;
        let mut fetch = self.tool("apt-get");
        fetch.args(["download", "-q"]).args(packages).current_dir(into);
        command::checked(&mut fetch, NETWORK_LIMIT)
            .with_context(|| format!("cannot fetch packages from the Debian mirror ({})", self.mirrors()))?;
        let files = std::fs::read_dir(into)?.flatten().map(|entry| entry.path());
        let mut debs: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "deb")).collect();
        debs.sort();
        if debs.len() < packages.len() {
            bail!("asked for {} packages, apt fetched {}", packages.len(), debs.len());
        }
        Ok(debs)
    }

    /// Downloads packages and unpacks them, all into one directory, `dir`/root, which appears only when it is complete.
    /// Nothing is installed: no script of a package runs.
    ///
    /// # Errors
    /// As [`Apt::download`]; or a package is damaged.
    pub fn unpack(&self, packages: &[String], dir: &Path) -> Result<PathBuf> {
        let (debs, fresh, root) = (dir.join("debs"), dir.join("root.new"), dir.join("root"));
        // What an interrupted run left must not be mixed with what is fetched now.
        for old in [&debs, &fresh, &root] {
            if old.exists() {
                std::fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
            }
        }
        for deb in self.download(packages, &debs)? {
            unpack(&deb, &fresh)?;
        }
        std::fs::remove_dir_all(&debs)?;
        std::fs::rename(&fresh, &root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(root)
    }

    /// The command that installs packages on this machine, from `release` where it is given.
    pub fn install(&self, release: Option<&str>, packages: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        command.args(self.options()).args(["install", "-y", "--no-install-recommends"]);
        if let Some(release) = release {
            command.args(["-t", release]);
        }
        command.args(packages);
        command
    }
}

/// Unpacks a package into a directory, as dpkg-deb(1) does.
fn unpack(deb: &Path, into: &Path) -> Result<()> {
    std::fs::create_dir_all(into)?;
    let mut unpack = Command::new("dpkg-deb");
    command::checked(unpack.arg("-x").arg(deb).arg(into), Duration::from_secs(300)).map(drop)
}

/// The text of the private sources.list. Security suites (`NAME-security`) live in an archive of their own.
fn source_list(sources: &[sources::Source], os: &Os, suites: &[&str], keyring: &str) -> String {
    // The mirror that has this machine's own suite has the others as well; a derivative's mirror has none of them.
    let own = |suite: &str| (os.id == "debian").then(|| sources::mirror_of(sources, suite)).flatten();
    let main = own(&os.codename).or_else(|| own("stable")).unwrap_or_else(|| PUBLIC_MIRROR.to_owned());
    let security =
        own(&format!("{}-security", os.codename)).or_else(|| own("stable-security")).or_else(|| {
            // A mirror of one's own without a security archive: better none than another host's.
            (main == PUBLIC_MIRROR).then(|| PUBLIC_SECURITY.to_owned())
        });
    let mut text = String::new();
    for suite in suites {
        let uri = if suite.ends_with("-security") { security.as_ref() } else { Some(&main) };
        if let Some(uri) = uri {
            text.push_str(&format!("deb [signed-by={keyring}] {uri} {suite} main\n"));
        }
    }
    text
}

fn parse_candidate(policy: &str) -> Option<String> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate:"))?.trim();
    (version != "(none)").then(|| version.to_owned())
}

fn parse_dependencies(depends: &str) -> Vec<String> {
    let lines = depends.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches('|');
        line.strip_prefix("Depends:").or_else(|| line.strip_prefix("PreDepends:"))
    });
    lines.map(|name| name.trim().to_owned()).filter(|name| !name.starts_with('<')).collect()
}

/// `Inst NAME [old] (VERSION suite [arch])` lines of a dry run, as `NAME=VERSION`.
fn parse_dry_run(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("Inst "));
    lines
        .filter_map(|line| {
            let name = line.split_whitespace().next()?;
            let version = line.split_once('(')?.1.split_whitespace().next()?;
            Some(format!("{name}={version}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> Os {
        Os::parse("ID=debian\nVERSION_CODENAME=bookworm")
    }

    #[test]
    fn the_machines_own_mirror_is_used() {
        let own = sources::parse_list(
            "deb https://m.example/debian bookworm main\ndeb https://s.example/sec bookworm-security main",
        );
        let text =
            source_list(&own, &debian(), &["bookworm", "bookworm-security", "bookworm-backports"], "/k");
        assert_eq!(
            text,
            "deb [signed-by=/k] https://m.example/debian bookworm main\n\
             deb [signed-by=/k] https://s.example/sec bookworm-security main\n\
             deb [signed-by=/k] https://m.example/debian bookworm-backports main\n"
        );
    }

    #[test]
    fn a_closed_mirror_is_not_mixed_with_the_public_one() {
        let own = sources::parse_list("deb http://inside.example/debian bookworm main");
        let text = source_list(&own, &debian(), &["bookworm", "bookworm-security"], "/k");
        assert_eq!(text, "deb [signed-by=/k] http://inside.example/debian bookworm main\n");
    }

    #[test]
    fn a_derivative_takes_the_public_archive() {
        let own = sources::parse_list("deb http://archive.example/ubuntu noble main");
        let ubuntu = Os::parse("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble");
        let text = source_list(&own, &ubuntu, &["bookworm", "bookworm-security"], "/k");
        assert!(text.contains(PUBLIC_MIRROR) && text.contains(PUBLIC_SECURITY), "{text}");
        assert!(!text.contains("ubuntu"), "{text}");
    }

    #[test]
    fn apts_answers_are_read() {
        assert_eq!(
            parse_candidate("x:\n  Installed: (none)\n  Candidate: 1:2.3-4\n"),
            Some("1:2.3-4".into())
        );
        assert_eq!(parse_candidate("x:\n  Candidate: (none)\n"), None);
        assert_eq!(parse_candidate(""), None);
        let depends =
            "a\n  PreDepends: p\n  Depends: b\n |Depends: c\n  Depends: <virtual>\n    d\n  Suggests: e\n";
        assert_eq!(parse_dependencies(depends), ["p", "b", "c"]);
        let dry = "Remv old [1]\nInst new (1:2+x Debian:12/oldstable [amd64])\nInst up [1.0] (1.1 Debian [all])\nConf new (1)\n";
        assert_eq!(parse_dry_run(dry), ["new=1:2+x", "up=1.1"]);
    }
}
