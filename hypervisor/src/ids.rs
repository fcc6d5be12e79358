//! Names for things that are counted: CPUs, VMs, vCPUs, VMIDs, interrupts.
//!
//! Each is its own type, so that an index of one kind can't be used for another.

use core::fmt;

/// Most physical CPUs that one machine may have.
pub const MAX_CPUS: usize = 128;
/// Most VMs at once.
pub const MAX_VMS: usize = 256;
/// Most vCPUs of one VM.
pub const MAX_VCPUS: usize = 8;

/// A physical CPU: its index in the order of the device tree, 0 being the one that booted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u16);

impl CpuId {
    /// The CPU that booted.
    pub const BOOT: CpuId = CpuId(0);

    /// The value as an index into a table of CPUs.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A VM: its index in the order of the bundle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmId(pub u16);

/// A vCPU within its VM: also Aff0 of its MPIDR_EL1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VcpuIndex(pub u8);

impl VcpuIndex {
    /// The value as an index into a VM's table of vCPUs.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The tag of a VM's TLB entries, as in VTTBR_EL2.VMID (Arm ARM D8.17). 0 is never given to a VM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vmid(pub u16);

/// An interrupt's INTID (IHI 0069, 2.2): 0 to 15 SGI, 16 to 31 PPI, 32 to 1019 SPI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IntId(pub u32);

impl IntId {
    /// The INTID of shared peripheral interrupt `n`.
    pub const fn spi(n: u32) -> IntId {
        IntId(32 + n)
    }

    /// The INTID of private peripheral interrupt `n`.
    pub const fn ppi(n: u32) -> IntId {
        IntId(16 + n)
    }

    /// Whether it is private to a CPU: an SGI or a PPI.
    pub const fn is_private(self) -> bool {
        self.0 < 32
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.0)
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VM {}", self.0)
    }
}
