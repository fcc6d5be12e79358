//! The device tree that a guest gets: the machine of [`super::layout`], as QEMU's `virt` describes it.
//!
//! Only what exists is in it, so that a guest's probe finds everything. Bindings: Devicetree specification
//! 0.4; Linux' `arm/cpus`, `arm/psci`, `arm,gic-v3`, `arm,arch_timer`, `arm,pl011`, `arm,pl031`,
//! `virtio/mmio`. The same input gives the same bytes: a run can be repeated.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use vm_fdt::{Error, FdtWriter};

use super::layout;
use crate::ids::{IntId, MAX_VCPUS};
use crate::memory::address::Ipa;

/// Most bytes of a tree that [`build`] makes, for placing it before it is built.
pub const MAX_SIZE: usize = 32 << 10;

/// Says what stands in a PrimeCell's identification registers, so that a driver need not read them (`arm,primecell`).
const PERIPHERAL_ID: &str = "arm,primecell-periphid";

/// What differs between guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceTreeSpec<'a> {
    /// vCPUs: 1 to [`MAX_VCPUS`].
    pub vcpus: u32,
    /// RAM in bytes.
    pub memory: u64,
    /// The command line; may be empty.
    pub bootargs: &'a str,
    /// The ramdisk and its length in bytes.
    pub ramdisk: Option<(Ipa, u64)>,
    /// virtio-mmio windows: 0 to [`layout::VIRTIO_MOST`].
    pub virtio: u32,
}

/// Why a tree can't be built.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceTreeError {
    /// A number of vCPUs that there can't be.
    Vcpus(u32),
    /// More virtio-mmio windows than there is room for.
    Virtio(u32),
    /// RAM or the ramdisk reaches beyond 64 bits, or the ramdisk isn't in RAM.
    Memory,
    /// The tree would have this many bytes, more than [`MAX_SIZE`]: the command line is too long.
    TooLarge(usize),
    /// A value that the format can't hold, such as a command line with a NUL.
    Write(Error),
}

impl From<Error> for DeviceTreeError {
    fn from(error: Error) -> DeviceTreeError {
        DeviceTreeError::Write(error)
    }
}

impl fmt::Display for DeviceTreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("guest's device tree: ")?;
        match self {
            DeviceTreeError::Vcpus(vcpus) => write!(f, "{vcpus} vCPUs: 1 to {MAX_VCPUS} are supported"),
            DeviceTreeError::Virtio(count) => {
                write!(f, "{count} virtio windows: at most {} are supported", layout::VIRTIO_MOST)
            }
            DeviceTreeError::Memory => write!(f, "the ramdisk isn't in RAM, or RAM reaches beyond 64 bits"),
            DeviceTreeError::TooLarge(size) => {
                write!(f, "{size} bytes, more than {MAX_SIZE}: shorten the command line")
            }
            DeviceTreeError::Write(error) => write!(f, "{error}: check the command line for odd characters"),
        }
    }
}

impl core::error::Error for DeviceTreeError {}

/// What writing a part of the tree comes to.
type Written = Result<(), Error>;

const PHANDLE_GIC: u32 = 1;
const PHANDLE_CLOCK: u32 = 2;

/// Interrupt flags (Linux' `interrupt-controller/irq.h`).
const EDGE_RISING: u32 = 1;
const LEVEL_HIGH: u32 = 4;

/// Builds the tree.
///
/// # Errors
/// A number that there can't be, or a command line that the format can't hold.
pub fn build(spec: &DeviceTreeSpec<'_>) -> Result<Vec<u8>, DeviceTreeError> {
    check(spec)?;
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_u32("interrupt-parent", PHANDLE_GIC)?;
    fdt.property_string("model", "odometer,guest")?;
    fdt.property_string("compatible", "linux,dummy-virt")?;
    // Of all devices: else Linux warns where the CPU's cache lines are longer than it aligns buffers to (A64FX: 256 bytes).
    fdt.property_null("dma-coherent")?;
    chosen(&mut fdt, spec)?;
    memory(&mut fdt, spec)?;
    cpus(&mut fdt, spec)?;
    psci(&mut fdt)?;
    timer(&mut fdt)?;
    gic(&mut fdt, spec)?;
    clock(&mut fdt)?;
    uart(&mut fdt)?;
    rtc(&mut fdt)?;
    for index in 0..spec.virtio {
        virtio(&mut fdt, index)?;
    }
    fdt.end_node(root)?;
    let blob = fdt.finish()?;
    if blob.len() > MAX_SIZE {
        return Err(DeviceTreeError::TooLarge(blob.len()));
    }
    Ok(blob)
}

fn check(spec: &DeviceTreeSpec<'_>) -> Result<(), DeviceTreeError> {
    if spec.vcpus == 0 || spec.vcpus as usize > MAX_VCPUS {
        return Err(DeviceTreeError::Vcpus(spec.vcpus));
    }
    if spec.virtio > layout::VIRTIO_MOST {
        return Err(DeviceTreeError::Virtio(spec.virtio));
    }
    let ram_end = layout::RAM_BASE.checked_add(spec.memory).ok_or(DeviceTreeError::Memory)?;
    if let Some((start, size)) = spec.ramdisk {
        let inside = start >= layout::RAM_BASE && start.checked_add(size).is_some_and(|end| end <= ram_end);
        if !inside {
            return Err(DeviceTreeError::Memory);
        }
    }
    Ok(())
}

fn chosen(fdt: &mut FdtWriter, spec: &DeviceTreeSpec<'_>) -> Written {
    let uart = device_name("pl011", layout::UART_BASE);
    let path = format!("/{uart}");
    let node = fdt.begin_node("aliases")?;
    fdt.property_string("serial0", &path)?;
    fdt.end_node(node)?;

    let node = fdt.begin_node("chosen")?;
    fdt.property_string("stdout-path", &path)?;
    if !spec.bootargs.is_empty() {
        fdt.property_string("bootargs", spec.bootargs)?;
    }
    if let Some((start, size)) = spec.ramdisk {
        fdt.property_u64("linux,initrd-start", start.0)?;
        fdt.property_u64("linux,initrd-end", start.0.saturating_add(size))?;
    }
    fdt.end_node(node)
}

fn memory(fdt: &mut FdtWriter, spec: &DeviceTreeSpec<'_>) -> Written {
    let node = fdt.begin_node(&device_name("memory", layout::RAM_BASE))?;
    fdt.property_string("device_type", "memory")?;
    fdt.property_array_u64("reg", &[layout::RAM_BASE.0, spec.memory])?;
    fdt.end_node(node)
}

fn cpus(fdt: &mut FdtWriter, spec: &DeviceTreeSpec<'_>) -> Written {
    let node = fdt.begin_node("cpus")?;
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    for index in 0..spec.vcpus {
        let cpu = fdt.begin_node(&format!("cpu@{index:x}"))?;
        fdt.property_string("device_type", "cpu")?;
        fdt.property_string("compatible", "arm,armv8")?;
        fdt.property_string("enable-method", "psci")?;
        // The affinity of MPIDR_EL1: Aff0 is the vCPU's index.
        fdt.property_u32("reg", index)?;
        fdt.end_node(cpu)?;
    }
    fdt.end_node(node)
}

fn psci(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node("psci")?;
    strings(fdt, "compatible", &["arm,psci-1.0", "arm,psci-0.2"])?;
    fdt.property_string("method", "hvc")?;
    fdt.end_node(node)
}

fn timer(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node("timer")?;
    fdt.property_string("compatible", "arm,armv8-timer")?;
    // The binding's order; a guest counts on the places, so the two that it can't use are there too.
    let order = [
        layout::TIMER_SECURE_INTID,
        layout::TIMER_PHYS_INTID,
        layout::TIMER_VIRT_INTID,
        layout::TIMER_HYP_INTID,
    ];
    let cells: Vec<u32> = order.into_iter().flat_map(|intid| interrupt(intid, LEVEL_HIGH)).collect();
    fdt.property_array_u32("interrupts", &cells)?;
    fdt.property_null("always-on")?;
    fdt.end_node(node)
}

fn gic(fdt: &mut FdtWriter, spec: &DeviceTreeSpec<'_>) -> Written {
    let node = fdt.begin_node(&device_name("intc", layout::GICD_BASE))?;
    fdt.property_string("compatible", "arm,gic-v3")?;
    fdt.property_phandle(PHANDLE_GIC)?;
    fdt.property_null("interrupt-controller")?;
    fdt.property_u32("#interrupt-cells", 3)?;
    fdt.property_u32("#address-cells", 0)?;
    fdt.property_u32("#redistributor-regions", 1)?;
    let redistributors = layout::GICR_STRIDE * u64::from(spec.vcpus);
    let regions = [layout::GICD_BASE.0, layout::GICD_SIZE, layout::GICR_BASE.0, redistributors];
    fdt.property_array_u64("reg", &regions)?;
    fdt.end_node(node)
}

fn clock(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node("apb-pclk")?;
    fdt.property_string("compatible", "fixed-clock")?;
    fdt.property_phandle(PHANDLE_CLOCK)?;
    fdt.property_u32("#clock-cells", 0)?;
    fdt.property_u32("clock-frequency", layout::UART_CLOCK_HZ)?;
    fdt.property_string("clock-output-names", "clk24mhz")?;
    fdt.end_node(node)
}

fn uart(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node(&device_name("pl011", layout::UART_BASE))?;
    strings(fdt, "compatible", &["arm,pl011", "arm,primecell"])?;
    fdt.property_u32(PERIPHERAL_ID, crate::device::pl011::PERIPHERAL_ID)?;
    fdt.property_array_u64("reg", &[layout::UART_BASE.0, layout::UART_SIZE])?;
    fdt.property_array_u32("interrupts", &interrupt(layout::UART_INTID, LEVEL_HIGH))?;
    fdt.property_array_u32("clocks", &[PHANDLE_CLOCK, PHANDLE_CLOCK])?;
    strings(fdt, "clock-names", &["uartclk", "apb_pclk"])?;
    fdt.end_node(node)
}

fn rtc(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node(&device_name("pl031", layout::RTC_BASE))?;
    strings(fdt, "compatible", &["arm,pl031", "arm,primecell"])?;
    fdt.property_u32(PERIPHERAL_ID, crate::device::pl031::PERIPHERAL_ID)?;
    fdt.property_array_u64("reg", &[layout::RTC_BASE.0, layout::RTC_SIZE])?;
    fdt.property_array_u32("interrupts", &interrupt(layout::RTC_INTID, LEVEL_HIGH))?;
    fdt.property_u32("clocks", PHANDLE_CLOCK)?;
    fdt.property_string("clock-names", "apb_pclk")?;
    fdt.end_node(node)
}

fn virtio(fdt: &mut FdtWriter, index: u32) -> Written {
    let base = layout::VIRTIO_BASE.0 + layout::VIRTIO_STRIDE * u64::from(index);
    let node = fdt.begin_node(&device_name("virtio_mmio", Ipa(base)))?;
    fdt.property_string("compatible", "virtio,mmio")?;
    fdt.property_array_u64("reg", &[base, layout::VIRTIO_STRIDE])?;
    fdt.property_array_u32("interrupts", &interrupt(layout::virtio_intid(index), EDGE_RISING))?;
    fdt.property_null("dma-coherent")?;
    fdt.end_node(node)
}

/// `name` with the unit address `base`.
fn device_name(name: &str, base: Ipa) -> alloc::string::String {
    format!("{name}@{:x}", base.0)
}

/// The interrupt specifier of the binding `arm,gic-v3`: type, number within the type, flags.
fn interrupt(intid: IntId, flags: u32) -> [u32; 3] {
    match intid.is_private() {
        true => [1, intid.0.saturating_sub(16), flags],
        false => [0, intid.0.saturating_sub(32), flags],
    }
}

/// A property that is a list of texts.
fn strings(fdt: &mut FdtWriter, name: &str, texts: &[&str]) -> Written {
    let mut value = Vec::new();
    for text in texts {
        value.extend_from_slice(text.as_bytes());
        value.push(0);
    }
    fdt.property(name, &value)
}

#[cfg(test)]
#[path = "device_tree_tests.rs"]
mod tests;
