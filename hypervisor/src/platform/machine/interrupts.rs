//! The interrupt controller, and which interrupts devices have at it (Devicetree specification 0.4, 2.4;
//! Linux' bindings `arm,gic-v3` and `arm,arch_timer`).

use arrayvec::ArrayVec;

use super::{GicV3, TimerInterrupts};
use crate::ids::IntId;
use crate::platform::fdt::{Cells, Fault, Node, Reg, Tree, Value};

/// Older interrupt controllers, so that their machines get a message that helps.
const GIC_V2: [&str; 7] = [
    "arm,gic-400",
    "arm,cortex-a15-gic",
    "arm,cortex-a9-gic",
    "arm,cortex-a7-gic",
    "arm,cortex-a5-gic",
    "arm,eb11mp-gic",
    "qcom,msm-qgic2",
];

/// The node of the machine's GICv3.
pub(super) fn gic_node(tree: Tree<'_>) -> Result<Node<'_>, Fault<'_>> {
    if let Some(node) = tree.compatible_with(&["arm,gic-v3"]).find(|node| node.is_enabled()) {
        return Ok(node);
    }
    let old = tree.compatible_with(&GIC_V2).next();
    match old {
        Some(node) => {
            let model = node.texts("compatible").next().unwrap_or("");
            let remedy = "a GICv2 can't be driven; a GICv3 or later is needed (QEMU: -M virt,gic-version=3)";
            Err(Fault::new(node, "compatible", Value::Text(model), remedy))
        }
        None => {
            let remedy = "a node compatible with \"arm,gic-v3\" is needed (QEMU: -M virt,gic-version=3)";
            Err(Fault::of("interrupt controller", "", Value::Missing, remedy))
        }
    }
}

/// The GICv3 that `node` describes.
pub(super) fn gic(node: Node<'_>) -> Result<GicV3, Fault<'_>> {
    /// Both frames of a distributor or redistributor are 64 KiB (IHI 0069, 12.8 and 12.10).
    const FRAME: u64 = 0x1_0000;
    let region = |index: usize, least: u64| -> Result<Reg, Fault<'_>> {
        let Some(reg) = node.reg(index)? else {
            let remedy = "regions of the distributor and of each of #redistributor-regions are needed";
            return Err(Fault::new(node, "reg", Value::Missing, remedy));
        };
        if reg.size < least || !reg.address.is_multiple_of(FRAME) {
            let remedy = "a distributor has 64 KiB, a redistributor region at least 128 KiB, 64 KiB aligned";
            return Err(Fault::new(node, "reg", Value::Hex(reg.address), remedy));
        }
        Ok(reg)
    };
    let dist = region(0, FRAME)?.into();
    let count = node.u32("#redistributor-regions")?.unwrap_or(1);
    let mut redist = ArrayVec::new();
    if count == 0 || count as usize > redist.capacity() {
        let remedy = "1 to 16 regions are supported";
        return Err(Fault::new(node, "#redistributor-regions", Value::Number(count.into()), remedy));
    }
    for index in 1..=count as usize {
        redist.push(region(index, 2 * FRAME)?.into());
    }
    let redist_stride = node.u64("redistributor-stride")?;
    if let Some(stride) = redist_stride.filter(|stride| *stride < 2 * FRAME || !stride.is_multiple_of(FRAME))
    {
        let remedy = "a multiple of 64 KiB, at least 128 KiB, is needed";
        return Err(Fault::new(node, "redistributor-stride", Value::Hex(stride), remedy));
    }
    let maintenance = match Interrupts::of(node, node)?.get(0)? {
        Some(intid) if intid.is_private() => intid,
        Some(intid) => {
            let remedy = "the maintenance interrupt must be a PPI";
            return Err(Fault::new(node, "interrupts", Value::Number(intid.0.into()), remedy));
        }
        None => {
            let remedy = "the maintenance interrupt is needed (QEMU: -M virt,virtualization=on)";
            return Err(Fault::new(node, "interrupts", Value::Missing, remedy));
        }
    };
    Ok(GicV3 { dist, redist, redist_stride, maintenance })
}

/// The architected timer.
pub(super) fn timer<'a>(tree: Tree<'a>, gic: Node<'a>) -> Result<TimerInterrupts, Fault<'a>> {
    let Some(node) = tree.compatible_with(&["arm,armv8-timer"]).find(|node| node.is_enabled()) else {
        let remedy = "a node compatible with \"arm,armv8-timer\" is needed";
        return Err(Fault::of("timer", "", Value::Missing, remedy));
    };
    // Without names the order is: secure physical, physical, virtual, EL2 physical, EL2 virtual.
    let interrupts = Interrupts::of(node, gic)?;
    let ppi = |name: &str, position: usize| {
        let index = match node.has("interrupt-names") {
            true => node.texts("interrupt-names").position(|text| text == name),
            false => Some(position),
        };
        let intid = index.map_or(Ok(None), |index| interrupts.get(index))?;
        intid.filter(|intid| intid.is_private()).ok_or_else(|| {
            let remedy = "PPIs of the physical, the virtual and the EL2 physical timer are needed";
            Fault::new(node, "interrupts", Value::Missing, remedy)
        })
    };
    let frequency = node.u32("clock-frequency")?;
    if frequency == Some(0) {
        let remedy = "a frequency in Hz is needed, or none at all to take CNTFRQ_EL0";
        return Err(Fault::new(node, "clock-frequency", Value::Number(0), remedy));
    }
    Ok(TimerInterrupts { phys: ppi("phys", 1)?, virt: ppi("virt", 2)?, hyp: ppi("hyp-phys", 3)?, frequency })
}

/// The interrupts that a device has at the GICv3.
pub(super) struct Interrupts<'a> {
    node: Node<'a>,
    property: &'static str,
    cells: Cells<'a>,
    /// Cells of an entry.
    stride: usize,
    /// With `interrupts-extended`: the GIC's phandle, which each entry begins with.
    phandle: Option<u32>,
}

impl<'a> Interrupts<'a> {
    /// Those of `node`; none where it has them at another controller than `gic`.
    ///
    /// # Errors
    /// The GIC's interrupts have a number of cells that there can't be, or the property isn't whole cells.
    pub(super) fn of(node: Node<'a>, gic: Node<'a>) -> Result<Interrupts<'a>, Fault<'a>> {
        let cells = gic.u32("#interrupt-cells")?.unwrap_or(0);
        if !(3..=4).contains(&cells) {
            let remedy = "a GICv3's interrupts have 3 cells, or 4 with CPU partitions";
            return Err(Fault::new(gic, "#interrupt-cells", Value::Number(cells.into()), remedy));
        }
        let stride = cells as usize;
        if node.has("interrupts-extended") {
            let property = "interrupts-extended";
            let phandle = gic.phandle();
            return Ok(Interrupts {
                node,
                property,
                cells: node.cells(property)?,
                stride: stride + 1,
                phandle,
            });
        }
        let property = if node == gic || interrupt_parent(node) == gic.phandle() { "interrupts" } else { "" };
        Ok(Interrupts { node, property, cells: node.cells(property)?, stride, phandle: None })
    }

    /// Interrupt `index`; `None` where there is no such interrupt.
    ///
    /// # Errors
    /// It is one that a GICv3 can't have.
    pub(super) fn get(&self, index: usize) -> Result<Option<IntId>, Fault<'a>> {
        let first = index.saturating_mul(self.stride);
        let cell = |offset: usize| self.cells.get(first.saturating_add(offset));
        // Behind an entry of another controller nothing can be found by counting.
        let counted = self.phandle.is_none()
            || (0..=index).all(|entry| self.cells.get(entry.saturating_mul(self.stride)) == self.phandle);
        let skip = usize::from(self.phandle.is_some());
        let (true, Some(kind), Some(number)) = (counted, cell(skip), cell(skip + 1)) else { return Ok(None) };
        match (kind, number) {
            (0, 0..988) => Ok(Some(IntId::spi(number))),
            (1, 0..16) => Ok(Some(IntId::ppi(number))),
            _ => {
                let remedy = "SPI 0 to 987 (type 0) or PPI 0 to 15 (type 1) is needed";
                Err(Fault::new(self.node, self.property, Value::Number(number.into()), remedy))
            }
        }
    }
}

/// Phandle of the controller that a node's `interrupts` go to: its own property or the nearest ancestor's.
fn interrupt_parent(node: Node<'_>) -> Option<u32> {
    let mut at = Some(node);
    while let Some(node) = at {
        if let Ok(Some(phandle)) = node.u32("interrupt-parent") {
            return Some(phandle);
        }
        at = node.parent();
    }
    None
}
