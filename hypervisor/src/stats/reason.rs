//! Why a guest came to EL2.

/// The reason of an exit. Its number is part of the hypercall interface (`docs/hypercalls.md`): a new reason goes to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// HVC: PSCI, the vendor range, or an unknown function.
    Hvc = 0,
    /// SMC, trapped by HCR_EL2.TSC.
    Smc = 1,
    /// WFI or WFE, trapped by HCR_EL2.TWI/TWE.
    Wfi = 2,
    /// A trapped system register that has no reason of its own.
    Sysreg = 3,
    /// A read of an ID register, trapped by HCR_EL2.TID*.
    IdRegister = 4,
    /// A write of ICC_SGI*R_EL1: an interrupt between vCPUs.
    Sgi = 5,
    /// An access to the virtual distributor.
    MmioGicd = 6,
    /// An access to a virtual redistributor.
    MmioGicr = 7,
    /// An access to the virtual PL011.
    MmioUart = 8,
    /// An access to the virtual PL031.
    MmioRtc = 9,
    /// An access to a virtio-mmio window behind which there is no device.
    MmioVirtio = 10,
    /// An access to an address where nothing is.
    MmioUnknown = 11,
    /// The guest's virtual timer expired.
    IrqTimer = 12,
    /// Another CPU asked this one to look at its vCPU.
    IrqKick = 13,
    /// The time slice ran out.
    IrqSlice = 14,
    /// The GIC's maintenance interrupt.
    IrqMaintenance = 15,
    /// An interrupt of a device that the hypervisor drives.
    IrqDevice = 16,
    /// Any other physical interrupt, a spurious one too.
    IrqOther = 17,
    /// The first FP/SIMD instruction since the vCPU was loaded.
    Fp = 18,
    /// A stage-2 abort that is not emulated MMIO.
    Stage2Abort = 19,
    /// What ended in an UNDEFINED exception for the guest.
    Undefined = 20,
    /// An SError.
    Serror = 21,
    /// A debug exception or a trapped debug register.
    Debug = 22,
    /// None of these.
    Other = 23,
    /// The first access to memory of the guest's own, or the first write to what it shared until then.
    Memory = 24,
    /// An access to the window of a virtio-console.
    MmioVirtioConsole = 25,
    /// An access to the window of a virtio-blk.
    MmioVirtioBlk = 26,
    /// An access to the window of a virtio-net.
    MmioVirtioNet = 27,
}

impl Reason {
    /// How many reasons there are.
    pub const COUNT: usize = 28;

    /// All, in the order of their numbers.
    pub const ALL: [Reason; Self::COUNT] = [
        Reason::Hvc,
        Reason::Smc,
        Reason::Wfi,
        Reason::Sysreg,
        Reason::IdRegister,
        Reason::Sgi,
        Reason::MmioGicd,
        Reason::MmioGicr,
        Reason::MmioUart,
        Reason::MmioRtc,
        Reason::MmioVirtio,
        Reason::MmioUnknown,
        Reason::IrqTimer,
        Reason::IrqKick,
        Reason::IrqSlice,
        Reason::IrqMaintenance,
        Reason::IrqDevice,
        Reason::IrqOther,
        Reason::Fp,
        Reason::Stage2Abort,
        Reason::Undefined,
        Reason::Serror,
        Reason::Debug,
        Reason::Other,
        Reason::Memory,
        Reason::MmioVirtioConsole,
        Reason::MmioVirtioBlk,
        Reason::MmioVirtioNet,
    ];

    /// The name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Hvc => "hvc",
            Reason::Smc => "smc",
            Reason::Wfi => "wfi",
            Reason::Sysreg => "sysreg",
            Reason::IdRegister => "id_register",
            Reason::Sgi => "sgi",
            Reason::MmioGicd => "mmio_gicd",
            Reason::MmioGicr => "mmio_gicr",
            Reason::MmioUart => "mmio_uart",
            Reason::MmioRtc => "mmio_rtc",
            Reason::MmioVirtio => "mmio_virtio",
            Reason::MmioUnknown => "mmio_unknown",
            Reason::IrqTimer => "irq_timer",
            Reason::IrqKick => "irq_kick",
            Reason::IrqSlice => "irq_slice",
            Reason::IrqMaintenance => "irq_maintenance",
            Reason::IrqDevice => "irq_device",
            Reason::IrqOther => "irq_other",
            Reason::Fp => "fp",
            Reason::Stage2Abort => "stage2_abort",
            Reason::Undefined => "undefined",
            Reason::Serror => "serror",
            Reason::Debug => "debug",
            Reason::Other => "other",
            Reason::Memory => "memory",
            Reason::MmioVirtioConsole => "mmio_virtio_console",
            Reason::MmioVirtioBlk => "mmio_virtio_blk",
            Reason::MmioVirtioNet => "mmio_virtio_net",
        }
    }

    /// The number as an index, below [`Reason::COUNT`].
    #[inline(always)]
    pub const fn index(self) -> usize {
        self as usize
    }
}
