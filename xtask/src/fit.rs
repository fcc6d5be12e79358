//! Writing the bundle: a FIT (flattened image tree, as in the Flat Image Tree specification) with external data.
//!
//! `/images` has each kernel, ramdisk and device tree once, whoever uses it; `/configurations/<vm>` names
//! them and says how the VM is made (`odometer,vcpus` and so on). The data lie behind the tree, at
//! `data-offset` from the tree's end rounded up to 4, and begin at multiples of 4 KiB of the file: loaders put it at the
//! beginning of a page, and a VM can share what begins with a page (the hypervisor copies the rest). The same scenario gives
//! the same bytes.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use vm_fdt::FdtWriter;

use crate::scenario::kernel::Format;
use crate::scenario::{Scenario, Vm};

/// Each image's data begin at a multiple of this.
const ALIGNMENT: usize = 4096;

/// A written bundle.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// SHA-256 of the bytes, in hexadecimal.
    pub hash: String,
}

impl Bundle {
    /// Writes the bundle to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        crate::paths::write_whole(path, &self.bytes)
            .with_context(|| format!("writing the bundle {}", path.display()))
    }
}

/// The first digits of a hash: enough to tell bundles apart in a table.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// A kernel, with its load and entry address where it doesn't say itself.
    Kernel {
        load: Option<u64>,
        entry: Option<u64>,
    },
    Ramdisk,
    DeviceTree,
    Disk,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel { .. } => "kernel",
            Self::Ramdisk => "ramdisk",
            Self::DeviceTree => "fdt",
            Self::Disk => "disk",
        }
    }
}

/// The images, each once, and their data.
#[derive(Default)]
struct Images<'a> {
    known: HashMap<(Kind, [u8; 32]), usize>,
    list: Vec<Image<'a>>,
}

struct Image<'a> {
    name: String,
    kind: Kind,
    bytes: &'a [u8],
    digest: [u8; 32],
    offset: usize,
}

impl<'a> Images<'a> {
    /// The name of the image with these bytes, which is new or known.
    fn add(&mut self, kind: Kind, bytes: &'a [u8], digests: &mut Digests) -> String {
        let digest = digests.of(bytes);
        let index = *self.known.entry((kind, digest)).or_insert_with(|| {
            let number = self.list.iter().filter(|image| image.kind.name() == kind.name()).count() + 1;
            let offset = self.list.last().map_or(0, |last| last.offset + last.bytes.len());
            self.list.push(Image {
                name: format!("{}-{number}", kind.name()),
                kind,
                bytes,
                digest,
                offset: offset.next_multiple_of(ALIGNMENT),
            });
            self.list.len() - 1
        });
        self.list[index].name.clone()
    }
}

/// Digests by the address of the bytes, so that a kernel that many VMs share is hashed once.
#[derive(Default)]
struct Digests(HashMap<(usize, usize), [u8; 32]>);

impl Digests {
    fn of(&mut self, bytes: &[u8]) -> [u8; 32] {
        *self.0.entry((bytes.as_ptr().addr(), bytes.len())).or_insert_with(|| Sha256::digest(bytes).into())
    }
}

/// Writes the bundle of a (checked) scenario.
///
/// # Errors
/// More data than offsets of 32 bits reach.
pub fn write(scenario: &Scenario) -> Result<Bundle> {
    let mut digests = Digests::default();
    let mut images = Images::default();
    let configurations: Vec<Configuration<'_>> =
        scenario.vms.iter().map(|vm| Configuration::new(vm, &mut images, &mut digests)).collect();
    let end = images.list.last().map_or(0, |last| last.offset + last.bytes.len());
    ensure!(
        end < i32::MAX as usize,
        "the images are {} MiB together; a bundle holds less than 2 GiB",
        end >> 20
    );

    let written = |images: &Images<'_>| -> Result<Vec<u8>> {
        let mut bytes = tree(images, &configurations).context("writing the bundle's device tree")?;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(bytes)
    };
    // Offsets count from the tree's end, and don't change its length: it is known once the tree has been written.
    let base = written(&images)?.len();
    let gap = base.next_multiple_of(ALIGNMENT) - base;
    for image in &mut images.list {
        image.offset += gap;
    }
    let mut bytes = written(&images)?;
    for image in &images.list {
        bytes.resize(base + image.offset, 0);
        bytes.extend_from_slice(image.bytes);
    }
    let hash = hexadecimal(&Sha256::digest(&bytes));
    Ok(Bundle { bytes, hash })
}

/// One VM entry and the names of its images.
struct Configuration<'a> {
    vm: &'a Vm,
    kernel: String,
    ramdisk: Option<String>,
    device_tree: Option<String>,
    disk: Option<String>,
}

impl<'a> Configuration<'a> {
    fn new(vm: &'a Vm, images: &mut Images<'a>, digests: &mut Digests) -> Self {
        let kind = match vm.kernel.format {
            Format::Image(_) => Kind::Kernel { load: None, entry: None },
            Format::Elf { load, entry } => Kind::Kernel { load: Some(load), entry: Some(entry) },
            Format::Raw => Kind::Kernel { load: vm.load, entry: vm.entry },
        };
        Self {
            vm,
            kernel: images.add(kind, &vm.kernel.bytes, digests),
            ramdisk: vm.ramdisk.as_ref().map(|bytes| images.add(Kind::Ramdisk, bytes, digests)),
            device_tree: vm.device_tree.as_ref().map(|bytes| images.add(Kind::DeviceTree, bytes, digests)),
            disk: vm.disk.as_ref().map(|disk| images.add(Kind::Disk, &disk.image, digests)),
        }
    }
}

/// The tree without the data.
fn tree(images: &Images<'_>, configurations: &[Configuration<'_>]) -> Result<Vec<u8>, vm_fdt::Error> {
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_string("description", "Odometer guests")?;
    // Always the same, so that the bundle's hash tells whether its content changed.
    fdt.property_u32("timestamp", 0)?;
    fdt.property_u32("#address-cells", 2)?;

    let node = fdt.begin_node("images")?;
    for image in &images.list {
        write_image(&mut fdt, image)?;
    }
    fdt.end_node(node)?;

    let node = fdt.begin_node("configurations")?;
    if let Some(first) = configurations.first() {
        fdt.property_string("default", &first.vm.name)?;
    }
    for configuration in configurations {
        write_configuration(&mut fdt, configuration)?;
    }
    fdt.end_node(node)?;
    fdt.end_node(root)?;
    fdt.finish()
}

fn write_image(fdt: &mut FdtWriter, image: &Image<'_>) -> Result<(), vm_fdt::Error> {
    let node = fdt.begin_node(&image.name)?;
    fdt.property_string("description", &image.name)?;
    let kind = match image.kind {
        Kind::DeviceTree => "flat_dt",
        Kind::Disk => "filesystem",
        other => other.name(),
    };
    fdt.property_string("type", kind)?;
    fdt.property_string("arch", "arm64")?;
    if image.kind != Kind::DeviceTree {
        fdt.property_string("os", "linux")?;
    }
    fdt.property_string("compression", "none")?;
    if let Kind::Kernel { load, entry } = image.kind {
        load.map_or(Ok(()), |load| fdt.property_u64("load", load))?;
        entry.map_or(Ok(()), |entry| fdt.property_u64("entry", entry))?;
    }
    fdt.property_u32("data-size", image.bytes.len() as u32)?;
    fdt.property_u32("data-offset", image.offset as u32)?;
    let hash = fdt.begin_node("hash-1")?;
    fdt.property("value", &image.digest)?;
    fdt.property_string("algo", "sha256")?;
    fdt.end_node(hash)?;
    fdt.end_node(node)
}

fn write_configuration(fdt: &mut FdtWriter, configuration: &Configuration<'_>) -> Result<(), vm_fdt::Error> {
    let vm = configuration.vm;
    let node = fdt.begin_node(&vm.name)?;
    fdt.property_string("description", &vm.name)?;
    fdt.property_string("kernel", &configuration.kernel)?;
    if let Some(ramdisk) = &configuration.ramdisk {
        fdt.property_string("ramdisk", ramdisk)?;
    }
    if let Some(device_tree) = &configuration.device_tree {
        fdt.property_string("fdt", device_tree)?;
    }
    fdt.property_u32("odometer,vcpus", vm.vcpus)?;
    fdt.property_u64("odometer,memory", vm.memory)?;
    fdt.property_u32("odometer,count", vm.count)?;
    if !vm.pin.is_empty() {
        fdt.property_array_u32("odometer,pin", &vm.pin)?;
    }
    if vm.pinned_vmid {
        fdt.property_string("odometer,vmid", "pinned")?;
    }
    if let (Some(name), Some(disk)) = (&configuration.disk, &vm.disk) {
        fdt.property_string("odometer,disk", name)?;
        fdt.property_string("odometer,disk-access", if disk.read_only { "read-only" } else { "private" })?;
    }
    if vm.console {
        fdt.property_null("odometer,console")?;
    }
    if vm.net {
        fdt.property_null("odometer,net")?;
    }
    if !vm.bootargs.is_empty() {
        fdt.property_string("bootargs", &vm.bootargs)?;
    }
    fdt.end_node(node)
}

/// Bytes as hexadecimal digits.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
