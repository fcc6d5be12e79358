//! Between software and list registers, every case of it: harvest, take back, fill. All of it runs on the vCPU's owner.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::bank::{HW_PINTID_SHIFT, HW_WAITING, LATCHES, VgicCpu};
use super::bits::{VcpuSet, intids, ones};
use super::lr::{self, ACTIVE, EOI, HW, PENDING, PINTID, PINTID_SHIFT, STATE};
use super::state::wide;
use super::{ListRegisters, Vgic, control};
use crate::ids::{IntId, VcpuIndex};

impl Vgic {
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
        self.watch(cpu, lrs, waiting);
        wake.without(vcpu)
    }

    /// Frees all list registers whose interrupt has ended.
    pub(super) fn harvest(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let notes = cpu.notes();
        if notes.used() == 0 {
            return VcpuSet::EMPTY;
        }
        // One that has asked for a maintenance interrupt is not in ICH_ELRSR_EL2 until that is answered.
        let ended = if notes.eoi() != 0 { lrs.eoi_mask() & notes.eoi() } else { 0 };
        let mut wake = VcpuSet::EMPTY;
        for n in ones(notes.used() & (lrs.empty_mask() | ended)) {
            wake |= self.free(vcpu, n, lrs);
        }
        wake
    }

    /// Frees list register `n`, whose interrupt is neither pending nor active any more.
    pub(super) fn free(&self, vcpu: VcpuIndex, n: usize, lrs: &impl ListRegisters) -> VcpuSet {
        let cpu = self.cpu(vcpu);
        let intid = cpu.intid(n);
        let hw = cpu.hw.load(Relaxed);
        if hw != 0 && hw & (HW_WAITING | 0xff) == intid && cpu.notes().eoi() >> n & 1 != 0 {
            // Its link was cut (`soften`), so the hardware has left the physical one active.
            lrs.deactivate(IntId(hw >> HW_PINTID_SHIFT));
        }
        lrs.write(n, 0);
        cpu.vacate(n);
        if intid < 32 { VcpuSet::EMPTY } else { self.release_spi(vcpu, intid - 32) }
    }

    /// Gives up the claim on an SPI. If it goes to another vCPU by now and is pending, that one is returned.
    pub(super) fn release_spi(&self, vcpu: VcpuIndex, n: u32) -> VcpuSet {
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
        let used = cpu.notes().used();
        if used == 0 {
            return wake;
        }
        let gate = self.gate(cpu);
        let level = !wide(cpu.edge.load(SeqCst), self.edge.load(SeqCst));
        let elsewhere = wide(0, !cpu.routed.load(SeqCst));
        for n in ones(used) {
            let intid = cpu.intid(n);
            let bit = 1u128 << (intid & 127);
            let mut value = lrs.read(n);
            if value & (HW | EOI) == 0 && (level | elsewhere) & bit != 0 {
                // It was edge-triggered when it went in, or it was routed to this vCPU: its end matters now.
                value = report_end(cpu, n, value);
                lrs.write(n, value);
            }
            if value & PENDING != 0 {
                let by_line = value & HW == 0 && level & bit != 0 && !cpu.notes().latched(n);
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
                    cpu.set_notes(cpu.notes().with_latched(n));
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
        if cpu.notes().latched(n) {
            cpu.set_notes(cpu.notes().without_latched(n));
            // No signal: it waits for whoever enables it, or for a list register.
            self.set_latch(cpu, intid);
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
        for _ in 0..4 {
            let waiting = self.fill_once(vcpu, lrs, wake);
            if !waiting || free_slot(cpu, lrs).is_none() {
                return waiting;
            }
            // One has made room for another whose cause then went away (another CPU did that). Once more.
        }
        // Not for ever: at the next entry.
        cpu.signal();
        true
    }

    fn fill_once(&self, vcpu: VcpuIndex, lrs: &impl ListRegisters, wake: &mut VcpuSet) -> bool {
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
                cpu.set_notes(cpu.notes().with_latched(slot));
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
                    cpu.set_notes(cpu.notes().with_latched(slot));
                }
                return VcpuSet::EMPTY;
            }
        }
        self.release_spi(vcpu, n)
    }

    /// Writes a list register that is free, `state` being its state and link.
    fn write_lr(&self, cpu: &VgicCpu, lrs: &impl ListRegisters, slot: usize, intid: u32, state: u64) {
        let (value, edge) = if intid < 32 {
            (cpu.encode_private(intid), cpu.edge.load(Relaxed) >> intid & 1 != 0)
        } else {
            let n = (intid - 32) & 63;
            let group1 = self.group1.load(Relaxed) >> n & 1 != 0;
            let value = lr::encode(intid, self.priority_of(cpu, intid), group1);
            (value, self.edge.load(Relaxed) >> n & 1 != 0)
        };
        let mut value = value | state;
        if state & HW == 0 && !edge {
            // The line is sampled again at the end.
            value = report_end(cpu, slot, value);
        }
        lrs.write(slot, value);
        cpu.occupy(slot, intid);
    }

    /// Asks for maintenance interrupts while interrupts wait for a list register, so that the owner comes back when one may be
    /// free; never for one that would be asserted at once.
    fn watch(&self, cpu: &VgicCpu, lrs: &impl ListRegisters, waiting: bool) {
        let mut wanted = control::EN;
        if waiting {
            let used = cpu.notes().used();
            for n in ones(used) {
                let value = lrs.read(n);
                if value & STATE == STATE {
                    // At its end it would be pending at once, before others that wait and are more urgent.
                    self.set_latch(cpu, cpu.intid(n));
                    cpu.set_notes(cpu.notes().without_latched(n));
                    lrs.write(n, report_end(cpu, n, value & !PENDING));
                } else if value & STATE == PENDING {
                    wanted |= control::NPIE;
                }
            }
            if wanted == control::EN {
                // All are active. Any of them may be the first to end.
                for n in ones(used & !cpu.notes().eoi()) {
                    let value = lrs.read(n);
                    let value =
                        if value & HW != 0 { soften(cpu, n, value) } else { report_end(cpu, n, value) };
                    lrs.write(n, value);
                }
            }
            if used.count_ones() > 1 {
                wanted |= control::UIE;
            }
        }
        if cpu.notes().control() != wanted {
            cpu.set_notes(cpu.notes().with_control(wanted));
            lrs.set_control(wanted);
        }
    }
}

/// A list register that is free.
#[inline(always)]
pub(super) fn free_slot(cpu: &VgicCpu, lrs: &impl ListRegisters) -> Option<usize> {
    let slot = (!cpu.notes().used()).trailing_zeros() as usize;
    (slot < lrs.count().min(16)).then_some(slot)
}

/// The list register (and its value) whose interrupt is the least urgent one that is pending alone, if it is less
/// urgent than `priority`.
fn least_urgent(cpu: &VgicCpu, lrs: &impl ListRegisters, priority: u8) -> Option<(usize, u64)> {
    ones(cpu.notes().used())
        .map(|n| (n, lrs.read(n)))
        .filter(|&(_, value)| value & STATE == PENDING && lr::priority(value) > priority)
        .max_by_key(|&(_, value)| lr::priority(value))
}

/// Cuts the link of a hardware-linked interrupt: its end is reported, and [`Vgic::free`] deactivates the physical one.
pub(super) fn soften(cpu: &VgicCpu, n: usize, value: u64) -> u64 {
    report_end(cpu, n, value & !(HW | PINTID))
}

/// A maintenance interrupt at the end of an interrupt that isn't linked.
pub(super) fn report_end(cpu: &VgicCpu, n: usize, value: u64) -> u64 {
    cpu.set_notes(cpu.notes().with_eoi(n));
    value | EOI
}
