//! Checks of the repository's files: nothing of one machine in them, and links between documents that lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{outcome::Report, traps};
use crate::paths;
use crate::setup::command;

/// Directories of a person's machine or of a build machine. In pieces, so that this file is not found by its own search.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("C:\\", "Users"),
];

/// Looks through all files of the repository.
pub fn check() -> Result<Report> {
    let files = files()?;
    let mut report = Report::default();
    report.add(Report::of("no-machine-paths", &all(&files, &machine_paths)));
    report.add(Report::of("links-in-documents", &all(&files, &broken_links)));
    report.add(Report::of("tests-named-in-traps", &traps::check(&files)));
    Ok(report)
}

/// The files that git tracks or would track; without git (an unpacked archive) all but those under `target`.
fn files() -> Result<Vec<PathBuf>> {
    let root = paths::workspace();
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root);
    match command::capture(&mut git, Duration::from_secs(30)) {
        Ok(output) if output.status.success() => {
            let names = output.stdout.split('\0').filter(|name| !name.is_empty());
            // A file that was removed and not yet committed is still listed.
            Ok(names.map(|name| root.join(name)).filter(|path| path.is_file()).collect())
        }
        _ => {
            let mut files = Vec::new();
            walk(root, &mut files)?;
            Ok(files)
        }
    }
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.is_dir() {
            files.push(path);
        } else if !matches!(entry.file_name().to_str(), Some("target" | ".git")) {
            walk(&path, files)?;
        }
    }
    Ok(())
}

/// Applies a search to every text file; what is found is the error.
fn all(files: &[PathBuf], search: &dyn Fn(&Path, &str) -> Vec<String>) -> Result<()> {
    let mut found = Vec::new();
    for file in files {
        // What is not text has no paths and no links.
        let Ok(text) = fs::read_to_string(file) else { continue };
        let name = file.strip_prefix(paths::workspace()).unwrap_or(file).display();
        found.extend(search(file, &text).into_iter().map(|what| format!("{name}:{what}")));
    }
    anyhow::ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Lines with a machine's path: `number: path`.
fn machine_paths(_file: &Path, text: &str) -> Vec<String> {
    let hit = |line: &str| MACHINE_PATHS.iter().find(|path| contains_path(line, path)).copied();
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| Some(format!("{}: {}", index + 1, hit(line)?))).collect()
}

/// Whether a line has the path at the start of a word: `a/root/b` and `sysroot/` have not.
fn contains_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-/}".contains(c))
    })
}

/// Links of a Markdown file that lead to no file.
fn broken_links(file: &Path, text: &str) -> Vec<String> {
    if file.extension().is_none_or(|extension| extension != "md") {
        return Vec::new();
    }
    let base = file.parent().unwrap_or(Path::new(""));
    let broken = |target: &&str| {
        let path = target.split('#').next().unwrap_or_default();
        !target.contains("://")
            && !target.starts_with("mailto:")
            && !path.is_empty()
            && !base.join(path).exists()
    };
    links(text).into_iter().filter(broken).map(|target| format!(" no such file: {target}")).collect()
}

/// The targets of `[text](target)`, outside of blocks of code.
fn links(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        // Four blanks are a block of code, too.
        if in_code || line.starts_with("    ") {
            continue;
        }
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, left)) = after.split_once(')') else { break };
            targets.push(target.split_whitespace().next().unwrap_or_default());
            rest = left;
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_at_the_start_of_a_word() {
        let home = concat!("/ho", "me/");
        let text = format!("fine\nsee {home}me/odometer\n\"{home}x\"\n");
        assert_eq!(machine_paths(Path::new("a"), &text), [format!("2: {home}"), format!("3: {home}")]);
        let root = concat!("/ro", "ot/");
        for fine in
            [format!("sys{root}x"), format!("a{root}b"), format!("${{x}}{root}b"), format!("..{root}")]
        {
            assert!(machine_paths(Path::new("a"), &fine).is_empty(), "{fine}");
        }
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text =
            "a [b](c.md) and [d](e.md#f \"title\")\n```\n[x](y)\n```\n    [x](z)\n[g](https://h)\n[open](\n";
        assert_eq!(links(text), ["c.md", "e.md#f", "https://h"]);
    }

    #[test]
    fn only_links_to_missing_files_are_broken() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("there.md"), "").expect("written");
        let file = directory.path().join("x.md");
        let text = "[a](there.md) [b](#part) [c](there.md#part) [d](https://e) [f](missing.md)";
        assert_eq!(broken_links(&file, text), [" no such file: missing.md"]);
        assert!(broken_links(&file.with_extension("rs"), text).is_empty());
    }
}
