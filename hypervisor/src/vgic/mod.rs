//! The virtual GICv3 of one VM.
//!
//! What a guest sees: a distributor with 64 SPIs, a redistributor for each vCPU, affinity routing always on,
//! one security state (GICD_CTLR.DS = 1, as on QEMU's `virt` without EL3). Its CPU interface is the hardware's
//! own: interrupts reach it through list registers, so that acknowledging and completing one costs no exit.
//! Specified in IHI 0069 (GICv3): chapter 4 (states, priorities), 6 (virtualization), 12.9 to 12.11 (GICD,
//! GICR), 12.4 (ICH).
//!
//! How it is kept:
//!
//! * All state is atomic words, one bit for each interrupt, so that any CPU may post an interrupt without a
//!   lock ([`Vgic::post_spi`], [`Vgic::send_sgi`], ...). Only the CPU that has the vCPU loaded, its *owner*, moves
//!   interrupts into list registers ([`Vgic::flush`]) and harvests those that the guest has completed.
//! * An interrupt is in exactly one place: latched (or its line high) in software, or in one list register.
//!   The same INTID is never in two list registers, of whatever vCPU; an SPI is claimed by an atomic bit.
//! * A poster changes the state, then raises a *signal* of the vCPU, then has the vCPU kicked if that is needed
//!   (`notify`). The owner lowers the signals before it looks at the state. So a post is either seen by the flush that is
//!   going on, or its signal is still up for the next one. Between them stands the caller's part: it must test
//!   [`Vgic::attention`] after it has made public that the vCPU is about to run (SeqCst), and a notifier must
//!   read that with SeqCst too: then one of the two sees the other.
//! * More interrupts than list registers: the most urgent ones are in list registers, the others wait in
//!   software, and maintenance interrupts (underflow, none pending, or the end of an active one) bring
//!   the owner back ([`Vgic::maintenance`]).
//!
//! Approximations, all of them about one vCPU's access to what is in list registers of another vCPU that runs
//! elsewhere at that moment: ISPENDR and ISACTIVER read as if such an interrupt was neither pending nor active, and
//! writes to ICPENDR, ISACTIVER and ICACTIVER leave it alone. Disabling or re-routing such an interrupt is exact: its
//! owner is notified, and takes it back unless the guest has acknowledged it.

mod bank;
mod bits;
mod distributor;
mod fill;
mod flush;
mod lr;
mod redistributor;
mod registers;
mod sgi;
mod state;
mod switch;
mod timer;

#[cfg(test)]
pub mod fake;
#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

pub use bits::VcpuSet;
pub use lr::{ListRegisters, control, pending};
pub use redistributor::REDISTRIBUTOR_SIZE;
pub use switch::Saved;

use crate::ids::{IntId, MAX_VCPUS, VcpuIndex};
use bank::VgicCpu;

/// Number of SPIs: INTIDs 32 to 63, so that GICD_TYPER.ITLinesNumber is 1. As few as the devices need: a driver of the GIC
/// sets each of them up, with an exit for each IROUTER.
pub const SPIS: u32 = 32;
/// First INTID that does not exist.
pub const INTIDS: u32 = 32 + SPIS;
/// Implemented bits of a priority: the upper five, as in most implementations.
pub const PRIORITY_MASK: u8 = 0xf8;
/// A route to no vCPU.
const NOBODY: u8 = 0xff;

/// The virtual GICv3 of one VM: distributor and a redistributor for each vCPU.
///
/// Functions that take a `vcpu` and list registers are for the owner of that vCPU, the CPU that has it loaded; the
/// others may be called anywhere. An index beyond the VM's vCPUs does nothing.
pub struct Vgic {
    vcpus: u8,
    /// A bit for each vCPU that exists.
    present: u32,
    /// All ones while the group is enabled (GICD_CTLR.EnableGrp0/1), else 0.
    group0_on: AtomicU32,
    group1_on: AtomicU32,
    // One bit for each SPI; bit 0 is INTID 32.
    enabled: AtomicU64,
    group1: AtomicU64,
    edge: AtomicU64,
    /// Pending, not by a line: an edge, or a write to ISPENDR.
    latch: AtomicU64,
    /// State of the line of a level-triggered device.
    line: AtomicU64,
    /// Active, and in no list register.
    active: AtomicU64,
    /// In a list register of some vCPU: the claim of its owner.
    in_lr: AtomicU64,
    priority: [AtomicU8; SPIS as usize],
    /// GICD_IROUTER as the guest wrote it.
    router: [AtomicU64; SPIS as usize],
    /// The vCPU that IROUTER names, or [`NOBODY`].
    route: [AtomicU8; SPIS as usize],
    cpus: [VgicCpu; MAX_VCPUS],
}

impl Vgic {
    /// The virtual GIC of a VM with `vcpus` vCPUs (1 to 8; what is beyond is cut), as it is at reset.
    pub fn new(vcpus: usize) -> Vgic {
        let vcpus = vcpus.clamp(1, MAX_VCPUS) as u8;
        let vgic = Vgic {
            vcpus,
            present: (1 << vcpus) - 1,
            group0_on: AtomicU32::new(0),
            group1_on: AtomicU32::new(0),
            enabled: AtomicU64::new(0),
            group1: AtomicU64::new(0),
            edge: AtomicU64::new(0),
            latch: AtomicU64::new(0),
            line: AtomicU64::new(0),
            active: AtomicU64::new(0),
            in_lr: AtomicU64::new(0),
            priority: [const { AtomicU8::new(0) }; SPIS as usize],
            router: [const { AtomicU64::new(0) }; SPIS as usize],
            route: [const { AtomicU8::new(0) }; SPIS as usize],
            cpus: [const { VgicCpu::new() }; MAX_VCPUS],
        };
        vgic.cpus[0].routed.store(u64::MAX, Relaxed);
        vgic
    }

    /// Back to the state of [`Vgic::new`] (SYSTEM_RESET), lines of devices included. No vCPU of the VM may be loaded anywhere.
    pub fn reset(&self) {
        for word in [&self.enabled, &self.group1, &self.edge, &self.latch] {
            word.store(0, Relaxed);
        }
        for word in [&self.line, &self.active, &self.in_lr] {
            word.store(0, Relaxed);
        }
        self.group0_on.store(0, Relaxed);
        self.group1_on.store(0, Relaxed);
        for n in 0..SPIS as usize {
            self.priority[n].store(0, Relaxed);
            self.router[n].store(0, Relaxed);
            self.route[n].store(0, Relaxed);
        }
        for cpu in &self.cpus {
            cpu.reset();
        }
        self.cpus[0].routed.store(u64::MAX, SeqCst);
    }

    /// Number of vCPUs.
    pub fn vcpus(&self) -> usize {
        self.vcpus as usize
    }

    /// Whether something was posted to the vCPU since its last flush, so that [`Vgic::flush`] must be called before it is
    /// entered. One load: the entry path asks each time.
    #[inline(always)]
    pub fn attention(&self, vcpu: VcpuIndex) -> bool {
        self.cpu(vcpu).signals.load(SeqCst) >> 32 != 0
    }

    /// Whether a private interrupt is enabled (GICR_ISENABLER0). A vCPU that waits for one that isn't need not be woken for it: enabling
    /// it notifies the vCPU. SeqCst: asked after the vCPU's state has been set to waiting, which who enables it looks at afterwards.
    pub fn is_enabled(&self, vcpu: VcpuIndex, intid: IntId) -> bool {
        intid.is_private() && self.cpu(vcpu).enabled.load(SeqCst) & 1 << intid.0 != 0
    }

    /// A private interrupt (SGI or PPI) becomes pending once, as by an edge. Other INTIDs are ignored.
    pub fn post_private(&self, vcpu: VcpuIndex, intid: IntId, notify: &mut impl FnMut(VcpuIndex)) {
        if intid.is_private() && vcpu.index() < self.vcpus() && self.latch_private(vcpu, 1 << intid.0) {
            notify(vcpu);
        }
    }

    /// The line of a level-triggered PPI changes. Other INTIDs are ignored. Not for an interrupt that is given
    /// through [`Vgic::inject_timer`].
    pub fn set_ppi_line(
        &self,
        vcpu: VcpuIndex,
        intid: IntId,
        high: bool,
        notify: &mut impl FnMut(VcpuIndex),
    ) {
        if !(16..32).contains(&intid.0) || vcpu.index() >= self.vcpus() {
            return;
        }
        let cpu = self.cpu(vcpu);
        let bit = 1 << intid.0;
        // SeqCst: the change comes before the test of what is enabled, and before the signal.
        if high {
            if cpu.line.fetch_or(bit, SeqCst) & bit == 0 {
                cpu.signal();
                if self.private_gate(cpu) & bit != 0 {
                    notify(vcpu);
                }
            }
        } else if cpu.line.fetch_and(!bit, SeqCst) & bit != 0 {
            // Still pending in a list register, perhaps: its owner takes it back. (Which it is, only the owner knows.)
            cpu.signal();
            notify(vcpu);
        }
    }

    /// An SPI becomes pending once, as by an edge. Other INTIDs are ignored.
    pub fn post_spi(&self, intid: IntId, notify: &mut impl FnMut(VcpuIndex)) {
        let Some(bit) = spi_bit(intid) else { return };
        if self.latch.fetch_or(bit, SeqCst) & bit == 0 {
            self.spi_changed(bit, notify);
        }
    }

    /// The line of a level-triggered SPI changes. Other INTIDs are ignored. No change costs one load, so that a
    /// device may call it at each access. Calls for one line must not race with each other (the device's lock).
    #[inline]
    pub fn set_spi_line(&self, intid: IntId, high: bool, notify: &mut impl FnMut(VcpuIndex)) {
        let Some(bit) = spi_bit(intid) else { return };
        if (self.line.load(Relaxed) & bit != 0) == high {
            return;
        }
        if high {
            self.line.fetch_or(bit, SeqCst);
            self.spi_changed(bit, notify);
        } else {
            self.line.fetch_and(!bit, SeqCst);
            if self.in_lr.load(SeqCst) & bit != 0 {
                self.signal_route(intid.0 - 32, notify);
            }
        }
    }

    /// Owner: moves what is pending into list registers. To be called when [`Vgic::attention`] says so. Returns other
    /// vCPUs (rare: an SPI that was re-routed) that are to be notified.
    #[inline]
    pub fn flush(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> VcpuSet {
        if self.flush_one(self.cpu(vcpu), lrs) { VcpuSet::EMPTY } else { self.flush_all(vcpu, lrs) }
    }

    /// Owner: the maintenance interrupt. Takes completed interrupts out of list registers, samples lines again, refills.
    /// Returns other vCPUs that are to be notified, as [`Vgic::flush`] does.
    pub fn maintenance(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> VcpuSet {
        self.flush_all(vcpu, lrs)
    }

    /// Owner: flushes, then says whether the loaded vCPU has an interrupt to take, so that its WFI must not block.
    /// The second value: other vCPUs that are to be notified, as with [`Vgic::flush`].
    pub fn pending_here(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> (bool, VcpuSet) {
        let cpu = self.cpu(vcpu);
        let wake = if !cpu.notes().is_plain() {
            // The guest may have ended one whose maintenance interrupt is still on its way.
            self.flush_all(vcpu, lrs)
        } else if self.attention(vcpu) {
            self.flush(vcpu, lrs)
        } else {
            VcpuSet::EMPTY
        };
        let backlog = cpu.notes().control() != control::EN;
        let pending = bits::ones(cpu.notes().used()).any(|n| lrs.read(n) & lr::STATE == lr::PENDING);
        (backlog || pending, wake)
    }

    /// A vCPU's part. The mask keeps the index in range without a branch; a guest can't choose it.
    #[inline(always)]
    fn cpu(&self, vcpu: VcpuIndex) -> &VgicCpu {
        const { assert!(MAX_VCPUS.is_power_of_two()) };
        &self.cpus[vcpu.index() & (MAX_VCPUS - 1)]
    }

    /// Signals and notifies the vCPU to which SPI `n` (0 is INTID 32) goes, if there is one.
    fn signal_route(&self, n: u32, notify: &mut impl FnMut(VcpuIndex)) {
        // SeqCst: after the change of the SPI's state; see `write_router` for the other side.
        let route = self.route[n as usize & 63].load(SeqCst);
        if route != NOBODY {
            let vcpu = VcpuIndex(route);
            self.cpu(vcpu).signal();
            notify(vcpu);
        }
    }

    /// The SPI (one bit) has become pending: tells the vCPU that is to take it, if it is enabled.
    fn spi_changed(&self, bit: u64, notify: &mut impl FnMut(VcpuIndex)) {
        // SeqCst loads after a SeqCst change of the SPI's state; who enables it does the same the other way
        // round (`enable_spis`), so at least one of the two signals.
        if self.spi_gate() & bit != 0 {
            self.signal_route(bit.trailing_zeros(), notify);
        }
    }

    /// Latches private interrupts of the vCPU that is loaded here, so that nobody is to be notified.
    #[inline(always)]
    fn latch_own(&self, vcpu: VcpuIndex, bits: u32) {
        self.cpu(vcpu).signals.fetch_or(u64::from(bits) | bank::LATCHED, SeqCst);
    }

    /// Latches private interrupts of a vCPU; whether it must be notified.
    #[inline(always)]
    fn latch_private(&self, vcpu: VcpuIndex, bits: u32) -> bool {
        let cpu = self.cpu(vcpu);
        // Latch and signal in one atomic operation. SeqCst: before the test of what is enabled here, and before the
        // caller's look at where the vCPU runs. An interrupt that was pending before has been notified then, or
        // will be when it is enabled.
        let before = cpu.signals.fetch_or(u64::from(bits) | bank::LATCHED, SeqCst) as u32;
        bits & !before & self.private_gate(cpu) != 0
    }
}

/// The SPI's bit in the distributor's words.
fn spi_bit(intid: IntId) -> Option<u64> {
    (32..INTIDS).contains(&intid.0).then(|| 1 << (intid.0 - 32))
}
