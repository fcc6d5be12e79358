//! Addresses: `reg`, the cell counts that it depends on, and `ranges` of the buses above
//! (Devicetree specification 0.4, 2.3.5 to 2.3.8).

use super::{Cells, Fault, Node, Value};

/// A block of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reg {
    /// First address.
    pub address: u64,
    /// Length in bytes; 0 where the bus has no sizes.
    pub size: u64,
}

/// The entries of a `reg` property, in the parent bus' addresses.
#[derive(Clone, Debug)]
pub struct Regs<'a> {
    cells: Cells<'a>,
    address_cells: usize,
    size_cells: usize,
}

impl Iterator for Regs<'_> {
    type Item = Reg;

    fn next(&mut self) -> Option<Reg> {
        if self.cells.is_empty() {
            return None;
        }
        let address = self.cells.take_number(self.address_cells)?;
        let size = self.cells.take_number(self.size_cells)?;
        Some(Reg { address, size })
    }
}

const TWO_CELLS: &str = "1 or 2 cells are supported, so that addresses have at most 64 bits";

impl<'a> Node<'a> {
    /// `#address-cells` and `#size-cells` that its children's `reg` has.
    ///
    /// # Errors
    /// One of them is no number, or more cells than 64 bits have.
    fn child_cells(self) -> Result<(usize, usize), Fault<'a>> {
        let address = self.u32("#address-cells")?.unwrap_or(2);
        let size = self.u32("#size-cells")?.unwrap_or(1);
        if !(1..=2).contains(&address) {
            return Err(Fault::new(self, "#address-cells", Value::Number(address.into()), TWO_CELLS));
        }
        if size > 2 {
            return Err(Fault::new(self, "#size-cells", Value::Number(size.into()), TWO_CELLS));
        }
        Ok((address as usize, size as usize))
    }

    /// The entries of `reg` of its child `child` as they stand, in this bus' addresses; none where there is no
    /// `reg`.
    ///
    /// # Errors
    /// The property's length isn't a multiple of what this node's cell counts ask for, or these are wrong.
    pub fn regs_of(self, child: Node<'a>) -> Result<Regs<'a>, Fault<'a>> {
        let (address_cells, size_cells) = self.child_cells()?;
        let cells = child.cells("reg")?;
        if !cells.len().is_multiple_of(address_cells + size_cells) {
            let remedy = "a whole number of entries of the parent's #address-cells and #size-cells is needed";
            return Err(Fault::new(child, "reg", Value::Bytes(cells.len() * 4), remedy));
        }
        Ok(Regs { cells, address_cells, size_cells })
    }

    /// Entry `index` of `reg` in the CPU's physical addresses: translated by `ranges` of each bus above.
    /// `None` where there is no such entry.
    ///
    /// # Errors
    /// As [`Node::regs_of`]; the region wraps round; a bus above doesn't show it to the CPU.
    pub fn reg(self, index: usize) -> Result<Option<Reg>, Fault<'a>> {
        let mut buses = self.ancestors().into_iter().rev().filter_map(|start| Node::at(self.tree(), start));
        let mut bus = buses.next().unwrap_or(self);
        let Some(reg) = bus.regs_of(self)?.nth(index) else { return Ok(None) };
        if reg.address.checked_add(reg.size).is_none() {
            let remedy = "the region reaches beyond 64 bits";
            return Err(Fault::new(self, "reg", Value::Hex(reg.address), remedy));
        }
        let mut address = reg.address;
        for parent in buses {
            address = bus.translate(parent, address, reg.size)?;
            bus = parent;
        }
        if address.checked_add(reg.size).is_none() {
            let remedy = "the region reaches beyond 64 bits once it is translated";
            return Err(Fault::new(self, "reg", Value::Hex(reg.address), remedy));
        }
        Ok(Some(Reg { address, size: reg.size }))
    }

    /// What `address` on this bus is on the bus above, `parent`.
    fn translate(self, parent: Node<'a>, address: u64, size: u64) -> Result<u64, Fault<'a>> {
        let fault = |value, remedy| Err(Fault::new(self, "ranges", value, remedy));
        let Some(value) = self.property("ranges") else {
            return fault(Value::Missing, "a device behind this bus has no address for the CPU");
        };
        if value.is_empty() {
            return Ok(address);
        }
        let (child_cells, size_cells) = self.child_cells()?;
        let (parent_cells, _) = parent.child_cells()?;
        let mut cells = self.cells("ranges")?;
        if !cells.len().is_multiple_of(child_cells + parent_cells + size_cells) {
            let remedy = "a whole number of entries of child address, parent address and size is needed";
            return fault(Value::Bytes(value.len()), remedy);
        }
        while let (Some(child), Some(above), Some(length)) =
            (cells.take_number(child_cells), cells.take_number(parent_cells), cells.take_number(size_cells))
        {
            let inside = address.checked_sub(child).filter(|offset| {
                offset.checked_add(size).is_some_and(|end| end <= length) && (size > 0 || *offset < length)
            });
            if let Some(offset) = inside {
                let remedy = "an entry reaches beyond 64 bits";
                return above.checked_add(offset).map_or_else(|| fault(Value::Hex(above), remedy), Ok);
            }
        }
        fault(Value::Hex(address), "no entry covers this address, so the CPU can't reach the device")
    }
}
