//! The machine as its device tree describes it: memory, CPUs, interrupt controller, timer, console, and
//! what `/chosen` says of this boot.
//!
//! [`Machine::from_dtb`] runs before the heap exists and with the MMU off: it allocates nothing and reads
//! words only where they are aligned. It is the only place that knows the bindings (Devicetree
//! specification 0.4; Linux' bindings for `arm,gic-v3`, `arm,armv8-timer`, `arm,psci` and `arm,pl011`).
//! Whatever the hypervisor needs and doesn't find is an error that names node, property, value and remedy:
//! on a machine that can't be driven it has to say why before it stops.

mod chosen;
mod console;
mod cpus;
mod interrupts;
mod memory;
mod rtc;
#[cfg(test)]
mod tests;

use core::fmt;

use arrayvec::ArrayVec;

use crate::ids::{IntId, MAX_CPUS};
use crate::memory::address::{Pa, PaRange};
use crate::platform::fdt::{Blob, Fault, FdtError, Node, Reg, Tree};

/// Most banks of memory.
pub const MAX_BANKS: usize = 32;
/// Most reserved ranges, the reservation map's and `/reserved-memory`'s together.
pub const MAX_RESERVED: usize = 96;
/// Most redistributor regions of a GICv3.
pub const MAX_REDISTRIBUTORS: usize = 16;
/// Largest device tree of a machine in bytes. The Linux boot protocol allows 2 MiB; QEMU makes as much room again around a tree that is given
/// by `-dtb`, and what is larger than this can't even be said on a console, as the tree names that.
pub const MAX_DTB_SIZE: usize = 4 << 20;

impl From<Reg> for PaRange {
    fn from(reg: Reg) -> PaRange {
        PaRange::new(Pa(reg.address), reg.size)
    }
}

/// Memory that isn't ours to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Where.
    pub region: PaRange,
    /// Whether it mustn't even be mapped, lest the CPU read it speculatively.
    pub no_map: bool,
}

/// How a CPU is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnableMethod {
    /// By PSCI's CPU_ON.
    Psci,
    /// By writing the entry's address to a word that the CPU polls, then SEV.
    SpinTable {
        /// The word.
        release: Pa,
    },
    /// Not at all: it can only be the CPU that boots. QEMU describes `-smp 1` like this.
    None,
}

/// A CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuNode {
    /// The affinity fields of its MPIDR_EL1: bits 39 to 32 and 23 to 0.
    pub mpidr: u64,
    /// How it is started.
    pub enable: EnableMethod,
}

/// The instruction that calls PSCI firmware.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conduit {
    /// SMC, to firmware at EL3.
    Smc,
    /// HVC, to a hypervisor: we are then not at EL2, or nested.
    Hvc,
}

/// The interrupt controller's registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GicV3 {
    /// The distributor.
    pub dist: PaRange,
    /// The redistributor regions, each with the frames of several CPUs.
    pub redist: ArrayVec<PaRange, MAX_REDISTRIBUTORS>,
    /// Bytes from one CPU's redistributor to the next, where the tree gives it; else GICR_TYPER.VLPIS tells.
    pub redist_stride: Option<u64>,
    /// The interrupt that a CPU's list registers raise for maintenance (a PPI).
    pub maintenance: IntId,
}

/// The architected timer's interrupts (all PPIs).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerInterrupts {
    /// EL1 virtual timer.
    pub virt: IntId,
    /// EL1 (non-secure) physical timer.
    pub phys: IntId,
    /// EL2 (non-secure) physical timer.
    pub hyp: IntId,
    /// Counter frequency in Hz, where firmware leaves CNTFRQ_EL0 unset and the tree says it.
    pub frequency: Option<u32>,
}

/// The programming model of a UART.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UartKind {
    /// Arm's PL011, or the subset of it in SBSA's generic UART.
    Pl011,
}

/// The console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UartNode {
    /// Its programming model.
    pub kind: UartKind,
    /// Its first register.
    pub base: Pa,
    /// Length of its registers in bytes.
    pub size: u64,
    /// Its interrupt, where it has one at the GIC.
    pub intid: Option<IntId>,
    /// Frequency in Hz of the clock that the baud rate is made from, where it is a fixed one.
    pub clock_hz: Option<u32>,
    /// Baud rate that `stdout-path` asks for.
    pub baud: Option<u32>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// Banks of memory, by address, none overlapping another.
    pub memory: ArrayVec<PaRange, MAX_BANKS>,
    /// What of it is reserved: by the reservation map and by `/reserved-memory`.
    /// The device tree itself, the initrd and the hypervisor's image aren't among these.
    pub reserved: ArrayVec<Reserved, MAX_RESERVED>,
    /// The device tree.
    pub dtb: PaRange,
    /// The CPUs in the tree's order; the one that boots needn't be first.
    pub cpus: ArrayVec<CpuNode, MAX_CPUS>,
    /// How to call PSCI, where there is one.
    pub psci: Option<Conduit>,
    /// The interrupt controller.
    pub gic: GicV3,
    /// The timer.
    pub timer: TimerInterrupts,
    /// The console, where `/chosen` names one that we can drive; else the alias `serial0`, if that is one.
    pub uart: Option<UartNode>,
    /// The registers of a PL031, where there is one.
    pub rtc: Option<PaRange>,
    /// The command line.
    pub bootargs: &'a str,
    /// The initial RAM disk: our bundle of guests.
    pub initrd: Option<PaRange>,
}

impl<'a> Machine<'a> {
    /// Reads the machine's description. `base` is where `blob` begins in memory.
    ///
    /// # Errors
    /// The blob is malformed, or something that the hypervisor needs is missing from it or wrong.
    pub fn from_dtb(blob: &'a [u8], base: Pa) -> Result<Machine<'a>, MachineError<'a>> {
        let blob = Blob::new(blob)?;
        if blob.size() > MAX_DTB_SIZE {
            return Err(MachineError::TooLarge { size: blob.size() });
        }
        let tree = blob.tree();
        let top = TopLevel::find(tree);
        let gic_node = interrupts::gic_node(tree)?;
        let psci = cpus::psci(tree)?;
        Ok(Machine {
            memory: memory::banks(tree)?,
            reserved: memory::reserved(blob, top.reserved)?,
            dtb: PaRange::new(base, blob.size() as u64),
            cpus: cpus::cpus(top.cpus, psci)?,
            psci,
            gic: interrupts::gic(gic_node)?,
            timer: interrupts::timer(tree, gic_node)?,
            uart: console::uart(&top, Some(gic_node))?,
            rtc: rtc::pl031(tree),
            bootargs: chosen::bootargs(top.chosen)?,
            initrd: chosen::initrd(top.chosen)?,
        })
    }
}

/// The nodes below the root that the specification gives a meaning, found in one pass: a tree is walked from
/// its beginning for each node that is looked for, and here that happens before the caches are on.
struct TopLevel<'a> {
    tree: Tree<'a>,
    aliases: Option<Node<'a>>,
    chosen: Option<Node<'a>>,
    cpus: Option<Node<'a>>,
    reserved: Option<Node<'a>>,
}

impl<'a> TopLevel<'a> {
    fn find(tree: Tree<'a>) -> TopLevel<'a> {
        let mut top = TopLevel { tree, aliases: None, chosen: None, cpus: None, reserved: None };
        for node in tree.root().children() {
            match node.name() {
                "aliases" => top.aliases = Some(node),
                "chosen" => top.chosen = Some(node),
                "cpus" => top.cpus = Some(node),
                "reserved-memory" => top.reserved = Some(node),
                _ => {}
            }
        }
        top
    }
}

/// A console for the message that [`Machine::from_dtb`] failed: the one that `/chosen` names or, where that
/// can't be had, the first PL011 that the tree has. It needs as little of the tree as it can, and no
/// interrupt controller. `None` where there is no such thing, or the blob is malformed.
pub fn early_uart(blob: &[u8]) -> Option<UartNode> {
    let tree = Blob::new(blob).ok()?.tree();
    console::uart(&TopLevel::find(tree), None).ok().flatten().or_else(|| console::first_uart(tree))
}

/// How PSCI is called, and nothing else: so that a machine that can't be driven can be switched off at least.
pub fn early_psci(blob: &[u8]) -> Option<Conduit> {
    cpus::psci(Blob::new(blob).ok()?.tree()).ok().flatten()
}

/// Why a machine can't be driven.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MachineError<'a> {
    /// The device tree is malformed.
    Tree(FdtError),
    /// An entry of it is missing or wrong.
    Entry(Fault<'a>),
    /// The device tree is larger than [`MAX_DTB_SIZE`].
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
}

impl From<FdtError> for MachineError<'_> {
    fn from(error: FdtError) -> Self {
        MachineError::Tree(error)
    }
}

impl<'a> From<Fault<'a>> for MachineError<'a> {
    fn from(fault: Fault<'a>) -> Self {
        MachineError::Entry(fault)
    }
}

impl fmt::Display for MachineError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Tree(error) => write!(f, "{error}"),
            MachineError::Entry(fault) => write!(f, "device tree: {fault}"),
            MachineError::TooLarge { size } => {
                write!(f, "device tree of {size} bytes: at most {MAX_DTB_SIZE} are read")
            }
        }
    }
}

impl core::error::Error for MachineError<'_> {}
