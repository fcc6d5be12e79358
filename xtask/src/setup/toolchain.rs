//! The compiler for the bare-metal target `aarch64-unknown-none-softfloat`.
//!
//! In this order:
//! 1. the target's own libraries beside the compiler in use (rustup's target, or a distribution's package);
//! 2. `rustup target add`, bounded in time: where the network is closed it may hang without an answer;
//! 3. the library's source beside the compiler (rustup's `rust-src`): `core` and `alloc` are built by cargo;
//! 4. Debian's `/usr/bin/rustc` with its source, in the same way;
//! 5. Debian's `rustc-web` and `rust-web-src`, unpacked under `target/`. They are not installed: as packages they
//!    conflict with Debian's `rustc` and `rustup`, and so would take away what a person has.
//!
//! Building the library needs `-Zbuild-std`, which a stable compiler accepts with `RUSTC_BOOTSTRAP=1`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use super::os::Os;
use super::{Toolchain, command, qemu};
use crate::paths;

/// The target of both images: no FP or SIMD register is ever touched by compiled code.
pub const TARGET: &str = "aarch64-unknown-none-softfloat";
/// Edition 2024 needs this much.
const OLDEST: (u32, u32) = (1, 85);
/// How long `rustup target add` may take.
const RUSTUP_LIMIT: Duration = Duration::from_secs(15);
/// How long a compiler may think about its own version.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Finds a way to compile for the target, fetching what is missing.
///
/// # Errors
/// There is none: the message says what was tried and what would help.
pub fn ensure() -> Result<Toolchain> {
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let here = Compiler::ask(&rustc, None)?;
    if here.has_target() {
        return Ok(here.with_target());
    }
    let mut tried = Vec::new();
    match rustup_add() {
        Ok(()) if here.has_target() => return Ok(here.with_target()),
        Ok(()) => tried.push(format!("rustup added {TARGET} to another toolchain than the one in use")),
        Err(error) => tried.push(format!("{error:#}")),
    }
    if here.has_source() {
        return here.with_built_library(&here);
    }
    if let Ok(system) = Compiler::ask(Path::new("/usr/bin/rustc"), None)
        && system.has_source()
        && system.is_new_enough()
    {
        return system.with_built_library(&here);
    }
    match unpacked_debian() {
        Ok(debian) => debian.with_built_library(&here),
        Err(error) => {
            tried.push(format!("{error:#}"));
            bail!(
                "no compiler for {TARGET}. Tried:\n  - {}\nWith rustup: `rustup target add {TARGET}`; \
                 or install the Rust library's source (`rustup component add rust-src`, or Debian's `rust-src`)",
                tried.join("\n  - ")
            )
        }
    }
}

/// A rustc and what lies beside it.
#[derive(Debug)]
struct Compiler {
    rustc: PathBuf,
    /// Directory of shared libraries that it needs, when it is not installed in the system.
    libraries: Option<PathBuf>,
    sysroot: PathBuf,
    host: String,
    /// What it calls itself: `rustc 1.95.0 (...)`.
    version: String,
}

impl Compiler {
    fn ask(rustc: &Path, libraries: Option<&Path>) -> Result<Self> {
        let ask = |args: &[&str]| {
            let mut command = Command::new(rustc);
            if let Some(libraries) = libraries {
                command.env("LD_LIBRARY_PATH", libraries);
            }
            command::checked(command.args(args), ASK_LIMIT).map(|output| output.stdout)
        };
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        let verbose = ask(&["-vV"])?;
        let host =
            verbose.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
        let version = verbose.lines().next().unwrap_or_default().trim();
        Ok(Self {
            rustc: rustc.to_owned(),
            libraries: libraries.map(Path::to_owned),
            sysroot,
            host: host.to_owned(),
            version: version.to_owned(),
        })
    }

    fn rustlib(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib")
    }

    /// Whether the target's own `core` is there.
    fn has_target(&self) -> bool {
        let files =
            std::fs::read_dir(self.rustlib().join(TARGET).join("lib")).into_iter().flatten().flatten();
        files.map(|file| file.file_name()).any(|name| name.to_string_lossy().starts_with("libcore-"))
    }

    /// Whether the library's source is there.
    fn has_source(&self) -> bool {
        self.rustlib().join("src/rust/library/core/src/lib.rs").exists()
    }

    fn is_new_enough(&self) -> bool {
        parse_version(&self.version).is_some_and(|version| version >= OLDEST)
    }

    fn with_target(&self) -> Toolchain {
        Toolchain {
            cargo: paths::cargo(),
            args: vec!["--target".into(), TARGET.into()],
            envs: Vec::new(),
            target: TARGET.into(),
            version: self.version.clone(),
        }
    }

    /// Builds `core` and `alloc` with this compiler; `usual` is the one in use, which may have the linker.
    fn with_built_library(&self, usual: &Self) -> Result<Toolchain> {
        let mut envs = vec![("RUSTC_BOOTSTRAP".to_owned(), "1".to_owned())];
        let mut libraries: Vec<PathBuf> = self.libraries.iter().cloned().collect();
        if self.rustc != usual.rustc {
            envs.push(("RUSTC".into(), text(&self.rustc)?));
        }
        if self.own_linker().is_none() {
            let linker = match usual.own_linker().or_else(system_linker) {
                Some(linker) => linker,
                None => {
                    let (linker, beside) = unpacked_linker()?;
                    libraries.push(beside);
                    linker
                }
            };
            let key = format!("CARGO_TARGET_{}_LINKER", TARGET.to_uppercase().replace('-', "_"));
            envs.push((key, text(&linker)?));
        }
        if !libraries.is_empty() {
            let path = std::env::join_paths(libraries).context("a library's path has a colon in it")?;
            envs.push(("LD_LIBRARY_PATH".into(), text(Path::new(&path))?));
        }
        Ok(Toolchain {
            cargo: paths::cargo(),
            args: vec![
                "--target".into(),
                TARGET.into(),
                "-Zbuild-std=core,alloc,compiler_builtins".into(),
                "-Zbuild-std-features=compiler-builtins-mem".into(),
            ],
            envs,
            target: TARGET.into(),
            version: format!("{} (library built from source)", self.version),
        })
    }

    /// The linker that this compiler finds by itself.
    fn own_linker(&self) -> Option<PathBuf> {
        let linker = self.rustlib().join(&self.host).join("bin/rust-lld");
        linker.exists().then_some(linker)
    }
}

/// LLVM's linker where distributions put it.
fn system_linker() -> Option<PathBuf> {
    let names = ["rust-lld", "ld.lld"];
    let numbered = (14..40).rev().map(|version| PathBuf::from(format!("/usr/lib/llvm-{version}/bin/ld.lld")));
    names.iter().find_map(|name| qemu::on_path(name)).or_else(|| numbered.into_iter().find(|p| p.exists()))
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Reads `rustc 1.95.0 (...)`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split_whitespace().nth(1)?.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}

/// `rustup target add`, at most once a day when it fails, so that a closed network costs its 15 seconds once.
fn rustup_add() -> Result<()> {
    let failed = paths::kept("setup")?.join("rustup-failed");
    let recent = std::fs::metadata(&failed).and_then(|meta| meta.modified()).ok();
    let day = Duration::from_secs(24 * 3600);
    if recent.and_then(|time| time.elapsed().ok()).is_some_and(|age| age < day) {
        bail!("rustup target add (failed less than a day ago; `cargo xtask setup` tries again)");
    }
    eprintln!("setup: adding the target {TARGET} with rustup");
    let result = command::checked(Command::new("rustup").args(["target", "add", TARGET]), RUSTUP_LIMIT);
    if result.is_err() {
        std::fs::write(&failed, "")?;
    }
    result.map(drop)
}

/// Forgets that rustup failed, so that it is tried again.
///
/// # Errors
/// The target directory can't be written.
pub fn forget_failures() -> Result<()> {
    // Mostly the file isn't there, which is what is wanted.
    let _ = std::fs::remove_file(paths::kept("setup")?.join("rustup-failed"));
    Ok(())
}

/// Where Debian's compiler is unpacked.
fn debian_dir() -> Result<PathBuf> {
    paths::kept("setup/debian-rust")
}

/// Debian's compiler and library source, unpacked under `target/` (a second call finds them there).
fn unpacked_debian() -> Result<Compiler> {
    let dir = debian_dir()?;
    let root = dir.join("root");
    let compiler = || Compiler::ask(&root.join("usr/bin/rustc"), Some(&libraries_in(&root)));
    if root.exists()
        && let Ok(compiler) = compiler()
    {
        return Ok(compiler);
    }
    let apt = debian_apt(&dir)?;
    // `rustc-web` is kept new in stable releases; a later release's own `rustc` may be new enough.
    let pairs = [["rustc-web", "rust-web-src"], ["rustc", "rust-src"]];
    let known = |pair: &&[&str; 2]| apt.candidate(pair[0]).is_ok_and(|version| version.is_some());
    let pair = pairs.iter().find(known).context("the Debian mirror has no Rust compiler")?;
    eprintln!("setup: fetching Debian's {} and {} (about 140 MB, once)", pair[0], pair[1]);
    let mut packages = apt.would_install(pair)?;
    // A dry run leaves out what is installed already: then it would have been found in /usr.
    packages.retain(|package| needed_beside_the_compiler(package));
    apt.unpack(&packages, &dir)?;
    prune(&root)?;
    let compiler = compiler()?;
    if !compiler.is_new_enough() {
        bail!("{} is too old: {}.{} or later is needed", compiler.version, OLDEST.0, OLDEST.1);
    }
    Ok(compiler)
}

/// Removes what building the library doesn't need (the compiler's own source, which is most of it).
fn prune(root: &Path) -> Result<()> {
    let sources = std::fs::read_dir(root.join("usr/src")).into_iter().flatten().flatten();
    for source in sources {
        for part in ["compiler", "src", "tests", "vendor"] {
            let part = source.path().join(part);
            if part.is_dir() {
                std::fs::remove_dir_all(&part).with_context(|| format!("removing {}", part.display()))?;
            }
        }
    }
    Ok(())
}

/// Of the packages that installing Debian's compiler would bring: the compiler and shared libraries, but no compiler of C.
fn needed_beside_the_compiler(package: &str) -> bool {
    let name = package.split('=').next().unwrap_or(package);
    let headers = name.ends_with("-dev") && !name.starts_with("libstd-rust");
    (name.starts_with("rust") || name.starts_with("lib")) && !headers && !name.ends_with("-doc")
}

/// LLVM's linker from Debian, unpacked beside the compiler, and the directory of libraries that it needs.
fn unpacked_linker() -> Result<(PathBuf, PathBuf)> {
    let dir = debian_dir()?.join("lld");
    let root = dir.join("root");
    if !root.exists() {
        eprintln!("setup: fetching Debian's lld");
        let apt = debian_apt(&dir)?;
        let packages = apt.would_install(&["lld"])?;
        apt.unpack(&packages, &dir)?;
    }
    let llvm = std::fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
    let linkers = llvm.map(|entry| entry.path().join("bin/ld.lld"));
    let linker =
        linkers.into_iter().find(|path| path.exists()).context("Debian's lld package has no ld.lld")?;
    Ok((linker, libraries_in(&root)))
}

/// Where Debian's packages have their shared libraries.
fn libraries_in(root: &Path) -> PathBuf {
    root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
}

fn debian_apt(dir: &Path) -> Result<Apt> {
    let os = Os::here();
    if os.id != "debian" {
        bail!("Debian's compiler is used on Debian only (this is {:?})", os.id);
    }
    let suites =
        [os.codename.clone(), format!("{}-updates", os.codename), format!("{}-security", os.codename)];
    let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
    let apt = Apt::for_host(&dir.join("apt"), &suites)?;
    apt.update()?;
    Ok(apt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_version_is_read() {
        assert_eq!(
            parse_version("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"),
            Some((1, 96))
        );
        assert_eq!(parse_version("rustc 1.97.0-nightly (x)"), Some((1, 97)));
        assert_eq!(parse_version("rustc"), None);
        assert!((1, 84) < OLDEST);
    }

    #[test]
    fn only_what_cross_compiling_needs_is_fetched() {
        for wanted in
            ["rustc-web=1", "rust-web-src=1", "libstd-rust-web-dev=1", "libllvm22=1:22", "libedit2=3"]
        {
            assert!(needed_beside_the_compiler(wanted), "{wanted}");
        }
        for left in ["gcc=12", "libc6-dev=2.36", "binutils=2.40", "rust-web-doc=1"] {
            assert!(!needed_beside_the_compiler(left), "{left}");
        }
    }

    #[test]
    fn the_compiler_in_use_answers() {
        let compiler = Compiler::ask(Path::new("rustc"), None).expect("rustc answers");
        assert!(compiler.is_new_enough(), "{}", compiler.version);
        assert!(!compiler.host.is_empty());
        assert!(Compiler::ask(Path::new("/nonexistent/rustc"), None).is_err());
    }
}
