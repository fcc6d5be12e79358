//! Between software and list registers: harvest, take back, fill. All of it runs on the vCPU's owner.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::bank::{HW_PINTID_SHIFT, HW_WAITING, LATCHED, LATCHES, VgicCpu, clear, set};
use super::bits::{VcpuSet, intids, ones};
use super::lr::{self, ACTIVE, EOI, HW, PENDING, PINTID, PINTID_SHIFT, STATE};
use super::{ListRegisters, Vgic, control};
use crate::ids::{IntId, VcpuIndex};

impl Vgic {
    /// Private interrupts that may be delivered when pending: enabled, and so is their group.
    #[inline(always)]
    pub(super) fn private_gate(&self, cpu: &VgicCpu) -> u32 {
        // SeqCst: a poster has latched before; see `latch_private`. On the owner's side it is as cheap as any load.
        let group1 = cpu.group1.load(SeqCst);
        let groups = group1 & self.group1_on.load(SeqCst) | !group1 & self.group0_on.load(SeqCst);
        groups & cpu.enabled.load(SeqCst)
    }

    /// SPIs that may be delivered when pending.
    pub(super) fn spi_gate(&self) -> u64 {
        let widen = |word: u32| word as i32 as i64 as u64;
        let group1 = self.group1.load(SeqCst);
        let groups =
            group1 & widen(self.group1_on.load(SeqCst)) | !group1 & widen(self.group0_on.load(SeqCst));
        groups & self.enabled.load(SeqCst)
    }

    /// SPIs that are pending outside of list registers.
    pub(super) fn spi_pending(&self) -> u64 {
        self.latch.load(SeqCst) | self.line.load(SeqCst) & !self.edge.load(SeqCst)
    }

    /// Everything (bit = INTID) that may be delivered to a vCPU when pending.
    fn gate(&self, cpu: &VgicCpu) -> u128 {
        wide(self.private_gate(cpu), self.spi_gate() & cpu.routed.load(SeqCst))
    }

    /// Everything that is pending in software and may be delivered to a vCPU.
    pub(super) fn wanted(&self, cpu: &VgicCpu) -> u128 {
        let private = cpu.signals.load(SeqCst) as u32
            | cpu.line.load(SeqCst) & !cpu.edge.load(SeqCst)
            | cpu.hw_waiting();
        let pending = wide(private, self.spi_pending());
        let active = wide(cpu.active.load(SeqCst), self.active.load(SeqCst));
        pending & self.gate(cpu) & !active
    }

    /// Everything that is in a list register of this vCPU or, an SPI, of any.
    pub(super) fn in_list_registers(&self, cpu: &VgicCpu) -> u128 {
        wide(cpu.in_lr.load(SeqCst), self.in_lr.load(SeqCst))
    }

    /// The usual flush: one edge-triggered private interrupt was latched, nothing else has changed, nothing waits. False
    /// if it is any other case, and then all signals are still up.
    #[inline(always)]
    pub(super) fn flush_one(&self, cpu: &VgicCpu, lrs: &impl ListRegisters) -> bool {
        // Acquire: what was changed before the signal was raised is seen below.
        let signals = cpu.signals.load(Acquire);
        if signals & !LATCHES != LATCHED {
            return false;
        }
        let Some(used) = self.harvest_plain(cpu, lrs) else { return false };
        let want = signals as u32 & self.private_gate(cpu) & !cpu.active.load(Relaxed);
        let alone = want.is_power_of_two() && want & !cpu.in_lr.load(Relaxed) & cpu.edge.load(Relaxed) != 0;
        let slot = (!used).trailing_zeros() as usize;
        if !alone || slot != 0 && slot >= lrs.count() {
            return false;
        }
        // Takes the latch and lowers the signal, if nobody has changed either since: then all that there is has been
        // looked at. SeqCst, as all operations on this word: who posts after it raises the signal again.
        let rest = signals & LATCHES & !u64::from(want);
        if cpu.signals.compare_exchange(signals, rest, SeqCst, Relaxed).is_err() {
            return false;
        }
        let intid = want.trailing_zeros();
        let group1 = cpu.group1.load(Relaxed) & want != 0;
        let priority = cpu.priority[intid as usize & 31].load(Relaxed);
        lrs.write(slot, lr::encode(intid, priority, group1) | PENDING);
        cpu.occupy(slot, intid);
        set(&cpu.latched, 1 << slot);
        true
    }

    /// The usual harvest: frees list registers whose private interrupts the guest has completed, and returns the ones in
    /// use; `None` if lines may have to be sampled, SPIs to be released, or interrupts wait.
    #[inline(always)]
    pub(super) fn harvest_plain(&self, cpu: &VgicCpu, lrs: &impl ListRegisters) -> Option<u32> {
        let used = cpu.used.load(Relaxed);
        if used == 0 {
            // Nothing waits for a list register if none is in use.
            return Some(0);
        }
        if cpu.eoi.load(Relaxed) != 0 || cpu.control.load(Relaxed) != control::EN {
            return None;
        }
        for n in ones(used & lrs.empty_mask()) {
            if cpu.intid(n) >= 32 {
                return None;
            }
            cpu.vacate(n);
        }
        Some(cpu.used.load(Relaxed))
    }

    /// The flush for every case. Returns other vCPUs that have got something to do.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_all(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        // Signals are lowered before anything is looked at (SeqCst: the loads below stay below), so that a post that is
        // missed here has its signal still up.
        cpu.signals.fetch_and(LATCHES, SeqCst);
        let mut wake = self.harvest(vcpu, lrs);
        self.adopt_active(vcpu, lrs);
        wake |= self.take_back(vcpu, lrs);
        let waiting = self.fill(vcpu, lrs, &mut wake);
        watch(cpu, lrs, waiting);
        wake.without(vcpu)
    }

    /// Frees all list registers whose interrupt has ended.
    pub(super) fn harvest(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let used = cpu.used.load(Relaxed);
        if used == 0 {
            return VcpuSet::EMPTY;
        }
        // One that has asked for a maintenance interrupt is not in ICH_ELRSR_EL2 until that is answered.
        let eoi = cpu.eoi.load(Relaxed);
        let ended = if eoi != 0 { lrs.eoi_mask() & eoi } else { 0 };
        let mut wake = VcpuSet::EMPTY;
        for n in ones(used & (lrs.empty_mask() | ended)) {
            wake |= self.free(vcpu, n, lrs);
        }
        wake
    }

    /// Frees list register `n`, whose interrupt is neither pending nor active any more.
    pub(super) fn free(&self, vcpu: VcpuIndex, n: usize, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let intid = cpu.intid(n);
        let hw = cpu.hw.load(Relaxed);
        if hw != 0 && hw & (HW_WAITING | 0xff) == intid && cpu.eoi.load(Relaxed) >> n & 1 != 0 {
            // Its link was cut (`soften`), so the hardware has left the physical one active.
            lrs.deactivate(IntId(hw >> HW_PINTID_SHIFT));
        }
        lrs.write(n, 0);
        cpu.vacate(n);
        if intid < 32 { VcpuSet::EMPTY } else { self.release_spi(vcpu, intid - 32) }
    }

    /// Gives up the claim on an SPI. If it goes to another vCPU by now and is pending, that one is returned.
    fn release_spi(&self, vcpu: VcpuIndex, n: u32) -> VcpuSet {
        let bit = 1u64 << (n & 63);
        // SeqCst: the claim is given up before route and state are read. Who changes those, and then finds the
        // claim taken, has changed them before these loads.
        self.in_lr.fetch_and(!bit, SeqCst);
        let route = self.route[n as usize & 63].load(SeqCst);
        if route == vcpu.0 || route == super::NOBODY || self.spi_pending() & self.spi_gate() & bit == 0 {
            return VcpuSet::EMPTY;
        }
        self.cpu(VcpuIndex(route)).signal();
        VcpuSet::one(VcpuIndex(route))
    }

    /// Interrupts that were made active by ISACTIVER get a list register, if one is free, so that the guest's
    /// deactivation reaches them.
    fn adopt_active(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) {
        let cpu = self.cpu(vcpu);
        let active = wide(cpu.active.load(Relaxed), self.active.load(SeqCst) & cpu.routed.load(SeqCst));
        if active == 0 {
            return;
        }
        for intid in intids(active & !self.in_list_registers(cpu)) {
            let Some(slot) = free_slot(cpu, lrs) else { return };
            if intid < 32 {
                cpu.active.fetch_and(!(1 << intid), SeqCst);
            } else {
                let bit = 1u64 << (intid - 32);
                if self.in_lr.fetch_or(bit, SeqCst) & bit != 0 {
                    continue;
                }
                self.active.fetch_and(!bit, SeqCst);
            }
            self.write_lr(cpu, lrs, slot, intid, ACTIVE);
        }
    }

    /// Takes back, or changes, what is in list registers and is no longer as it should be: disabled, re-routed, its
    /// line low, or latched once more.
    fn take_back(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let mut wake = VcpuSet::EMPTY;
        let used = cpu.used.load(Relaxed);
        if used == 0 {
            return wake;
        }
        let gate = self.gate(cpu);
        let level = !wide(cpu.edge.load(SeqCst), self.edge.load(SeqCst));
        for n in ones(used) {
            let intid = cpu.intid(n);
            let bit = 1u128 << (intid & 127);
            let mut value = lrs.read(n);
            if value & HW == 0 && level & bit != 0 && value & EOI == 0 {
                // It was edge-triggered when it went in.
                value |= EOI;
                set(&cpu.eoi, 1 << n);
                lrs.write(n, value);
            }
            if value & PENDING != 0 {
                let by_line = value & HW == 0 && level & bit != 0 && cpu.latched.load(Relaxed) >> n & 1 == 0;
                if gate & bit == 0 || by_line && !self.line_is_high(cpu, intid) {
                    wake |= self.retract(vcpu, n, value, lrs);
                    continue;
                }
            }
            if gate & bit != 0 && self.take_latch(cpu, intid) {
                // Posted again: pending once if the guest hasn't acknowledged it, else pending and active, which a linked
                // one can't be.
                if value & HW != 0 && value & ACTIVE != 0 {
                    value = soften(cpu, n, value);
                }
                if value & PENDING == 0 || value & HW == 0 {
                    set(&cpu.latched, 1 << n);
                }
                lrs.write(n, value | PENDING);
            }
        }
        wake
    }

    /// Takes the pending state out of list register `n`, which holds `value`, and back into software.
    fn retract(&self, vcpu: VcpuIndex, n: usize, value: u64, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let intid = cpu.intid(n);
        if cpu.latched.load(Relaxed) >> n & 1 != 0 {
            clear(&cpu.latched, 1 << n);
            // No signal: it waits for whoever enables it, or for a list register.
            if intid < 32 {
                cpu.signals.fetch_or(1 << intid, SeqCst);
            } else {
                self.latch.fetch_or(1 << (intid - 32), SeqCst);
            }
        }
        if value & ACTIVE != 0 {
            lrs.write(n, value & !PENDING);
            return VcpuSet::EMPTY;
        }
        let hw = cpu.hw.load(Relaxed);
        if hw != 0 && hw & 0xff == intid {
            // The physical one stays active, so that it is silent while this one waits.
            cpu.hw.store(hw | HW_WAITING, Relaxed);
        }
        self.free(vcpu, n, lrs)
    }

    /// Fills free list registers by priority; whether some interrupts are left that wait for one.
    fn fill(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters, wake: &mut VcpuSet) -> bool {
        let cpu = self.cpu(vcpu);
        let mut waiting = false;
        let mut want = self.wanted(cpu) & !self.in_list_registers(cpu);
        while want != 0 {
            let intid = self.most_urgent(cpu, want);
            let slot = match free_slot(cpu, lrs) {
                Some(slot) => slot,
                None => {
                    waiting = true;
                    let Some((n, value)) = least_urgent(cpu, lrs, self.priority_of(cpu, intid)) else {
                        break;
                    };
                    *wake |= self.retract(vcpu, n, value, lrs);
                    n
                }
            };
            want &= !(1u128 << intid);
            if intid < 32 {
                self.place_private(cpu, lrs, slot, intid);
            } else {
                *wake |= self.place_spi(vcpu, lrs, slot, intid);
            }
        }
        if waiting && free_slot(cpu, lrs).is_some() {
            // One that made room for another whose cause then went away. Once more at the next entry.
            cpu.signal();
        }
        waiting
    }

    /// Of a set that isn't empty: the INTID of highest priority, of these the lowest.
    fn most_urgent(&self, cpu: &VgicCpu, set: u128) -> u32 {
        if set.is_power_of_two() {
            return set.trailing_zeros();
        }
        // The first of equals: `min_by_key` keeps it.
        intids(set).min_by_key(|&intid| self.priority_of(cpu, intid)).unwrap_or(0)
    }

    fn place_private(&self, cpu: &VgicCpu, lrs: &impl ListRegisters, slot: usize, intid: u32) {
        let mut state = 0;
        let hw = cpu.hw.load(Relaxed);
        if hw & HW_WAITING != 0 && hw & 0xff == intid {
            let pintid = (hw & !HW_WAITING) >> HW_PINTID_SHIFT;
            if lrs.line_high(IntId(pintid)) {
                cpu.hw.store(hw & !HW_WAITING, Relaxed);
                state = PENDING | HW | u64::from(pintid) << PINTID_SHIFT;
            } else {
                // Its cause has gone while it waited.
                lrs.deactivate(IntId(pintid));
                cpu.hw.store(0, Relaxed);
            }
        }
        let latched = self.take_latch(cpu, intid);
        if state == 0 && (latched || self.line_is_high(cpu, intid)) {
            state = PENDING;
        }
        if state != 0 {
            self.write_lr(cpu, lrs, slot, intid, state);
            if latched && state & HW == 0 {
                set(&cpu.latched, 1 << slot);
            }
        }
    }

    fn place_spi(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters, slot: usize, intid: u32) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let n = intid - 32;
        let bit = 1u64 << (n & 63);
        // SeqCst: the claim comes before the loads of route, latch and line.
        if self.in_lr.fetch_or(bit, SeqCst) & bit != 0 {
            return VcpuSet::EMPTY;
        }
        if self.route[n as usize & 63].load(SeqCst) == vcpu.0 {
            let latched = self.take_latch(cpu, intid);
            if latched || self.line_is_high(cpu, intid) {
                self.write_lr(cpu, lrs, slot, intid, PENDING);
                if latched {
                    set(&cpu.latched, 1 << slot);
                }
                return VcpuSet::EMPTY;
            }
        }
        self.release_spi(vcpu, n)
    }

    /// Writes a list register that is free, `state` being its state and link.
    fn write_lr(&self, cpu: &VgicCpu, lrs: &impl ListRegisters, slot: usize, intid: u32, state: u64) {
        let (group1, edge) = if intid < 32 {
            (cpu.group1.load(Relaxed) >> intid & 1 != 0, cpu.edge.load(Relaxed) >> intid & 1 != 0)
        } else {
            let n = intid - 32;
            (self.group1.load(Relaxed) >> n & 1 != 0, self.edge.load(Relaxed) >> n & 1 != 0)
        };
        let mut value = lr::encode(intid, self.priority_of(cpu, intid), group1) | state;
        if state & HW == 0 && !edge {
            // The line is sampled again at the end.
            value |= EOI;
            set(&cpu.eoi, 1 << slot);
        }
        lrs.write(slot, value);
        cpu.occupy(slot, intid);
    }

    /// Takes the latch of an interrupt; whether it was set.
    fn take_latch(&self, cpu: &VgicCpu, intid: u32) -> bool {
        // SeqCst: after the claim of the list register's content; a post after this is a new one.
        if intid < 32 {
            let bit = 1u64 << intid;
            cpu.signals.load(SeqCst) & bit != 0 && cpu.signals.fetch_and(!bit, SeqCst) & bit != 0
        } else {
            let bit = 1u64 << ((intid - 32) & 63);
            self.latch.load(SeqCst) & bit != 0 && self.latch.fetch_and(!bit, SeqCst) & bit != 0
        }
    }

    /// Whether an interrupt is level-triggered and its line high.
    fn line_is_high(&self, cpu: &VgicCpu, intid: u32) -> bool {
        if intid < 32 {
            (cpu.line.load(SeqCst) & !cpu.edge.load(SeqCst)) >> intid & 1 != 0
        } else {
            (self.line.load(SeqCst) & !self.edge.load(SeqCst)) >> ((intid - 32) & 63) & 1 != 0
        }
    }

    fn priority_of(&self, cpu: &VgicCpu, intid: u32) -> u8 {
        if intid < 32 {
            cpu.priority[intid as usize & 31].load(Relaxed)
        } else {
            self.priority[(intid - 32) as usize & 63].load(Relaxed)
        }
    }
}

impl VgicCpu {
    /// Notes that list register `n`, free until now, holds an interrupt.
    #[inline(always)]
    pub(super) fn occupy(&self, n: usize, intid: u32) {
        self.lr_intid[n & 15].store(intid as u8, Relaxed);
        set(&self.used, 1 << n);
        if intid < 32 {
            set(&self.in_lr, 1 << intid);
        }
    }

    /// Notes that list register `n` holds nothing any more. An SPI's claim is the caller's.
    #[inline(always)]
    pub(super) fn vacate(&self, n: usize) {
        let intid = self.intid(n);
        if intid < 32 {
            clear(&self.in_lr, 1 << intid);
        }
        // The waiting one isn't in a list register, and INTID 0 is never linked.
        if self.hw.load(Relaxed) & (HW_WAITING | 0xff) == intid {
            self.hw.store(0, Relaxed);
        }
        let bit = 1 << n;
        clear(&self.used, bit);
        clear(&self.eoi, bit);
        clear(&self.latched, bit);
    }
}

/// A list register that is free.
#[inline(always)]
pub(super) fn free_slot(cpu: &VgicCpu, lrs: &impl ListRegisters) -> Option<usize> {
    let slot = (!cpu.used.load(Relaxed)).trailing_zeros() as usize;
    (slot < lrs.count().min(16)).then_some(slot)
}

/// The list register (and its value) whose interrupt is the least urgent one that is pending alone, if it is less
/// urgent than `priority`.
fn least_urgent(cpu: &VgicCpu, lrs: &impl ListRegisters, priority: u8) -> Option<(usize, u64)> {
    ones(cpu.used.load(Relaxed))
        .map(|n| (n, lrs.read(n)))
        .filter(|&(_, value)| value & STATE == PENDING && lr::priority(value) > priority)
        .max_by_key(|&(_, value)| lr::priority(value))
}

/// Cuts the link of a hardware-linked interrupt: its end is reported, and [`Vgic::free`] deactivates the physical one.
pub(super) fn soften(cpu: &VgicCpu, n: usize, value: u64) -> u64 {
    set(&cpu.eoi, 1 << n);
    value & !(HW | PINTID) | EOI
}

/// Asks for maintenance interrupts while interrupts wait for a list register, so that the owner comes back when one may be
/// free; never for one that would be asserted at once.
fn watch(cpu: &VgicCpu, lrs: &impl ListRegisters, waiting: bool) {
    let mut wanted = control::EN;
    if waiting {
        let used = cpu.used.load(Relaxed);
        if ones(used).any(|n| lrs.read(n) & STATE == PENDING) {
            wanted |= control::NPIE;
        } else {
            // All are active. Any of them may be the first to end.
            for n in ones(used & !cpu.eoi.load(Relaxed)) {
                let value = lrs.read(n);
                let value = if value & HW != 0 { soften(cpu, n, value) } else { value | EOI };
                set(&cpu.eoi, 1 << n);
                lrs.write(n, value);
            }
        }
        if used.count_ones() > 1 {
            wanted |= control::UIE;
        }
    }
    if cpu.control.load(Relaxed) != wanted {
        cpu.control.store(wanted, Relaxed);
        lrs.set_control(wanted);
    }
}

/// Private interrupts and SPIs as one set: bit = INTID.
#[inline(always)]
pub(super) fn wide(private: u32, spis: u64) -> u128 {
    u128::from(private) | u128::from(spis) << 32
}
