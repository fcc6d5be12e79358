//! A configuration of a bundle: one VM, or several alike.

use core::fmt::Write;

use arrayvec::{ArrayString, ArrayVec};

use super::Image;
use crate::device::virtio::{DeviceSet, Disk};
use crate::ids::{MAX_CPUS, MAX_VCPUS, MAX_VMS};
use crate::memory::address::PAGE_SIZE;
use crate::platform::fdt::{Blob, Fault, Node, Value};
use crate::vm::layout;

/// Largest device tree of a guest in bytes: what the Linux boot protocol allows.
const MAX_GUEST_DTB: usize = 2 << 20;

/// Longest name of a configuration, so that a VM's name with its number is short enough to be a prefix.
const MAX_NAME: usize = 31;
/// Longest command line of a guest: what Linux takes on arm64.
const MAX_BOOTARGS: usize = 2047;

/// A VM's name.
pub type VmName = ArrayString<36>;

/// What a VM is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmConfig<'a> {
    /// The configuration's name; see [`VmConfig::vm_name`].
    pub name: &'a str,
    /// How many VMs alike are made: at least 1.
    pub count: u32,
    /// vCPUs of each: 1 to [`MAX_VCPUS`].
    pub vcpus: u32,
    /// Bytes of RAM of each: whole pages.
    pub memory: u64,
    /// The physical CPU that each of the first vCPUs stays on; those beyond go wherever there is room. That the machine has
    /// these CPUs isn't checked here.
    pub pin: ArrayVec<u16, MAX_VCPUS>,
    /// Whether the VMID of each stays its own.
    pub pinned_vmid: bool,
    /// The command line.
    pub bootargs: &'a str,
    /// The kernel.
    pub kernel: Image<'a>,
    /// The initial RAM disk.
    pub ramdisk: Option<&'a [u8]>,
    /// A device tree to use in place of the generated one.
    pub fdt: Option<&'a [u8]>,
    /// A disk's content, and whether it is read-only.
    pub disk: Option<(&'a [u8], bool)>,
    /// Whether each has a virtio-console.
    pub console: bool,
    /// Whether each has a network card.
    pub net: bool,
}

impl VmConfig<'static> {
    /// The virtio devices of each.
    pub fn devices(&self) -> DeviceSet {
        let disk = self.disk.map(|(image, read_only)| Disk { image, read_only });
        DeviceSet { console: self.console, disk, net: self.net }
    }
}

impl<'a> VmConfig<'a> {
    /// The name of VM number `index` of this configuration: numbered only where there are several.
    pub fn vm_name(&self, index: u32) -> VmName {
        vm_name(self.name, self.count, index)
    }

    /// Reads and checks the configuration `node`.
    pub(super) fn read(node: Node<'a>, images: Node<'a>, data: &'a [u8]) -> Result<VmConfig<'a>, Fault<'a>> {
        let name = node.name();
        if name.len() > MAX_NAME {
            return Err(Fault::new(node, "", Value::Text(name), "a name has at most 31 characters"));
        }
        // It goes into the report's lines as it is.
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".,_+-".contains(&byte)) {
            let remedy = "a name has letters, digits and any of .,_+- only";
            return Err(Fault::new(node, "", Value::Text(name), remedy));
        }
        let number = |property, default: u32, most: usize, remedy| {
            let value = node.u32(property)?.unwrap_or(default);
            match value >= 1 && value as usize <= most {
                true => Ok(value),
                false => Err(Fault::new(node, property, Value::Number(value.into()), remedy)),
            }
        };
        let vcpus = number("odometer,vcpus", 1, MAX_VCPUS, "1 to 8 vCPUs are supported")?;
        let count = number("odometer,count", 1, MAX_VMS, "1 to 256 VMs are supported")?;
        let kernel = Image::named(node, "kernel", "kernel", images, data)?.ok_or(Fault::new(
            node,
            "kernel",
            Value::Missing,
            "the name of an image of type kernel is needed",
        ))?;
        let ramdisk = Image::named(node, "ramdisk", "ramdisk", images, data)?.map(|image| image.data);
        let fdt = Image::named(node, "fdt", "flat_dt", images, data)?.map(|image| image.data);
        if let Some(fdt) = fdt.filter(|fdt| fdt.len() > MAX_GUEST_DTB || Blob::new(fdt).is_err()) {
            let remedy = "the image must be a device tree blob of at most 2 MiB, as dtc writes it";
            return Err(Fault::new(node, "fdt", Value::Bytes(fdt.len()), remedy));
        }
        let bootargs = node.text("bootargs")?.unwrap_or("");
        if bootargs.len() > MAX_BOOTARGS {
            let remedy = "a guest's command line has at most 2047 bytes";
            return Err(Fault::new(node, "bootargs", Value::Bytes(bootargs.len()), remedy));
        }
        let memory = memory(node)?;
        Ok(VmConfig {
            name,
            count,
            vcpus,
            memory,
            pin: pin(node, vcpus)?,
            pinned_vmid: pinned_vmid(node)?,
            bootargs,
            kernel,
            ramdisk,
            fdt,
            disk: disk(node, images, data)?,
            console: node.property("odometer,console").is_some(),
            net: node.property("odometer,net").is_some(),
        })
    }
}

/// The disk's image, and whether it is read-only.
fn disk<'a>(node: Node<'a>, images: Node<'a>, data: &'a [u8]) -> Result<Option<(&'a [u8], bool)>, Fault<'a>> {
    const ACCESS: &str = "odometer,disk-access";
    let image = Image::named(node, "odometer,disk", "filesystem", images, data)?;
    let access = node.text(ACCESS)?;
    let Some(image) = image else {
        return match access {
            None => Ok(None),
            Some(access) => Err(Fault::new(
                node,
                ACCESS,
                Value::Text(access),
                "there is no disk: odometer,disk names its image",
            )),
        };
    };
    let read_only = match access {
        None | Some("private") => false,
        Some("read-only") => true,
        Some(other) => {
            let remedy = "\"private\" (each VM sees what it has written) or \"read-only\" is needed";
            return Err(Fault::new(node, ACCESS, Value::Text(other), remedy));
        }
    };
    Ok(Some((image.data, read_only)))
}

/// RAM of each VM in bytes.
fn memory<'a>(node: Node<'a>) -> Result<u64, Fault<'a>> {
    const PROPERTY: &str = "odometer,memory";
    let Some(memory) = node.u64(PROPERTY)? else {
        return Err(Fault::new(node, PROPERTY, Value::Missing, "the VM's RAM in bytes is needed"));
    };
    let fault = |remedy| Err(Fault::new(node, PROPERTY, Value::Number(memory), remedy));
    if !(layout::RAM_LEAST..=layout::RAM_MOST).contains(&memory) {
        return fault("from 1 MiB to 255 GiB, in bytes, is needed");
    }
    if !memory.is_multiple_of(PAGE_SIZE) {
        return fault("a multiple of 4096 bytes is needed");
    }
    Ok(memory)
}

/// Whether the VMID is pinned.
fn pinned_vmid<'a>(node: Node<'a>) -> Result<bool, Fault<'a>> {
    const PROPERTY: &str = "odometer,vmid";
    match node.text(PROPERTY)? {
        None => Ok(false),
        Some("pinned") => Ok(true),
        Some(other) => {
            let remedy = "\"pinned\" is needed, or no such property";
            Err(Fault::new(node, PROPERTY, Value::Text(other), remedy))
        }
    }
}

/// The physical CPUs of the first vCPUs.
fn pin<'a>(node: Node<'a>, vcpus: u32) -> Result<ArrayVec<u16, MAX_VCPUS>, Fault<'a>> {
    const PROPERTY: &str = "odometer,pin";
    let cells = node.cells(PROPERTY)?;
    let mut pin = ArrayVec::new();
    if cells.len() > vcpus as usize {
        let remedy = "a physical CPU for each vCPU, from the first one on, and no more (4 bytes each)";
        return Err(Fault::new(node, PROPERTY, Value::Bytes(cells.len() * 4), remedy));
    }
    for cpu in cells.iter() {
        let fault = Fault::new(node, PROPERTY, Value::Number(cpu.into()), "CPUs are numbered from 0 to 127");
        let valid = u16::try_from(cpu).ok().filter(|cpu| usize::from(*cpu) < MAX_CPUS).ok_or(fault)?;
        // No more than vCPUs, which fit.
        pin.try_push(valid).map_err(|_| fault)?;
    }
    Ok(pin)
}

/// The name of VM `index` of the `count` VMs of configuration `name`.
fn vm_name(name: &str, count: u32, index: u32) -> VmName {
    let mut text = VmName::new();
    // The name has at most 31 characters and the number three: an error can't be.
    let _ = match count {
        1 => write!(text, "{name}"),
        _ => write!(text, "{name}-{index}"),
    };
    text
}

/// Whether two configurations, each a name and a count, make VMs of the same name.
pub(super) fn names_collide(a: (&str, u32), b: (&str, u32)) -> bool {
    /// The number that `text` ends with behind `name` and a dash, as [`vm_name`] writes it.
    fn number(name: &str, text: &str) -> Option<u32> {
        let digits = text.strip_prefix(name)?.strip_prefix('-')?;
        let canonical = digits == "0" || !digits.starts_with(['0', '+']);
        digits.parse().ok().filter(|_| canonical)
    }
    match (a, b) {
        ((a, 1), (b, 1)) => a == b,
        ((one, 1), (many, count)) | ((many, count), (one, 1)) => {
            number(many, one).is_some_and(|number| number < count)
        }
        // "x-1" and "x" can't meet: "x-1-0" has two numbers, which "x" never writes.
        ((a, _), (b, _)) => a == b,
    }
}
