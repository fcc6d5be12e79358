//! The distributor's registers (IHI 0069, 12.9): affinity routing always on, one security state, no LPIs, no message-based SPIs.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::bits::{VcpuSet, gather, spread};
use super::lr::{ACTIVE, PENDING};
use super::registers::{BitRegister, IIDR, PIDR2, PIDR2_OFFSET, part, well_formed};
use super::{INTIDS, ListRegisters, NOBODY, PRIORITY_MASK, SPIS, Vgic};
use crate::ids::VcpuIndex;

const CTLR: u64 = 0x0;
const TYPER: u64 = 0x4;
const IIDR_OFFSET: u64 = 0x8;

const CTLR_GROUP0: u32 = 1 << 0;
const CTLR_GROUP1: u32 = 1 << 1;
/// ARE and DS: read as one.
const CTLR_FIXED: u32 = 1 << 4 | 1 << 6;

/// ITLinesNumber; IDbits 9 (10-bit INTIDs); A3V; No1N: an SPI goes to the one vCPU that is named.
const TYPER_VALUE: u64 = (INTIDS as u64 / 32 - 1) | 9 << 19 | 1 << 24 | 1 << 25;

/// The affinity fields of IROUTER. Interrupt_Routing_Mode is RES0, as TYPER.No1N says.
const ROUTER_MASK: u64 = 0xff_00ff_ffff;

impl Vgic {
    /// vCPU `by`, loaded here with its list registers, reads `size` bytes of the distributor. What isn't a register, or isn't
    /// of that size, reads as zero.
    #[inline]
    pub fn dist_read(&self, by: VcpuIndex, lrs: &impl ListRegisters, offset: u64, size: u8) -> u64 {
        if size == 4 && offset == TYPER {
            return TYPER_VALUE;
        }
        self.dist_read_other(by, lrs, offset, size)
    }

    fn dist_read_other(&self, by: VcpuIndex, lrs: &impl ListRegisters, offset: u64, size: u8) -> u64 {
        if !well_formed(offset, size) {
            return 0;
        }
        match (offset, size) {
            (0x400..0x800, 1 | 4) => (0..u64::from(size)).fold(0, |word, n| {
                let byte = self.spi_priority(offset - 0x400 + n).map_or(0, |byte| byte.load(Relaxed));
                word | u64::from(byte) << (8 * n)
            }),
            (0x6000..0x8000, 4 | 8) => match router_number(offset) {
                Some(n) => part(self.router[n].load(Relaxed), offset, size),
                None => 0,
            },
            (CTLR, 4) => u64::from(self.dist_control()),
            (IIDR_OFFSET, 4) => u64::from(IIDR),
            (PIDR2_OFFSET, 4) => u64::from(PIDR2),
            (0xc00..0xd00, 4) => match spi_sixteen(offset) {
                Some(shift) => u64::from(spread((self.edge.load(Relaxed) >> shift) as u16)),
                None => 0,
            },
            (0x80..0x400, 4) => match BitRegister::at(offset) {
                Some((register, word @ 1..=2)) => {
                    self.spi_bits(register, by, lrs) >> (32 * (word - 1)) & 0xffff_ffff
                }
                _ => 0,
            },
            _ => 0,
        }
    }

    /// vCPU `by`, loaded here with its list registers, writes `size` bytes of the distributor. What isn't a writable register,
    /// or isn't of that size, ignores it. `notify` is called for each other vCPU that may now have something to take or
    /// to give back; `by` has its attention set.
    #[inline]
    pub fn dist_write(
        &self,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        offset: u64,
        size: u8,
        value: u64,
        notify: &mut impl FnMut(VcpuIndex),
    ) {
        if !well_formed(offset, size) {
            return;
        }
        let mut notify = |vcpu: VcpuIndex| {
            if vcpu != by {
                notify(vcpu);
            }
        };
        match (offset, size) {
            (0x80..0x400, 4) => {
                if let Some((register, word @ 1..=2)) = BitRegister::at(offset) {
                    let bits = (value & 0xffff_ffff) << (32 * (word - 1));
                    let half = 0xffff_ffff << (32 * (word - 1));
                    self.write_spi_bits(register, bits, half, by, lrs, &mut notify);
                }
            }
            (0x400..0x800, 1 | 4) => {
                for n in 0..u64::from(size) {
                    if let Some(priority) = self.spi_priority(offset - 0x400 + n) {
                        priority.store((value >> (8 * n)) as u8 & PRIORITY_MASK, Relaxed);
                    }
                }
            }
            (0xc00..0xd00, 4) => {
                if let Some(shift) = spi_sixteen(offset) {
                    let edges = u64::from(gather(value as u32)) << shift;
                    self.edge.fetch_and(edges | !(0xffff << shift), SeqCst);
                    self.edge.fetch_or(edges, SeqCst);
                    self.all_changed(&mut notify);
                }
            }
            (0x6000..0x8000, 4 | 8) => {
                if let Some(n) = router_number(offset) {
                    self.write_router(n, offset, size, value, &mut notify);
                }
            }
            (CTLR, 4) => {
                let mask = |bit: u32| if value as u32 & bit != 0 { u32::MAX } else { 0 };
                self.group0_on.store(mask(CTLR_GROUP0), SeqCst);
                self.group1_on.store(mask(CTLR_GROUP1), SeqCst);
                self.all_changed(&mut notify);
            }
            _ => {}
        }
    }

    fn dist_control(&self) -> u32 {
        CTLR_FIXED | self.group0_on.load(Relaxed) & CTLR_GROUP0 | self.group1_on.load(Relaxed) & CTLR_GROUP1
    }

    /// The priority of the INTID, if it is an SPI's.
    fn spi_priority(&self, intid: u64) -> Option<&core::sync::atomic::AtomicU8> {
        usize::try_from(intid.checked_sub(32)?).ok().and_then(|n| self.priority.get(n))
    }

    /// A register of one bit for each SPI, both words of it.
    fn spi_bits(&self, register: BitRegister, by: VcpuIndex, lrs: &impl ListRegisters) -> u64 {
        match register {
            BitRegister::Group => self.group1.load(Relaxed),
            BitRegister::SetEnable | BitRegister::ClearEnable => self.enabled.load(Relaxed),
            BitRegister::SetPending | BitRegister::ClearPending => {
                self.spi_pending() | self.spis_in_lrs(by, lrs, PENDING)
            }
            BitRegister::SetActive | BitRegister::ClearActive => {
                self.active.load(Relaxed) | self.spis_in_lrs(by, lrs, ACTIVE)
            }
        }
    }

    /// A write of one word, `half`, of a register of one bit for each SPI.
    fn write_spi_bits(
        &self,
        register: BitRegister,
        bits: u64,
        half: u64,
        by: VcpuIndex,
        lrs: &impl ListRegisters,
        notify: &mut impl FnMut(VcpuIndex),
    ) {
        let mut wake = VcpuSet::EMPTY;
        // SeqCst: the change comes before the look at what is pending (or in list registers) and before the signals. See
        // `spi_changed` for a poster's side.
        match register {
            BitRegister::Group => {
                self.group1.fetch_and(bits | !half, SeqCst);
                self.group1.fetch_or(bits, SeqCst);
                self.all_changed(notify);
            }
            BitRegister::SetEnable => {
                let new = bits & !self.enabled.fetch_or(bits, SeqCst);
                self.spis_changed(new & self.spi_pending(), notify);
            }
            BitRegister::ClearEnable => {
                let old = bits & self.enabled.fetch_and(!bits, SeqCst);
                self.spis_changed(old & self.in_lr.load(SeqCst), notify);
            }
            BitRegister::SetPending => {
                let new = bits & !self.latch.fetch_or(bits, SeqCst);
                self.spis_changed(new & self.spi_gate(), notify);
            }
            BitRegister::ClearPending => {
                self.latch.fetch_and(!bits, SeqCst);
                if bits & self.in_lr.load(SeqCst) != 0 {
                    wake = self.clear_in_lrs(by, lrs, u128::from(bits) << 32, PENDING);
                }
            }
            BitRegister::SetActive => {
                let rest = (self.set_active_in_lrs(by, lrs, u128::from(bits) << 32) >> 32) as u64;
                let rest = rest & !self.in_lr.load(SeqCst);
                self.active.fetch_or(rest, SeqCst);
                self.spis_changed(rest, notify);
            }
            BitRegister::ClearActive => {
                let old = bits & self.active.fetch_and(!bits, SeqCst);
                if bits & self.in_lr.load(SeqCst) != 0 {
                    wake = self.clear_in_lrs(by, lrs, u128::from(bits) << 32, ACTIVE);
                }
                self.spis_changed(old & self.spi_pending(), notify);
            }
        }
        wake.for_each(notify);
    }

    /// Signals and notifies the vCPUs to which these SPIs go, each once.
    fn spis_changed(&self, spis: u64, notify: &mut impl FnMut(VcpuIndex)) {
        if spis == 0 {
            return;
        }
        for vcpu in (0..self.vcpus).map(VcpuIndex) {
            if self.cpu(vcpu).routed.load(SeqCst) & spis != 0 {
                self.cpu(vcpu).signal();
                notify(vcpu);
            }
        }
    }

    /// Signals and notifies all vCPUs: after a rare change.
    fn all_changed(&self, notify: &mut impl FnMut(VcpuIndex)) {
        for vcpu in (0..self.vcpus).map(VcpuIndex) {
            self.cpu(vcpu).signal();
            notify(vcpu);
        }
    }

    fn write_router(&self, n: usize, offset: u64, size: u8, value: u64, notify: &mut impl FnMut(VcpuIndex)) {
        let old = self.router[n].load(Relaxed);
        let new = match (size, offset & 4) {
            (8, _) => value,
            (_, 0) => old & !0xffff_ffff | value & 0xffff_ffff,
            _ => old & 0xffff_ffff | value << 32,
        } & ROUTER_MASK;
        self.router[n].store(new, Relaxed);
        let to = if new < u64::from(self.vcpus) { new as u8 } else { NOBODY };
        let bit = 1u64 << n;
        // SeqCst: who posts changes the state, then reads the route; here the route changes, then both ends are signalled,
        // whatever the state is: the old one to take it back, the new one to take it.
        let from = self.route[n].swap(to, SeqCst);
        if from == to {
            return;
        }
        if from != NOBODY {
            self.cpu(VcpuIndex(from)).routed.fetch_and(!bit, SeqCst);
        }
        if to != NOBODY {
            self.cpu(VcpuIndex(to)).routed.fetch_or(bit, SeqCst);
        }
        let affected = self.spi_pending() & self.spi_gate() | self.in_lr.load(SeqCst);
        for route in [from, to] {
            if route != NOBODY && affected & bit != 0 {
                self.cpu(VcpuIndex(route)).signal();
                notify(VcpuIndex(route));
            }
        }
    }
}

/// The SPI (0 is INTID 32) whose IROUTER is at `offset`, either half.
fn router_number(offset: u64) -> Option<usize> {
    let n = (offset - 0x6000) / 8;
    (32..u64::from(INTIDS)).contains(&n).then(|| (n - 32) as usize & (SPIS as usize - 1))
}

/// The number of the first of 16 SPIs whose ICFGR is at `offset`.
fn spi_sixteen(offset: u64) -> Option<u32> {
    let n = (offset - 0xc00) / 4 * 16;
    (32..u64::from(INTIDS)).contains(&n).then(|| (n - 32) as u32)
}
