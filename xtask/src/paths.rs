//! Where things are: the workspace, cargo's target directory, and what this tool keeps under it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

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
