//! The suites that cargo runs: format, lints, unit and property tests, documentation, loom.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::libtest;
use super::outcome::Report;
use crate::paths;
use crate::setup::{self, command};

/// Longest time for one call of cargo: a first build on a slow machine is among them.
pub const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A call of cargo at the workspace's root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(paths::cargo());
    command.args(arguments).current_dir(paths::workspace()).env("CARGO_TERM_COLOR", "never");
    // These were set by the cargo that runs us and would make the inner one think that it is a build script's.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_"))
    {
        command.env_remove(name);
    }
    command
}

/// A call that is one test: it succeeds or not.
fn one(name: &str, command: &mut Command) -> Result<Report> {
    let output = command::capture(command, LIMIT)?;
    if output.status.success() {
        return Ok(Report::pass());
    }
    let said = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    Ok(Report::fail(name, command::tail(said, 40)))
}

/// Whether a tool of the toolchain is there; if not, rustup is asked for it once, for a bounded time.
fn has_component(subcommand: &str, component: &str) -> bool {
    let works = || {
        let limit = Duration::from_secs(30);
        command::capture(&mut cargo(&[subcommand, "--version"]), limit).is_ok_and(|out| out.status.success())
    };
    let add = || {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", component]);
        command::capture(&mut rustup, Duration::from_secs(15)).is_ok()
    };
    works() || (add() && works())
}

/// `cargo fmt --check`.
pub fn format() -> Result<Report> {
    if !has_component("fmt", "rustfmt") {
        return Ok(Report::skip("format", "rustfmt is not installed (`rustup component add rustfmt`)"));
    }
    one("format", &mut cargo(&["fmt", "--all", "--check"]))
}

/// Lints of everything that runs on the host.
pub fn lint_host() -> Result<Report> {
    if !has_component("clippy", "clippy") {
        return Ok(Report::skip("lint-host", "clippy is not installed (`rustup component add clippy`)"));
    }
    one(
        "lint-host",
        &mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    )
}

/// Lints of both images for the bare-metal target: code behind `target_os = "none"` is seen nowhere else.
pub fn lint_target() -> Result<Report> {
    let toolchain = setup::toolchain()?;
    if !toolchain.envs.is_empty() {
        let reason =
            "clippy needs the target's own libraries (`rustup target add aarch64-unknown-none-softfloat`)";
        return Ok(Report::skip("lint-target", reason));
    }
    if !has_component("clippy", "clippy") {
        return Ok(Report::skip("lint-target", "clippy is not installed (`rustup component add clippy`)"));
    }
    let mut clippy = cargo(&["clippy", "--quiet", "--package", "odometer", "--package", "guest"]);
    clippy.args(&toolchain.args).args(["--", "-D", "warnings"]);
    one("lint-target", &mut clippy)
}

/// Unit and property tests of one package.
pub fn unit(package: &str) -> Result<Report> {
    let mut test = cargo(&["test", "--quiet", "--package", package, "--no-fail-fast", "--"]);
    // One line for each test, with its name.
    test.arg("--format=pretty");
    let output = command::capture(&mut test, LIMIT)?;
    Ok(libtest::parse(&output.stdout, &output.stderr, output.status.success()))
}

/// The documentation of all items, private ones too (so that links to them lead somewhere): a broken link is an error.
pub fn documentation() -> Result<Report> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    one("documentation", doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
}

/// The VMID allocator under loom: all interleavings of a few threads, within bounds.
pub fn loom() -> Result<Report> {
    let mut test =
        cargo(&["test", "--quiet", "--release", "--package", "odometer", "--test", "loom_vmid", "--"]);
    test.arg("--format=pretty");
    // Another cfg makes other artefacts of everything, so that they have a place of their own.
    test.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", paths::kept("loom")?);
    let output = command::capture(&mut test, LIMIT)?;
    Ok(libtest::parse(&output.stdout, &output.stderr, output.status.success()))
}
