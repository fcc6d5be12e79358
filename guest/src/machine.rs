//! What the device tree says about the machine (Devicetree Specification 0.4, chapter 5 for the blob).
//!
//! The reader goes once through the structure block and checks every length and offset: a damaged blob is an
//! error, never a fault.

use arrayvec::ArrayVec;

use core::fmt;

use crate::queue::MAX_CPUS;

/// How PSCI is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conduit {
    /// By HVC.
    Hvc,
    /// By SMC.
    Smc,
}

/// A range of physical addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine<'a> {
    /// The bank of RAM that holds 0x4000_0000; none other is used.
    pub memory: Region,
    /// MPIDR affinity of each CPU in the tree's order, the first [`MAX_CPUS`].
    pub cpus: ArrayVec<u64, MAX_CPUS>,
    /// How many CPUs the tree lists.
    pub cpus_listed: usize,
    /// PSCI's conduit; none: only the boot CPU can be used, and it can't be switched off.
    pub psci: Option<Conduit>,
    /// GICv3 distributor.
    pub distributor: Region,
    /// GICv3 redistributor regions.
    pub redistributors: ArrayVec<Region, 4>,
    /// INTID of the virtual timer.
    pub timer: u32,
    /// The console's PL011.
    pub uart: Region,
    /// /chosen/bootargs.
    pub bootargs: &'a str,
}

/// Why the machine can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineError {
    /// Not a device tree, or a damaged one.
    Damaged(&'static str),
    /// Something is not described.
    Missing(&'static str),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Damaged(what) => write!(f, "the device tree is damaged: {what}"),
            MachineError::Missing(what) => write!(f, "the device tree names no {what}"),
        }
    }
}

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROP: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// The size of the blob that starts with these bytes (40 at least), if it is one.
pub fn blob_size(header: &[u8]) -> Option<usize> {
    (word(header, 0)? == MAGIC).then_some(word(header, 4)? as usize)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// `cells` cells as a number; more than two: the low 64 bits.
fn number(bytes: &[u8], at: usize, cells: usize) -> Option<u64> {
    (0..cells).try_fold(0u64, |n, i| Some((n << 32) | u64::from(word(bytes, at + 4 * i)?)))
}

fn text(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|b| *b == 0)?;
    core::str::from_utf8(&value[..end]).ok()
}

/// A node being read: its properties come before its children.
#[derive(Clone, Copy, Default)]
struct Node<'a> {
    name: &'a str,
    /// Cells with which its children write addresses and sizes.
    address_cells: usize,
    size_cells: usize,
    compatible: &'a [u8],
    device_type: &'a [u8],
    reg: &'a [u8],
    interrupts: &'a [u8],
    method: &'a [u8],
    regions: Option<u32>,
    /// Whether the properties have been looked at.
    seen: bool,
}

impl<'a> Node<'a> {
    fn is(&self, compatible: &str) -> bool {
        self.compatible.split(|b| *b == 0).any(|one| one == compatible.as_bytes())
    }

    fn region(&self, parent: &Node<'_>, index: usize) -> Option<Region> {
        let (a, s) = (parent.address_cells, parent.size_cells);
        let at = index.checked_mul(4 * (a + s))?;
        Some(Region { base: number(self.reg, at, a)?, size: number(self.reg, at + 4 * a, s)? })
    }
}

/// Deepest nesting of nodes.
const DEPTH: usize = 8;

struct Reader<'a> {
    memory: Option<Region>,
    cpus: ArrayVec<u64, MAX_CPUS>,
    cpus_listed: usize,
    psci: Option<Conduit>,
    distributor: Option<Region>,
    redistributors: ArrayVec<Region, 4>,
    timer: Option<u32>,
    /// PL011s, by name: which one is the console is known at the end.
    uarts: ArrayVec<(&'a str, Region), 4>,
    console: Option<&'a str>,
    serial_alias: ArrayVec<(&'a str, &'a str), 4>,
    bootargs: &'a str,
}

/// Where RAM begins on the machines that this kernel is linked for.
pub const RAM_BASE: u64 = 0x4000_0000;

impl<'a> Machine<'a> {
    /// Reads a blob.
    ///
    /// # Errors
    /// A damaged blob, or a machine without something that the kernel needs.
    pub fn from_blob(blob: &'a [u8]) -> Result<Machine<'a>, MachineError> {
        let mut reader = Reader {
            memory: None,
            cpus: ArrayVec::new(),
            cpus_listed: 0,
            psci: None,
            distributor: None,
            redistributors: ArrayVec::new(),
            timer: None,
            uarts: ArrayVec::new(),
            console: None,
            serial_alias: ArrayVec::new(),
            bootargs: "",
        };
        reader.walk(blob)?;
        reader.finish()
    }
}

impl<'a> Reader<'a> {
    fn walk(&mut self, blob: &'a [u8]) -> Result<(), MachineError> {
        let damaged = MachineError::Damaged;
        let size = blob_size(blob).ok_or(damaged("no magic number"))?;
        let blob = blob.get(..size).ok_or(damaged("shorter than it says"))?;
        let field = |at| word(blob, at).map(|n| n as usize).ok_or(damaged("header cut off"));
        let (structure, strings) = (field(8)?, field(12)?);
        if !structure.is_multiple_of(4) {
            return Err(damaged("structure block not aligned"));
        }
        let strings = blob.get(strings..).ok_or(damaged("strings block outside"))?;
        let cut = damaged("structure block cut off");

        let mut nodes: ArrayVec<Node<'a>, DEPTH> = ArrayVec::new();
        let mut at = structure;
        loop {
            let token = word(blob, at).ok_or(cut)?;
            at += 4;
            match token {
                BEGIN_NODE => {
                    let name = text(blob.get(at..).ok_or(cut)?).ok_or(damaged("node name"))?;
                    at = (at + name.len() + 1).next_multiple_of(4);
                    self.look(&mut nodes);
                    let node = Node { name, address_cells: 2, size_cells: 1, ..Node::default() };
                    nodes.try_push(node).map_err(|_| damaged("nodes nested too deeply"))?;
                }
                END_NODE => {
                    self.look(&mut nodes);
                    nodes.pop().ok_or(damaged("a node ends that never began"))?;
                }
                PROP => {
                    let length = word(blob, at).ok_or(cut)? as usize;
                    let name_at = word(blob, at + 4).ok_or(cut)? as usize;
                    let value = blob.get(at + 8..).and_then(|rest| rest.get(..length)).ok_or(cut)?;
                    let name = strings.get(name_at..).and_then(text).ok_or(damaged("property name"))?;
                    at = (at + 8 + length).next_multiple_of(4);
                    self.property(&mut nodes, name, value)?;
                }
                NOP => {}
                END => return if nodes.is_empty() { Ok(()) } else { Err(damaged("nodes left open")) },
                _ => return Err(damaged("unknown token")),
            }
        }
    }

    fn property(
        &mut self,
        nodes: &mut [Node<'a>],
        name: &'a str,
        value: &'a [u8],
    ) -> Result<(), MachineError> {
        let (node, parents) =
            nodes.split_last_mut().ok_or(MachineError::Damaged("a property outside nodes"))?;
        let cells = || match word(value, 0) {
            Some(n @ 0..=4) => Ok(n as usize),
            _ => Err(MachineError::Damaged("cell count")),
        };
        match name {
            "#address-cells" => node.address_cells = cells()?,
            "#size-cells" => node.size_cells = cells()?,
            "compatible" => node.compatible = value,
            "device_type" => node.device_type = value,
            "reg" => node.reg = value,
            "interrupts" => node.interrupts = value,
            "method" => node.method = value,
            "#redistributor-regions" => node.regions = word(value, 0),
            _ => {}
        }
        if parents.len() == 1 {
            match (node.name, name) {
                ("chosen", "bootargs") => {
                    self.bootargs = text(value).ok_or(MachineError::Damaged("bootargs are not text"))?;
                }
                ("chosen", "stdout-path") => self.console = text(value).and_then(|t| t.split(':').next()),
                ("aliases", _) => {
                    if let (true, Some(path)) = (name.starts_with("serial"), text(value)) {
                        let _ = self.serial_alias.try_push((name, path));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks at the innermost node once its properties have been read.
    fn look(&mut self, nodes: &mut [Node<'a>]) {
        let Some((node, parents)) = nodes.split_last_mut() else { return };
        let Some(parent) = parents.last() else { return };
        if core::mem::replace(&mut node.seen, true) {
            return;
        }
        if node.device_type == b"memory\0" {
            let banks = (0..32).map_while(|i| node.region(parent, i));
            for bank in banks.take_while(|bank| bank.size > 0) {
                if bank.base <= RAM_BASE && bank.base.saturating_add(bank.size) > RAM_BASE {
                    self.memory = Some(bank);
                }
            }
        } else if node.device_type == b"cpu\0" && parent.name == "cpus" {
            if let Some(mpidr) = number(node.reg, 0, parent.address_cells) {
                self.cpus_listed += 1;
                let _ = self.cpus.try_push(mpidr);
            }
        } else if node.is("arm,psci-1.0") || node.is("arm,psci-0.2") {
            self.psci = match node.method {
                b"hvc\0" => Some(Conduit::Hvc),
                b"smc\0" => Some(Conduit::Smc),
                _ => None,
            };
        } else if node.is("arm,gic-v3") {
            self.distributor = node.region(parent, 0);
            for i in 0..node.regions.unwrap_or(1).min(4) as usize {
                if let Some(region) = node.region(parent, 1 + i) {
                    self.redistributors.push(region);
                }
            }
        } else if node.is("arm,armv8-timer") {
            // Secure, physical, virtual, hypervisor; each PPI or SPI, number, flags.
            let kind = word(node.interrupts, 24);
            self.timer = word(node.interrupts, 28).filter(|n| kind == Some(1) && *n < 16).map(|n| 16 + n);
        } else if node.is("arm,pl011")
            && let Some(region) = node.region(parent, 0)
        {
            let _ = self.uarts.try_push((node.name, region));
        }
    }

    fn finish(self) -> Result<Machine<'a>, MachineError> {
        let missing = MachineError::Missing;
        let path = self.console.map(|console| {
            let alias = self.serial_alias.iter().find(|(name, _)| *name == console);
            alias.map_or(console, |(_, path)| *path)
        });
        let named = path.and_then(|path| path.rsplit('/').next());
        let chosen = self.uarts.iter().find(|(name, _)| Some(*name) == named).or(self.uarts.first());
        if self.redistributors.is_empty() || self.distributor.is_none() {
            return Err(missing("GICv3 (arm,gic-v3): on QEMU say gic-version=3"));
        }
        if self.cpus.is_empty() {
            return Err(missing("CPU"));
        }
        Ok(Machine {
            memory: self.memory.ok_or(missing("memory at 0x40000000"))?,
            cpus: self.cpus,
            cpus_listed: self.cpus_listed,
            psci: self.psci,
            distributor: self.distributor.unwrap_or_default(),
            redistributors: self.redistributors,
            timer: self.timer.ok_or(missing("virtual timer (arm,armv8-timer)"))?,
            uart: chosen.ok_or(missing("console (arm,pl011)"))?.1,
            bootargs: self.bootargs,
        })
    }
}

#[cfg(test)]
mod tests;
