//! Random histories of two vCPUs on two CPUs against a model of what must be delivered.
//!
//! The model is exact about lost wake-ups: a vCPU in the guest comes back to the hypervisor only when it traps, when it was
//! notified, or when a maintenance or timer interrupt is asserted; one that isn't loaded is looked at only when it was notified.

mod world;

use proptest::prelude::*;

use super::machine::*;
use crate::ids::{IntId, VcpuIndex};
use crate::vgic::fake::{FakeLrs, SPURIOUS};
use crate::vgic::lr::{ACTIVE, PENDING, STATE};
use world::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    PostPrivate(u8, u8),
    Sgi(u8, u8, u8),
    PostSpi(u8),
    SpiLine(u8, bool),
    PpiLine(u8, bool),
    Clock(u8, bool),
    Enable(u8, u8, bool),
    Route(u8, u8, u8),
    ClearPending(u8, u8),
    /// The guest of a vCPU acknowledges one.
    Take(u8),
    /// It ends the one that runs.
    End(u8),
    /// EOImode 1: it deactivates one of those whose priority was dropped.
    Deactivate(u8, u8),
    /// An exit for another reason.
    Trap(u8),
    /// A vCPU leaves its CPU, or comes to one.
    Switch(u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let v = 0..VCPUS as u8;
    prop_oneof![
        3 => (v.clone(), any::<u8>()).prop_map(|(v, n)| Op::PostPrivate(v, n)),
        3 => (v.clone(), any::<u8>(), 0..4u8).prop_map(|(v, n, to)| Op::Sgi(v, n, to)),
        4 => any::<u8>().prop_map(Op::PostSpi),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(n, high)| Op::SpiLine(n, high)),
        2 => (v.clone(), any::<bool>()).prop_map(|(v, high)| Op::PpiLine(v, high)),
        2 => (v.clone(), any::<bool>()).prop_map(|(v, high)| Op::Clock(v, high)),
        4 => (v.clone(), any::<u8>(), prop::bool::weighted(0.6)).prop_map(|(v, n, on)| Op::Enable(v, n, on)),
        2 => (v.clone(), any::<u8>(), v.clone()).prop_map(|(v, n, to)| Op::Route(v, n, to)),
        1 => (v.clone(), any::<u8>()).prop_map(|(v, n)| Op::ClearPending(v, n)),
        8 => v.clone().prop_map(Op::Take),
        6 => v.clone().prop_map(Op::End),
        3 => (v.clone(), any::<u8>()).prop_map(|(v, n)| Op::Deactivate(v, n)),
        1 => v.clone().prop_map(Op::Trap),
        2 => (v, 0..CPUS as u8).prop_map(|(v, c)| Op::Switch(v, c)),
    ]
}

impl World {
    fn apply(&mut self, op: Op) {
        match op {
            Op::PostPrivate(v, n) => {
                let v = v as usize;
                let intid = PRIVATE_EDGES[n as usize % PRIVATE_EDGES.len()];
                self.owed[(v, intid)] = true;
                let seen = notified(|mut notify| {
                    self.vgic.post_private(VcpuIndex(v as u8), IntId(intid), &mut notify)
                });
                self.notify(seen);
            }
            Op::Sgi(v, n, to) => {
                if self.vcpus[v as usize].cpu.is_none() {
                    return;
                }
                let intid = PRIVATE_EDGES[n as usize % (PRIVATE_EDGES.len() - 1)];
                for target in (0..VCPUS).filter(|&t| to & 1 << t != 0) {
                    self.owed[(target, intid)] = true;
                }
                let value = sgi(u64::from(intid), u64::from(to));
                let seen = notified(|mut notify| self.vgic.send_sgi(VcpuIndex(v), value, &mut notify));
                self.notify(seen);
                self.vcpus[v as usize].must_enter = true;
            }
            Op::PostSpi(n) => {
                let intid = SPI_EDGES[n as usize % SPI_EDGES.len()];
                self.owed[(0, intid)] = true;
                let seen = notified(|mut notify| self.vgic.post_spi(IntId(intid), &mut notify));
                self.notify(seen);
            }
            Op::SpiLine(n, high) => {
                let (intid, high) = match self.in_list_registers(n, 32..48) {
                    Some(intid) => (intid, false),
                    None => (SPI_LINES[n as usize % SPI_LINES.len()], high),
                };
                self.set_spi_line(intid, high);
            }
            Op::PpiLine(v, high) => {
                self.line[(v as usize, PPI_LINE)] = high;
                let seen = notified(|mut notify| {
                    self.vgic.set_ppi_line(VcpuIndex(v), IntId(PPI_LINE), high, &mut notify)
                });
                self.notify(seen);
            }
            Op::Clock(v, high) => self.set_clock(v as usize, high),
            // A guest accesses registers while it is loaded.
            Op::Enable(v, ..) | Op::Route(v, ..) | Op::ClearPending(v, _)
                if self.vcpus[v as usize].cpu.is_none() => {}
            Op::Enable(v, n, on) => {
                let (intid, on) = match self.in_list_registers(n, 0..128) {
                    Some(intid) => (intid, false),
                    None => (self.all[n as usize % self.all.len()].1, on),
                };
                self.enabled[key(v as usize, intid)] = on;
                self.access(v as usize, intid, if on { 0x100 } else { 0x180 });
            }
            Op::Route(v, n, to) => {
                let spis = SPI_LINES.iter().chain(&SPI_EDGES).collect::<Vec<_>>();
                let intid = self.in_list_registers(n, 32..64).unwrap_or(*spis[n as usize % spis.len()]);
                self.route[(0, intid)] = to as usize;
                let lrs = &self.lrs[self.vcpus[v as usize].cpu.unwrap()];
                let seen = notified(|mut notify| {
                    let offset = 0x6000 + 8 * u64::from(intid);
                    self.vgic.dist_write(VcpuIndex(v), lrs, offset, 8, u64::from(to), &mut notify);
                });
                self.notify(seen);
                self.vcpus[v as usize].must_enter = true;
            }
            Op::ClearPending(v, n) => {
                // Exact for what is private to the vCPU that does it.
                let v = v as usize;
                let intid = PRIVATE_EDGES[n as usize % PRIVATE_EDGES.len()];
                self.owed[(v, intid)] = false;
                self.access(v, intid, 0x280);
            }
            Op::Take(v) => {
                self.take(v as usize);
            }
            Op::End(v) => self.end(v as usize),
            Op::Deactivate(v, n) => {
                let v = v as usize;
                let Some(c) = self.vcpus[v].cpu else { return };
                let dropped = &mut self.vcpus[v].dropped;
                if !dropped.is_empty() {
                    let intid = dropped.remove(n as usize % dropped.len());
                    self.lrs[c].deactivate_virtual(intid);
                }
            }
            Op::Trap(v) => {
                self.vcpus[v as usize].must_enter = true;
                self.sync(v as usize);
            }
            Op::Switch(v, c) => self.switch(v as usize, c as usize),
        }
    }

    fn set_spi_line(&mut self, intid: u32, high: bool) {
        self.line[(0, intid)] = high;
        let seen = notified(|mut notify| self.vgic.set_spi_line(IntId(intid), high, &mut notify));
        self.notify(seen);
    }

    fn set_clock(&mut self, v: usize, high: bool) {
        let vcpu = &mut self.vcpus[v];
        // Only a vCPU that runs sets its timer; it may expire at any time.
        if let Some(c) = vcpu.cpu {
            let pending = self.lrs[c].values().iter().any(|&lr| lr & PENDING != 0 && lr as u32 == CLOCK);
            vcpu.clock_stale |= vcpu.clock && !high && pending;
        }
        if vcpu.cpu.is_some() || high {
            vcpu.clock = high;
        }
    }

    /// The guest acknowledges; checks that it gets what it must.
    fn take(&mut self, v: usize) -> Option<u32> {
        let c = self.vcpus[v].cpu?;
        // Kicks arrive everywhere first; then what others have given back is looked at.
        (0..VCPUS).for_each(|other| self.sync(other));
        self.sync(v);
        let lrs = &self.lrs[c];
        let active = lrs.values().iter().filter(|&&lr| lr & ACTIVE != 0).count();
        let room = active < lrs.values().len();
        let running = lrs.running();
        let deliverable = self.deliverable(v);
        let urgency = |intid: u32| u32::from(self.priority[key(v, intid)]);
        let best = deliverable.iter().map(|&intid| urgency(intid)).min();
        let intid = lrs.acknowledge();
        if intid == SPURIOUS {
            // With room for it, whatever is more urgent than what runs is there.
            assert!(
                !room || best.is_none_or(|best| best >= running),
                "nothing is given of {deliverable:?}, running {running:#x}: {:x?}",
                lrs.values()
            );
            return None;
        }
        let k = key(v, intid);
        assert!(self.enabled[k], "INTID {intid} is disabled");
        if intid == CLOCK && !self.high(k) && self.vcpus[v].clock_stale {
            self.vcpus[v].clock_stale = false;
        } else {
            assert!(deliverable.contains(&intid), "INTID {intid} of {deliverable:?} for vCPU {v}");
            assert_eq!(Some(urgency(intid)), best, "INTID {intid} of {deliverable:?}");
        }
        self.owed[k] = false;
        self.vcpus[v].running.push(intid);
        Some(intid)
    }

    fn end(&mut self, v: usize) {
        let Some(c) = self.vcpus[v].cpu else { return };
        if let Some(intid) = self.vcpus[v].running.pop() {
            self.lrs[c].end(intid);
            if self.separate {
                self.vcpus[v].dropped.push(intid);
            }
        }
    }

    fn switch(&mut self, v: usize, c: usize) {
        let id = VcpuIndex(v as u8);
        if let Some(c) = self.vcpus[v].cpu.take() {
            let lrs = &self.lrs[c];
            lrs.line.set(self.vcpus[v].clock);
            let saved = self.vgic.save(id, lrs, self.vcpus[v].clock);
            assert_eq!(
                saved.timer_active,
                !lrs.physical_active.borrow().is_empty(),
                "physical state on CPU {c}"
            );
            lrs.physical_active.borrow_mut().clear();
            assert!(lrs.values().iter().all(|&lr| lr & STATE == 0), "left at rest: {:x?}", lrs.values());
            assert!(!lrs.maintenance_asserted());
            assert_eq!(lrs.running(), 0x100);
            assert_eq!(lrs.control(), crate::vgic::control::EN);
            self.vcpus[v].woken = self.vgic.has_deliverable(id);
            self.wake(saved.wake);
        } else if self.vcpus.iter().all(|vcpu| vcpu.cpu != Some(c)) {
            let lrs = &self.lrs[c];
            if self.vgic.load(id, lrs) {
                lrs.physical_active.borrow_mut().push(CLOCK);
            }
            self.vcpus[v].cpu = Some(c);
            self.vcpus[v].must_enter = true;
        }
    }

    /// What must hold after each step.
    fn check(&self) {
        for (v, vcpu) in self.vcpus.iter().enumerate() {
            let deliverable = self.deliverable(v);
            if vcpu.cpu.is_none() && !deliverable.is_empty() {
                assert!(vcpu.woken, "vCPU {v} sleeps on {deliverable:?}");
                assert!(self.vgic.has_deliverable(VcpuIndex(v as u8)), "{deliverable:?} of vCPU {v}");
            }
        }
        let valid = |lrs: &FakeLrs| lrs.values().into_iter().filter(|lr| lr & STATE != 0 && *lr as u32 >= 32);
        let held = self.lrs.iter().flat_map(valid).map(|lr| lr as u32).collect::<Vec<_>>();
        for (i, spi) in held.iter().enumerate() {
            assert!(!held[..i].contains(spi), "INTID {spi} is in two places");
        }
    }

    /// All is enabled, all is completed, every line falls when it is served: then nothing is left.
    fn drain(&mut self) {
        for v in 0..VCPUS {
            if self.vcpus[v].cpu.is_none() {
                self.switch(v, (0..CPUS).find(|&c| self.vcpus.iter().all(|x| x.cpu != Some(c))).unwrap());
            }
        }
        for k in self.all.clone() {
            self.enabled[k] = true;
            self.access(k.0, k.1, 0x100);
        }
        for _ in 0..3 {
            for v in 0..VCPUS {
                while !self.vcpus[v].running.is_empty() {
                    self.end(v);
                }
                while !self.vcpus[v].dropped.is_empty() {
                    self.apply(Op::Deactivate(v as u8, 0));
                }
                while let Some(intid) = self.take(v) {
                    match intid {
                        CLOCK => self.set_clock(v, false),
                        PPI_LINE => self.apply(Op::PpiLine(v as u8, false)),
                        32..48 => {
                            self.set_spi_line(intid, false);
                        }
                        _ => {}
                    }
                    self.end(v);
                    while !self.vcpus[v].dropped.is_empty() {
                        self.apply(Op::Deactivate(v as u8, 0));
                    }
                    self.check();
                }
            }
        }
        for v in 0..VCPUS {
            assert_eq!(self.deliverable(v), [0u32; 0], "left at vCPU {v}");
            self.switch(v, 0);
            assert!(!self.vgic.has_deliverable(VcpuIndex(v as u8)));
        }
        assert!(self.lrs.iter().all(|lrs| lrs.physical_active.borrow().is_empty()));
    }
}

proptest! {
    #[test]
    fn every_interrupt_is_delivered_once_wherever_its_vcpu_runs(
        count in prop::sample::select(vec![1usize, 2, 4, 16]),
        separate in any::<bool>(),
        priorities in prop::collection::vec(any::<u8>(), 8),
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut world = World::new(count, separate, &priorities);
        world.switch(0, 0);
        world.switch(1, 1);
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.drain();
    }
}
