//! Why the machine doesn't boot.

use super::memory::MemoryError;
use crate::bundle::BundleError;
use crate::memory::stage2::ConfigError;
use crate::platform::gic::GicError;
use crate::platform::machine::MachineError;
use crate::platform::options::OptionError;
use crate::trace::LayoutError;
use crate::vmid::PoolError;
use alloc::string::String;
use core::fmt;

/// What went wrong, with what it takes to say so.
#[derive(Debug)]
pub enum BootError {
    /// The device tree.
    Machine(MachineError<'static>),
    /// An option of the command line.
    Options(OptionError),
    /// There is no bundle.
    NoBundle,
    /// The bundle is malformed.
    Bundle(BundleError<'static>),
    /// The bundle has no VM.
    NoVms,
    /// Memory.
    Memory(MemoryError),
    /// The interrupt controller.
    Gic(GicError),
    /// The CPU's stage 2.
    Stage2(ConfigError),
    /// VMIDs.
    Vmid(PoolError),
    /// `vmid.bits` is more than the CPUs have.
    VmidBits {
        /// What was asked for.
        asked: u8,
        /// What there is.
        available: u8,
    },
    /// There is no memory for something of the hypervisor's own.
    OutOfMemory,
    /// There is no such trace.
    Trace(LayoutError),
    /// There is no memory for the trace.
    TraceMemory {
        /// KiB for each CPU.
        kib: u32,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A VM can't be made.
    Guest(String),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::Machine(error) => write!(f, "{error}"),
            BootError::Options(error) => write!(f, "command line: {error}"),
            BootError::NoBundle => write!(
                f,
                "no bundle: /chosen has no linux,initrd-start; the guests come in a FIT image loaded as the initial RAM disk \
                 (QEMU: -initrd; `cargo xtask run` makes it from a scenario)"
            ),
            BootError::Bundle(error) => write!(f, "bundle: {error}"),
            BootError::NoVms => write!(f, "bundle: /configurations has no VM: nothing to run"),
            BootError::Memory(error) => write!(f, "{error}"),
            BootError::Gic(error) => write!(f, "{error}"),
            BootError::Stage2(error) => write!(f, "stage 2: {error}"),
            BootError::Vmid(error) => write!(f, "VMIDs: {error}"),
            BootError::VmidBits { asked, available } => {
                write!(f, "vmid.bits={asked}: these CPUs have {available} bits; 4 to {available} would do")
            }
            BootError::OutOfMemory => write!(f, "memory: none is left for the hypervisor's own tables"),
            BootError::Trace(error) => write!(f, "trace: {error}"),
            BootError::TraceMemory { kib, needed, free } => write!(
                f,
                "trace=on: trace.kib={kib} takes {} KiB in one piece, and {} KiB are free: give the machine more memory, or \
                 choose a smaller trace.kib",
                needed >> 10,
                free >> 10
            ),
            BootError::Guest(error) => write!(f, "{error}"),
        }
    }
}

macro_rules! from {
    ($($variant:ident($error:ty),)*) => {
        $(impl From<$error> for BootError {
            fn from(error: $error) -> Self {
                BootError::$variant(error)
            }
        })*
    };
}

from! {
    Machine(MachineError<'static>),
    Options(OptionError),
    Bundle(BundleError<'static>),
    Memory(MemoryError),
    Gic(GicError),
    Stage2(ConfigError),
    Vmid(PoolError),
    Guest(String),
}
