//! Where things are: the repository's root, and the directory under `target/` for what is fetched.

use std::path::{Path, PathBuf};

/// The repository's root directory.
///
/// `cargo xtask` sets `CARGO_MANIFEST_DIR` to `xtask/`; a binary that is called directly falls back to the
/// place where it was compiled.
pub fn root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Cargo's target directory: `CARGO_TARGET_DIR` where it is set, else `target/` at the root.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}
