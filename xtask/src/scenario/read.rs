//! Reading the TOML text: unknown keys, wrong types, and where each key stands. Values are judged in `check`.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Lines, Problem, did_you_mean};
use super::{MAX_CPUS, MAX_VCPUS, MAX_VMS};

/// The keys of `[machine]`.
const MACHINE: &[&str] = &["cpus", "memory", "cpu", "gic-version", "threads", "deterministic", "qemu"];
/// The keys of a `[[vm]]`.
const VM: &[&str] = &[
    "name",
    "kernel",
    "initrd",
    "dtb",
    "vcpus",
    "memory",
    "count",
    "bootargs",
    "pin",
    "vmid",
    "load",
    "entry",
    "disk",
    "disk-access",
    "console",
    "net",
];
/// The tables of a scenario.
const TOP: &[&str] = &["machine", "options", "vm"];

/// A scenario as its file has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// `[machine]`
    #[serde(default)]
    pub machine: RawMachine,
    /// `[options]`
    #[serde(default)]
    pub options: toml::Table,
    /// `[[vm]]`
    #[serde(default)]
    pub vm: Vec<RawVm>,
}

/// `[machine]` as its file has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawMachine {
    /// Physical CPUs.
    pub cpus: Option<i64>,
    /// The machine's RAM.
    pub memory: Option<RawSize>,
    /// QEMU's CPU model.
    pub cpu: Option<String>,
    /// The interrupt controller's version.
    pub gic_version: Option<i64>,
    /// `single` or `multi`: the emulator's threads.
    pub threads: Option<String>,
    /// Whether instructions drive the clock.
    pub deterministic: Option<bool>,
    /// Arguments for QEMU.
    pub qemu: Option<Vec<String>>,
}

/// A `[[vm]]` as its file has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawVm {
    /// The VM's name.
    pub name: Option<String>,
    /// The kernel's file, or `guest`.
    pub kernel: Option<String>,
    /// The ramdisk's file.
    pub initrd: Option<String>,
    /// The device tree's file.
    pub dtb: Option<String>,
    /// Virtual CPUs.
    pub vcpus: Option<i64>,
    /// RAM.
    pub memory: Option<RawSize>,
    /// How many alike.
    pub count: Option<i64>,
    /// The kernel's command line.
    pub bootargs: Option<String>,
    /// The physical CPU of each vCPU.
    pub pin: Option<Vec<i64>>,
    /// `pinned`: its VMID never changes.
    pub vmid: Option<String>,
    /// Where to load a raw binary.
    pub load: Option<i64>,
    /// Where to enter a raw binary.
    pub entry: Option<i64>,
    /// The file of a disk's content.
    pub disk: Option<String>,
    /// `private` or `read-only`.
    pub disk_access: Option<String>,
    /// A virtio-console.
    pub console: Option<bool>,
    /// A network card.
    pub net: Option<bool>,
}

/// A size: a string with a unit, or bytes.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a size such as \"96M\"")]
pub enum RawSize {
    /// Bytes.
    Bytes(i64),
    /// With a unit.
    Text(String),
}

impl std::fmt::Display for RawSize {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(formatter),
            Self::Text(text) => write!(formatter, "\"{text}\""),
        }
    }
}

/// What reading a file gives: the values or faults, and where the keys are.
pub struct Read {
    /// The values; `None` when there are faults.
    pub raw: Option<Raw>,
    /// The line of each key.
    pub lines: Lines,
    /// The faults.
    pub problems: Vec<Problem>,
}

/// Reads the text of a scenario file.
pub fn read(text: &str) -> Read {
    let mut lines = Lines::new();
    let mut problems = Vec::new();
    match DeTable::parse(text) {
        Err(error) => problems.push(syntax(text, &error, &mut lines)),
        Ok(table) => walk(text, table.get_ref(), &mut lines, &mut problems),
    }
    if !problems.is_empty() {
        return Read { raw: None, lines, problems };
    }
    match toml::from_str(text) {
        Ok(raw) => Read { raw: Some(raw), lines, problems },
        Err(error) => {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            // The last key on the line where the value is; `machine` sorts before `machine.cpus`.
            let key =
                lines.iter().rfind(|(_, at)| **at == line).map_or(String::new(), |(key, _)| key.clone());
            let value = error.span().and_then(|span| text.get(span)).unwrap_or_default().to_string();
            let is_number = value.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit());
            // A number that is no type of TOML's: it has more than 63 bits.
            let what = match value.parse::<i64>().is_err() && is_number && wants_number(&key) {
                true => format!("{value} is out of range"),
                false => format!("{value} has the wrong type: {}", error.message().trim()),
            };
            let remedy = format!("{} is needed", expected(&key));
            problems.push(Problem::new(key, what, remedy));
            Read { raw: None, lines, problems }
        }
    }
}

/// The last word of a key.
fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Whether a key's value is a number.
fn wants_number(key: &str) -> bool {
    matches!(last(key), "cpus" | "gic-version" | "vcpus" | "count" | "memory" | "load" | "entry" | "pin")
}

/// What a key wants, in words.
fn expected(key: &str) -> String {
    match last(key) {
        "cpus" => format!("a number of CPUs, 1 to {MAX_CPUS},"),
        "vcpus" => format!("a number of vCPUs, 1 to {MAX_VCPUS},"),
        "count" => format!("a number of VMs, 1 to {MAX_VMS},"),
        "gic-version" => "3".into(),
        "memory" => "a size such as \"96M\"".into(),
        "pin" => "a list of CPUs such as [0, 1]".into(),
        "load" | "entry" => "an address such as 0x40080000".into(),
        "qemu" => "a list of strings such as [\"-d\", \"int\"]".into(),
        "deterministic" | "console" | "net" => "true or false".into(),
        _ => "a text in quotes".into(),
    }
}

/// A fault that TOML itself finds.
fn syntax(text: &str, error: &toml::de::Error, lines: &mut Lines) -> Problem {
    lines.insert(String::new(), line_at(text, error.span().map_or(0, |span| span.start)));
    Problem::new("", format!("not TOML: {}", error.message().trim()), "see https://toml.io for the syntax")
}

/// Looks at each key: notes its line, and faults those that no one knows.
fn walk(text: &str, top: &DeTable<'_>, lines: &mut Lines, problems: &mut Vec<Problem>) {
    for (key, value) in top.iter() {
        let name = key.get_ref().as_ref();
        lines.insert(name.to_string(), line_at(text, key.span().start));
        match (name, value.get_ref()) {
            ("machine", DeValue::Table(table)) => {
                keys(text, "machine", table, Some(MACHINE), lines, problems)
            }
            ("options", DeValue::Table(table)) => keys(text, "options", table, None, lines, problems),
            ("vm", DeValue::Array(array)) => {
                for (index, value) in array.iter().enumerate() {
                    let path = format!("vm.{index}");
                    lines.insert(path.clone(), line_at(text, value.span().start));
                    if let DeValue::Table(table) = value.get_ref() {
                        keys(text, &path, table, Some(VM), lines, problems);
                    }
                }
            }
            ("machine" | "options", _) => {
                problems.push(Problem::new(name, "is not a table", format!("write [{name}]")));
            }
            ("vm", _) => {
                problems.push(Problem::new(name, "is not a list of tables", "write [[vm]] before each VM"))
            }
            _ => problems.push(unknown(name, name, TOP)),
        }
    }
}

/// Looks at the keys of one table. Without a list of known keys, tables below it are looked into, as dotted keys.
fn keys(
    text: &str,
    path: &str,
    table: &DeTable<'_>,
    known: Option<&[&str]>,
    lines: &mut Lines,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in table.iter() {
        let name = key.get_ref().as_ref();
        let full = format!("{path}.{name}");
        lines.insert(full.clone(), line_at(text, Spanned::span(key).start));
        match (known, value.get_ref()) {
            (Some(known), _) if !known.contains(&name) => problems.push(unknown(&full, name, known)),
            (None, DeValue::Table(inner)) => keys(text, &full, inner, None, lines, problems),
            _ => {}
        }
    }
}

/// A key that no one knows.
fn unknown(path: &str, name: &str, known: &[&str]) -> Problem {
    let remedy = match did_you_mean(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys known here are {}", known.join(", ")),
    };
    Problem::new(path, "this key is unknown", remedy)
}

/// The line, from 1, of a byte offset.
fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// `[options]` as pairs: tables are dotted keys, so that `vmid.bits = 4` and `"vmid.bits" = 4` mean the same.
pub fn options(table: &toml::Table) -> Vec<(String, toml::Value)> {
    let mut pairs = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                pairs.extend(
                    options(inner).into_iter().map(|(below, value)| (format!("{key}.{below}"), value)),
                );
            }
            _ => pairs.push((key.clone(), value.clone())),
        }
    }
    pairs
}
