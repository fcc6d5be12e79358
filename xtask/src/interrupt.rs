//! Ctrl-C and its relatives: noticed here, acted on where something must be ended.
//!
//! The handler only sets a flag. Whoever waits for QEMU looks at it, ends QEMU, and returns an error, so
//! that temporary files and terminal settings are put back on the way out. A second Ctrl-C ends at once;
//! QEMU ends with us then, because the kernel tells it so (see `qemu::process`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The exit code of a program that Ctrl-C ended, as shells count.
pub const EXIT_CODE: u8 = 130;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// What a function returns when somebody interrupted it.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Starts to watch for signals that ask this program to end. Later calls do nothing.
pub fn watch() -> Result<()> {
    if FLAG.get().is_some() {
        return Ok(());
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the second signal finds the flag set and ends us.
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_CODE.into(), Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    FLAG.get_or_init(|| flag);
    Ok(())
}

/// Whether somebody asked this program to end.
pub fn requested() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// An error if somebody asked this program to end.
pub fn check() -> Result<()> {
    if requested() {
        bail!(Interrupted);
    }
    Ok(())
}
