//! The two vCPUs and CPUs of the histories, and the model of what each must be given.

use std::ops::{Index, IndexMut};

use crate::ids::VcpuIndex;
use crate::vgic::fake::{FakeLrs, OPEN};
use crate::vgic::lr::{PENDING, STATE};
use crate::vgic::tests::machine::*;
use crate::vgic::{VcpuSet, Vgic};

pub const VCPUS: usize = 2;
pub const CPUS: usize = 2;

/// The interrupts that take part: SGIs, an edge-triggered and a level-triggered PPI, the timer, SPIs of both kinds.
pub const PRIVATE_EDGES: [u32; 6] = [0, 1, 5, 9, 15, 18];
pub const PPI_LINE: u32 = 20;
pub const CLOCK: u32 = 27;
pub const SPI_LINES: [u32; 6] = [32, 33, 40, 41, 45, 47];
pub const SPI_EDGES: [u32; 8] = [48, 49, 54, 55, 56, 60, 62, 63];

/// An interrupt of a vCPU, or an SPI (of vCPU 0).
pub type Key = (usize, u32);

/// Something about each interrupt.
pub struct Table<T>([T; 256]);

impl<T> Index<Key> for Table<T> {
    type Output = T;

    fn index(&self, (v, intid): Key) -> &T {
        &self.0[v * 128 + intid as usize]
    }
}

impl<T> IndexMut<Key> for Table<T> {
    fn index_mut(&mut self, (v, intid): Key) -> &mut T {
        &mut self.0[v * 128 + intid as usize]
    }
}

pub fn key(vcpu: usize, intid: u32) -> Key {
    if intid < 32 { (vcpu, intid) } else { (0, intid) }
}

pub struct Vcpu {
    pub cpu: Option<usize>,
    /// It must go through the entry path before the guest goes on.
    pub must_enter: bool,
    /// It has been notified, or was found deliverable, since it was unloaded.
    pub woken: bool,
    /// Acknowledged and running, the innermost last.
    pub running: Vec<u32>,
    /// Dropped, to be deactivated.
    pub dropped: Vec<u32>,
    /// The timer's line of this vCPU.
    pub clock: bool,
    /// The timer's line fell while it was pending in a list register: the guest may see it once.
    pub clock_stale: bool,
}

pub struct World {
    pub vgic: Vgic,
    pub lrs: Vec<FakeLrs>,
    pub vcpus: Vec<Vcpu>,
    pub separate: bool,
    pub all: Vec<Key>,
    pub priority: Table<u8>,
    pub enabled: Table<bool>,
    pub owed: Table<bool>,
    pub line: Table<bool>,
    /// SPIs' vCPUs.
    pub route: Table<usize>,
}

pub fn everything() -> Vec<Key> {
    let private = PRIVATE_EDGES.iter().chain(&[PPI_LINE, CLOCK]);
    let mut all = (0..VCPUS).flat_map(|v| private.clone().map(move |&n| (v, n))).collect::<Vec<_>>();
    all.extend(SPI_LINES.iter().chain(&SPI_EDGES).map(|&n| (0, n)));
    all
}

impl World {
    pub fn new(count: usize, separate: bool, priorities: &[u8]) -> World {
        let vgic = booted(VCPUS);
        let mut world = World {
            lrs: (0..CPUS).map(|_| FakeLrs::new(count)).collect(),
            vcpus: Vec::new(),
            separate,
            all: everything(),
            priority: Table([0; 256]),
            enabled: Table([true; 256]),
            owed: Table([false; 256]),
            line: Table([false; 256]),
            route: Table([0; 256]),
            vgic,
        };
        for (i, key) in everything().into_iter().enumerate() {
            let priority = [0x80, 0xa0, 0xc0][priorities[i % priorities.len()] as usize % 3];
            world.priority[key] = priority;
            let (v, n) = key;
            match n {
                0..32 => redist_write(
                    &world.vgic,
                    VcpuIndex(v as u8),
                    SGI_BASE + 0x400 + u64::from(n),
                    1,
                    u64::from(priority),
                ),
                _ => dist_write(&world.vgic, 0x400 + u64::from(n), 1, u64::from(priority)),
            }
        }
        for v in 0..VCPUS {
            // PPI 18 is edge-triggered.
            redist_write(&world.vgic, VcpuIndex(v as u8), SGI_BASE + 0xc04, 4, 0b10 << (2 * 2));
            // The guest sets its CPU interface up.
            let cpu = FakeLrs::new(count);
            assert!(!world.vgic.load(VcpuIndex(v as u8), &cpu));
            crate::vgic::ListRegisters::set_vmcr(&cpu, OPEN);
            cpu.set_eoi_mode(separate);
            assert!(world.vgic.flush(VcpuIndex(v as u8), &cpu).is_empty());
            world.vgic.save(VcpuIndex(v as u8), &cpu, false);
            world.vcpus.push(Vcpu {
                cpu: None,
                must_enter: false,
                woken: false,
                running: Vec::new(),
                dropped: Vec::new(),
                clock: false,
                clock_stale: false,
            });
        }
        world
    }

    pub fn notify(&mut self, seen: Vec<u8>) {
        for v in seen {
            let vcpu = &mut self.vcpus[v as usize];
            vcpu.must_enter = true;
            vcpu.woken = true;
        }
    }

    pub fn wake(&mut self, set: VcpuSet) {
        self.notify(set.map(|vcpu| vcpu.0).collect());
    }

    /// A line's state, of the timer too.
    pub fn high(&self, key: Key) -> bool {
        let clock = key.1 == CLOCK && self.vcpus[key.0].clock;
        clock || self.line[key]
    }

    pub fn is_active(&self, key: Key) -> bool {
        let held = |v: &Vcpu| v.running.contains(&key.1) || v.dropped.contains(&key.1);
        if key.1 < 32 { held(&self.vcpus[key.0]) } else { self.vcpus.iter().any(held) }
    }

    /// What the vCPU must be given if it looks, except the timer of a vCPU that isn't loaded: that is the
    /// scheduler's.
    pub fn deliverable(&self, v: usize) -> Vec<u32> {
        let all = self.all.iter().copied();
        all.filter(|&key| if key.1 < 32 { key.0 == v } else { self.route[key] == v })
            .filter(|&key| key.1 != CLOCK || self.vcpus[v].cpu.is_some())
            .filter(|&key| self.enabled[key] && !self.is_active(key))
            .filter(|&key| self.owed[key] || self.high(key))
            .filter(|&key| key.1 < 32 || !self.held_elsewhere(v, key.1))
            .map(|key| key.1)
            .collect()
    }

    /// For half of all `n`: one of the interrupts in `range` that are pending in list registers, where changes are of interest.
    pub fn in_list_registers(&self, n: u8, range: std::ops::Range<u32>) -> Option<u32> {
        let all = self.lrs.iter().flat_map(|lrs| lrs.values()).filter(|lr| lr & STATE == PENDING);
        let found = all.map(|lr| lr as u32).filter(|intid| range.contains(intid)).collect::<Vec<_>>();
        (n & 1 != 0 && !found.is_empty()).then(|| found[n as usize / 2 % found.len()])
    }

    /// Whether an SPI is in a list register of another vCPU that is on its way to give it back: it isn't loaded, or must come
    /// back to the hypervisor.
    pub fn held_elsewhere(&self, v: usize, intid: u32) -> bool {
        let mut others = (0..VCPUS).filter(|&other| other != v);
        others.any(|other| {
            let cpu = self.vgic.cpu(VcpuIndex(other as u8));
            let held = crate::vgic::bits::ones(cpu.notes().used()).any(|n| cpu.intid(n) == intid);
            let vcpu = &self.vcpus[other];
            held && (vcpu.must_enter || vcpu.cpu.is_none_or(|c| self.lrs[c].maintenance_asserted()))
        })
    }

    /// The vCPU comes back to the hypervisor where it must, and enters the guest again.
    pub fn sync(&mut self, v: usize) {
        let Some(c) = self.vcpus[v].cpu else { return };
        let id = VcpuIndex(v as u8);
        for round in 0.. {
            assert!(round < 8, "a storm of interrupts at EL2");
            let mut wake = VcpuSet::EMPTY;
            let lrs = &self.lrs[c];
            lrs.line.set(self.vcpus[v].clock);
            let fires = self.vcpus[v].clock && lrs.physical_active.borrow().is_empty();
            if fires {
                lrs.physical_fires(CLOCK);
                wake |= self.vgic.inject_timer(id, lrs, TIMER, TIMER);
            }
            let maintenance = lrs.maintenance_asserted();
            if maintenance {
                wake |= self.vgic.maintenance(id, lrs);
            }
            if (self.vcpus[v].must_enter || fires || maintenance) && self.vgic.attention(id) {
                wake |= self.vgic.flush(id, lrs);
            }
            self.vcpus[v].must_enter = false;
            lrs.check();
            self.wake(wake);
            if !fires && !maintenance {
                return;
            }
        }
    }

    /// A register access by the guest of `v`.
    pub fn access(&mut self, v: usize, intid: u32, block: u64) {
        let by = VcpuIndex(v as u8);
        let lrs = &self.lrs[self.vcpus[v].cpu.unwrap()];
        let word = u64::from(intid / 32);
        let bit = 1 << (intid % 32);
        let offset = block + 4 * word;
        let seen = notified(|mut notify| match intid {
            0..32 => self.vgic.redist_write(by, lrs, by, SGI_BASE + offset, 4, bit, &mut notify),
            _ => self.vgic.dist_write(by, lrs, offset, 4, bit, &mut notify),
        });
        assert!(!seen.contains(&by.0), "the one that accesses isn't notified");
        self.notify(seen);
        self.vcpus[v].must_enter = true;
    }
}
