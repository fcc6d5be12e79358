//! The two sides of a comparison that the command line asks for with `--a` and `--b`: the same bench with one thing changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::BenchArgs;
use crate::image::Programs;
use crate::paths;
use crate::results::Variant;

/// One side; or all there is, where none are asked for.
#[derive(Debug, Clone)]
pub struct Arm {
    /// `A`, `B`, or nothing.
    letter: &'static str,
    /// What it sets.
    settings: Vec<(String, String)>,
    /// The hypervisor's options, those of this side included.
    pub options: Vec<(String, String)>,
    /// QEMU's CPU model, if one is asked for.
    cpu: Option<String>,
    /// The hypervisor's image, if not the one that is built now.
    image: Option<PathBuf>,
}

impl Arm {
    /// The sides that the command line asks for: one without a letter, or two.
    ///
    /// # Errors
    /// Only one is given, both set the same, or a setting can't be.
    pub fn of(args: &BenchArgs) -> Result<Vec<Self>> {
        let one = |letter, settings: &[(String, String)]| Self::new(args, letter, settings);
        match (args.a.as_slice(), args.b.as_slice()) {
            ([], []) => Ok(vec![one("", &[])?]),
            (a, b) => {
                ensure!(
                    a != b,
                    "--a and --b set the same; one of them must set something else, such as --b vmid.policy=merged"
                );
                Ok(vec![one("A", a)?, one("B", b)?])
            }
        }
    }

    fn new(args: &BenchArgs, letter: &'static str, settings: &[(String, String)]) -> Result<Self> {
        let mut arm = Self {
            letter,
            settings: settings.to_vec(),
            options: args.options.clone(),
            cpu: args.cpu.clone(),
            image: None,
        };
        for (key, value) in settings {
            match key.as_str() {
                "cpu" => arm.cpu = Some(value.clone()),
                "image" => {
                    let flag = format!("--{} image={value}", letter.to_lowercase());
                    let path = own_image(Path::new(value)).context(flag)?;
                    // The name alone doesn't say what ran.
                    arm.settings.push(("image's SHA-256".into(), paths::sha256(&path)?));
                    arm.image = Some(path);
                }
                _ => {
                    arm.options.retain(|(known, _)| known != key);
                    arm.options.push((key.clone(), value.clone()));
                }
            }
        }
        Ok(arm)
    }

    /// QEMU's CPU model, where `usual` is what runs without being asked.
    pub fn cpu(&self, usual: &str) -> String {
        self.cpu.clone().unwrap_or_else(|| usual.to_owned())
    }

    /// The command line as if this side were all that it asks for.
    pub fn args(&self, args: &BenchArgs) -> BenchArgs {
        BenchArgs { options: self.options.clone(), cpu: self.cpu.clone(), ..args.clone() }
    }

    /// The programs that this side runs.
    pub fn programs(&self, built: &Programs) -> Programs {
        let mut programs = built.clone();
        if let Some(image) = &self.image {
            programs.odometer.image.clone_from(image);
        }
        programs
    }

    /// The name of a row on this side.
    pub fn name(&self, row: &str) -> String {
        if self.letter.is_empty() { row.into() } else { format!("{row} [{}]", self.letter) }
    }

    /// The row on this side: side B's are compared with side A's, others with the row that the bench says.
    pub fn row(&self, row: Variant) -> Variant {
        let base = match self.letter {
            "B" => Some(format!("{} [A]", row.name)),
            _ => row.base.as_deref().map(|base| self.name(base)),
        };
        let mut settings: BTreeMap<String, String> = row.settings;
        settings.extend(self.settings.iter().cloned());
        // What was published stands beside one side: it is not of either.
        let published = if self.letter == "B" { Vec::new() } else { row.published };
        Variant { name: self.name(&row.name), base, settings, published, ..row }
    }

    /// What this side sets, for a table's note; nothing where there are no sides.
    pub fn note(&self) -> Option<String> {
        let settings: Vec<String> =
            self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let settings = if settings.is_empty() { "nothing else".into() } else { settings.join(" ") };
        (!self.letter.is_empty()).then(|| format!("[{}]: {settings}", self.letter))
    }
}

/// A file that is an image of Odometer's.
///
/// # Errors
/// It can't be read, or is none.
fn own_image(path: &Path) -> Result<PathBuf> {
    const REMEDY: &str = "give an `odometer.bin` that `cargo xtask build --out DIR` made";
    let bytes = std::fs::read(path).with_context(|| format!("can't be read; {REMEDY}"))?;
    let magic = bytes.get(0x38..0x3c) == Some(b"ARM\x64");
    // What its report's lines begin with.
    let own = bytes.windows(10).any(|window| window == b"@odometer ");
    ensure!(magic && own, "is no image of Odometer; {REMEDY}");
    Ok(path.canonicalize()?)
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::*;

    #[test]
    fn without_sides_there_is_one_with_the_command_lines_options() {
        let arms = Arm::of(&args("syscall --set vmid.bits=4")).unwrap();
        assert_eq!(arms.len(), 1);
        assert_eq!((arms[0].options.len(), arms[0].name("on").as_str(), arms[0].note()), (1, "on", None));
        let row = Variant { name: "on".into(), base: Some("off".into()), ..Variant::default() };
        assert_eq!(arms[0].row(row.clone()), row);
    }

    #[test]
    fn a_side_sets_options_the_cpu_and_the_image() {
        let arms =
            Arm::of(&args("syscall --set vmid.bits=4 --a vmid.bits=5 --b cpu=cortex-a76 --b trace=on"))
                .unwrap();
        assert_eq!(arms[0].options, [("vmid.bits".to_string(), "5".to_string())]);
        assert_eq!((arms[1].cpu("max").as_str(), arms[1].options.len()), ("cortex-a76", 2));
        assert_eq!(arms[0].cpu("max"), "max");
        let row = Variant { name: "on".into(), base: Some("off".into()), ..Variant::default() };
        assert_eq!(arms[0].row(row.clone()).base.as_deref(), Some("off [A]"));
        assert_eq!(arms[1].row(row).base.as_deref(), Some("on [A]"));
        assert_eq!(arms[1].note().as_deref(), Some("[B]: cpu=cortex-a76 trace=on"));
    }

    #[test]
    fn sides_that_are_alike_or_not_to_be_had_are_refused() {
        let error = |line: &str| Arm::of(&args(line)).unwrap_err().to_string();
        assert!(error("syscall --a vmid.bits=4 --b vmid.bits=4").contains("set the same"));
        let whole = |line: &str| format!("{:#}", Arm::of(&args(line)).unwrap_err());
        assert!(
            whole("syscall --b image=/nowhere/odometer.bin").contains("odometer.bin: can't be read; give")
        );
        assert!(whole("syscall --b image=Cargo.toml").contains("Cargo.toml: is no image of Odometer"));
    }
}
