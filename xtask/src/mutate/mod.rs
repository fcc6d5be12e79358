//! `cargo xtask mutate`: makes the code wrong, in a copy of the tree, and looks who notices.

mod list;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::setup::command;
use crate::{interrupt, model, paths};
use list::{Catcher, Mutation};

/// Longest time for one catcher: a first build is among them. One that hangs has noticed, too.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// What `cargo xtask mutate` is asked to do.
#[derive(Debug, clap::Args)]
pub struct MutateArgs {
    /// Only mutations whose name begins with this (may be given more than once)
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// List the mutations, and change nothing
    #[arg(long)]
    pub list: bool,
}

/// Applies each mutation and prints by what it was caught; one that is not caught is a failure.
///
/// # Errors
/// A name that begins no mutation's; a catcher that fails on the code as it is; a text that isn't in the code any more.
pub fn run(args: &MutateArgs) -> Result<ExitCode> {
    if let Some(name) = args.names.iter().find(|name| !list::all().any(|m| m.name.starts_with(name.as_str())))
    {
        let known: Vec<&str> = list::all().map(|mutation| mutation.name).collect();
        bail!("no mutation begins with `{name}`; there are: {}", known.join(", "));
    }
    let wanted = |mutation: &&'static Mutation| {
        args.names.is_empty() || args.names.iter().any(|name| mutation.name.starts_with(name.as_str()))
    };
    let mutations: Vec<&Mutation> = list::all().filter(wanted).collect();
    if args.list {
        mutations.iter().for_each(|mutation| println!("{:<24} {}", mutation.name, mutation.about));
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::watch()?;
    let tree = Tree::copy()?;
    let mut sound = HashMap::new();
    let mut missed = 0;
    println!("{:<24} {:>8}  caught by", "mutation", "seconds");
    for mutation in &mutations {
        let start = Instant::now();
        let caught = tree.with(mutation, |tree| caught(tree, mutation))?;
        if let Some(catcher) = caught {
            // A catcher that always fails has caught nothing.
            let holds = sound.entry(tree.call(catcher)?.0).or_insert_with(|| tree.passes(catcher));
            ensure!(
                holds.as_ref().is_ok_and(|passes| *passes),
                "{} fails on the code as it is, too",
                shown(catcher)
            );
        }
        let by = caught.map_or("NOTHING".to_owned(), shown);
        let also = match mutation.model.map(|name| model::breaks(name).map(|breaks| (name, breaks))) {
            Some(Ok((name, true))) => format!(", model {name}"),
            Some(Ok((name, false))) => bail!("the model's configuration {name} does not break"),
            Some(Err(error)) => format!(" (no answer from the model: {error:#})"),
            None => String::new(),
        };
        missed += u32::from(caught.is_none());
        println!(
            "{:<24} {:>8.0}  {by}{also} ({})",
            mutation.name,
            start.elapsed().as_secs_f64(),
            mutation.about
        );
    }
    println!("\n{} caught, {missed} not", mutations.len() - missed as usize);
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first catcher that fails.
fn caught(tree: &Tree, mutation: &Mutation) -> Result<Option<Catcher>> {
    for &catcher in mutation.catchers {
        interrupt::check()?;
        if !tree.passes(catcher)? {
            return Ok(Some(catcher));
        }
    }
    Ok(None)
}

fn shown(catcher: Catcher) -> String {
    match catcher {
        Catcher::Unit(filter) => format!("unit and property tests `{filter}`"),
        Catcher::Loom(filter) => format!("loom `{filter}`"),
        Catcher::Image => "the image's suite".to_owned(),
        Catcher::System(filter) => format!("system tests `{filter}`"),
    }
}

/// A copy of the tree, and directories for what is built of it. They are kept, so that next time less is built.
struct Tree {
    root: PathBuf,
    built: PathBuf,
    /// Locked for as long as this lives, or another run would find this one's mistakes in its tree.
    _lock: File,
}

/// Locks a directory against another run in it.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another `cargo xtask mutate` is at work in {}: wait for it, or set CARGO_TARGET_DIR to another directory",
            directory.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

impl Tree {
    /// Copies what git tracks or would track; what was changed and not committed is among it.
    fn copy() -> Result<Self> {
        let lock = lock(&paths::kept("mutate")?)?;
        let root = paths::kept("mutate/tree")?;
        let built = paths::kept("mutate/target")?;
        let mut git = Command::new("git");
        git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(paths::workspace());
        let output = command::checked(&mut git, Duration::from_secs(30))?;
        let mut wanted = HashSet::new();
        for name in output.stdout.split('\0').filter(|name| !name.is_empty()) {
            let (from, to) = (paths::workspace().join(name), root.join(name));
            // One that was removed and not yet committed is still listed.
            let Ok(bytes) = fs::read(&from) else { continue };
            wanted.insert(to.clone());
            // What is as it was keeps its time, so that cargo doesn't build it again.
            if !fs::read(&to).is_ok_and(|old| old == bytes) {
                fs::create_dir_all(to.parent().unwrap_or(&root))?;
                fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
            }
        }
        remove_others(&root, &wanted)?;
        Ok(Self { root, built, _lock: lock })
    }

    /// Does something while the mutation is in the tree.
    fn with<T>(&self, mutation: &Mutation, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let (file, text) = find(&self.root, mutation)?;
        fs::write(&file, text.replacen(mutation.from, mutation.to, 1))?;
        let done = work(self);
        fs::write(&file, text).with_context(|| format!("putting {} back", file.display()))?;
        done
    }

    /// The command of a catcher; as text, and to be run.
    fn call(&self, catcher: Catcher) -> Result<(String, Command)> {
        let mut cargo = Command::new(paths::cargo());
        cargo.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.built).env_remove("RUSTFLAGS");
        match catcher {
            Catcher::Unit(filter) => cargo.args(["test", "--quiet", "-p", "odometer", "--lib", "--", filter]),
            Catcher::Loom(filter) => cargo
                .args(["test", "--quiet", "--release", "-p", "odometer", "--test", "loom_vmid", "--", filter])
                .env("RUSTFLAGS", "--cfg loom")
                .env("CARGO_TARGET_DIR", paths::kept("mutate/loom")?),
            Catcher::Image | Catcher::System(_) => {
                let filter = if let Catcher::System(filter) = catcher { filter } else { "image" };
                cargo.args(["run", "--quiet", "-p", "xtask", "--", "test", "--filter", filter])
            }
        };
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_"))
        {
            cargo.env_remove(name);
        }
        Ok((command::shown(&cargo), cargo))
    }

    /// Whether a catcher finds nothing wrong.
    ///
    /// # Errors
    /// The code doesn't compile: then it says nothing.
    fn passes(&self, catcher: Catcher) -> Result<bool> {
        let (line, mut cargo) = self.call(catcher)?;
        let Ok(output) = command::capture(&mut cargo, LIMIT) else {
            interrupt::check()?;
            return Ok(false);
        };
        let compiled =
            !output.stderr.contains("could not compile") && !output.stdout.contains("could not compile");
        ensure!(compiled, "`{line}`: the code does not compile:\n{}", command::tail(&output.stderr, 20));
        let ran = output.stdout.contains(" passed") || output.stdout.contains("FAILED");
        ensure!(ran, "`{line}` ran no test:\n{}", command::tail(&output.stderr, 20));
        Ok(output.status.success())
    }
}

/// The file of the mutation's room that has its text, once, and all that is in it.
fn find(root: &Path, mutation: &Mutation) -> Result<(PathBuf, String)> {
    let mut found = Vec::new();
    for file in sources(&root.join(mutation.room))? {
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        match text.matches(mutation.from).count() {
            0 => {}
            1 => found.push((file, text)),
            count => bail!("{}: {} has its text {count} times", mutation.name, file.display()),
        }
    }
    ensure!(
        found.len() == 1,
        "{}: {} files in {} have the text {:?}, one is wanted",
        mutation.name,
        found.len(),
        mutation.room,
        mutation.from
    );
    found.pop().context("one was found")
}

/// Removes what an earlier copy has left and the tree doesn't have any more: cargo would find it.
fn remove_others(directory: &Path, wanted: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// A file, or the Rust files of a directory, without tests.
fn sources(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time() {
        let directory = paths::scratch().unwrap();
        let first = lock(directory.path()).unwrap();
        let refused = lock(directory.path()).unwrap_err().to_string();
        assert!(
            refused.contains("another `cargo xtask mutate`") && refused.contains("CARGO_TARGET_DIR"),
            "{refused}"
        );
        drop(first);
        lock(directory.path()).unwrap();
    }

    #[test]
    fn what_an_earlier_copy_has_left_is_removed() {
        let directory = paths::scratch().unwrap();
        let (kept, left) = (directory.path().join("a/kept"), directory.path().join("a/b/left"));
        fs::create_dir_all(left.parent().unwrap()).unwrap();
        [&kept, &left].into_iter().for_each(|file| fs::write(file, "").unwrap());
        remove_others(directory.path(), &HashSet::from([kept.clone()])).unwrap();
        assert!(kept.exists() && !left.exists());
    }

    /// The list keeps up with the code.
    #[test]
    fn every_mutation_finds_its_text_once() {
        let mut names: Vec<&str> = list::all().map(|mutation| mutation.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), list::all().count());
        for mutation in list::all() {
            find(paths::workspace(), mutation).unwrap_or_else(|error| panic!("{error:#}"));
            assert_ne!(mutation.from, mutation.to);
            assert!(!mutation.catchers.is_empty(), "{}", mutation.name);
            if let Some(name) = mutation.model {
                assert!(model::must_break(name), "{}: {name} is no configuration that breaks", mutation.name);
            }
        }
    }
}
