//! Where things are: the workspace, cargo's target directory, and what this tool keeps under it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

/// The workspace's root.
pub fn workspace() -> &'static Path {
    // This crate lies one level below it.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The cargo that runs us, or the one on the search path.
pub fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// Cargo's target directory, as cargo itself sees it (environment and configuration may move it).
pub fn target() -> Result<&'static Path> {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = TARGET.get() {
        return Ok(path);
    }
    let output = Command::new(cargo())
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .context("running `cargo metadata`")?;
    ensure!(
        output.status.success(),
        "`cargo metadata` failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("reading what `cargo metadata` printed")?;
    let directory =
        metadata["target_directory"].as_str().context("`cargo metadata` named no target directory")?;
    Ok(TARGET.get_or_init(|| PathBuf::from(directory)))
}

/// A directory under the target directory that this tool keeps, made when it is missing.
pub fn kept(name: &str) -> Result<PathBuf> {
    let path = target()?.join("odometer").join(name);
    std::fs::create_dir_all(&path).with_context(|| format!("making the directory {}", path.display()))?;
    Ok(path)
}

/// A fresh directory for one run, removed when the value is dropped.
pub fn scratch() -> Result<tempfile::TempDir> {
    let parent = kept("runs")?;
    tempfile::Builder::new()
        .prefix("run-")
        .tempdir_in(&parent)
        .with_context(|| format!("making a scratch directory in {}", parent.display()))
}

/// The SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// It can't be read.
pub fn sha256(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that a person asked for: all of it, or none, so that a full disk leaves what was there before. What isn't a regular file
/// (`/dev/stdout`) is written as it is.
///
/// # Errors
/// It can't be written; the message doesn't say which it is.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if path.exists() && !path.is_file() {
        return std::fs::write(path, bytes);
    }
    // Where a link points to, not the link, is replaced; beside it, as a rename doesn't cross file systems.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(&path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("out.json");
        write_whole(&file, b"first").expect("written");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        write_whole(&link, b"second").expect("written");
        assert_eq!(std::fs::read(&file).expect("there"), b"second");
        assert!(link.is_symlink());
        assert!(write_whole(&directory.path().join("missing/out"), b"").is_err());
        // A device that is always full, and is still there afterwards.
        assert!(write_whole(Path::new("/dev/full"), b"third").is_err());
        assert!(!Path::new("/dev/full").is_file());
        let left: Vec<_> = std::fs::read_dir(directory.path()).expect("readable").collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
