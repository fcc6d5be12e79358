//! A machine for tests: all that CPUs share, VMs with memory of the test's own process, and guests to execute.

use super::{GuestLines, PortRegisters, System};
use crate::arch::fake::guest::Guest;
use crate::arch::fake::machine::{Machine, Outcome};
use crate::arch::fake::program::Do;
use crate::arch::{self, context::Context};
use crate::device::virtio::{DeviceSet, net::Switch};
use crate::ids::{CpuId, IntId, VcpuIndex, VmId};
use crate::memory::address::{BLOCK_2M, Ipa, Pa, PaRange};
use crate::memory::frames::{Frames, MemoryPlan};
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::Stage2Config;
use crate::memory::tables::TableSource;
use crate::platform::console::{Console, Words};
use crate::platform::machine::{Conduit, GicV3, TimerInterrupts};
use crate::platform::options::{DebugFault, Options};
use crate::platform::uart::Pl011Port;
use crate::scheduler::queue::Links;
use crate::scheduler::{CpuShared, IdleMask};
use crate::stats::TickRate;
use crate::sync::Mutex;
use crate::trace::{self, Area};
use crate::vgic::fake::FakeLrs;
use crate::vm::load::Placement;
use crate::vm::pages::common::CommonPages;
use crate::vm::{BootImages, Vcpu, Vm, layout};
use crate::vmid::{Allocator, Config, Ghost};
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spin::Once;
use std::alloc::Layout;
use std::sync::Arc;

/// RAM of each VM.
pub const VM_RAM: u64 = 4 << 20;

/// A vCPU to be: what it does, and where.
pub struct Plan {
    program: Vec<Do>,
    pin: Option<u16>,
}

/// A vCPU that goes where it likes.
pub fn free(program: Vec<Do>) -> Plan {
    Plan { program, pin: None }
}

/// A vCPU of one CPU.
pub fn pinned(cpu: u16, program: Vec<Do>) -> Plan {
    Plan { program, pin: Some(cpu) }
}

/// What a test wants of the machine.
#[derive(Clone, Copy)]
pub struct Setup {
    /// CPUs.
    pub cpus: usize,
    /// VMIDs that there are.
    pub usable: u32,
    /// How they are given.
    pub vmid: Config,
    /// As the option `sched.vmid_affinity`.
    pub vmid_affinity: u8,
    /// As the option `debug.fault`.
    pub fault: Option<DebugFault>,
    /// As the option `trace`.
    pub traced: bool,
    /// Ticks of a slice; a tick is about a call into `arch`.
    pub slice: u64,
    /// Of the order in which CPUs run.
    pub seed: u64,
    /// Ticks after which a run is late.
    pub limit: u64,
}

impl Setup {
    /// `cpus` CPUs, and the rest as it rarely matters.
    pub fn new(cpus: usize) -> Setup {
        Setup {
            cpus,
            usable: 15,
            vmid: Config::default(),
            vmid_affinity: 0,
            fault: None,
            traced: false,
            slice: 2000,
            seed: 1,
            limit: 5_000_000,
        }
    }
}

/// A machine that has run.
pub struct Ran {
    /// How it ended.
    pub outcome: Outcome,
    /// What the CPUs shared.
    pub system: &'static System,
    /// Its guests.
    pub machine: Arc<Machine>,
    /// Bytes of memory that were free before there were VMs.
    pub free_before: u64,
}

/// Runs VMs, each a list of vCPUs, until they have ended. All that its guests' vCPUs do in common is to end the VM with
/// [`Do::system_off`].
pub fn run(setup: Setup, vms: Vec<Vec<Plan>>) -> Ran {
    let counts: Vec<usize> = vms.iter().map(Vec::len).collect();
    let pins: Vec<Vec<Option<u16>>> = vms.iter().map(|vm| vm.iter().map(|plan| plan.pin).collect()).collect();
    let guests = vms.into_iter().flatten().map(|plan| Guest::new(plan.program)).collect();
    let system = make(setup, &counts);
    let free_before = system.frames.lock().free_bytes();
    make_vms(system, &pins);
    let machine = Arc::new(Machine::new(setup.cpus, guests, setup.seed, setup.limit));
    let outcome = machine.run(system);
    Ran { outcome, system, machine, free_before }
}

/// Memory that is never given back.
fn memory(bytes: u64) -> Frames {
    let layout = Layout::from_size_align(bytes as usize, BLOCK_2M as usize).expect("a layout");
    let base = arch::fake::allocate(layout);
    let mut plan = MemoryPlan::new();
    plan.add(PaRange::new(base, bytes)).expect("one bank");
    let metadata = Vec::leak(vec![0; plan.metadata_words()]);
    Frames::new(&plan, metadata).expect("metadata for the plan")
}

/// A trace that nothing is lost from in a short run.
fn trace(cpus: usize, rate: TickRate) -> Area<'static> {
    let layout = trace::Layout::new(cpus as u64, 1 << 16).expect("a trace");
    let words = Vec::leak((0..layout.words()).map(|_| AtomicU64::new(0)).collect());
    Area::new(layout, rate.hz(), words).expect("enough words")
}

fn make(setup: Setup, counts: &[usize]) -> &'static System {
    const PA_48_BITS: u64 = 5;
    let Setup { vmid, vmid_affinity, fault, .. } = setup;
    let options = Options { vmid, vmid_affinity, fault, ..Options::default() };
    let vcpus: usize = counts.iter().sum();
    let stage2 = Stage2Config::from_id(PA_48_BITS, 0, 0, 32).expect("a shape");
    let mut frames = memory((counts.len() as u64 + 1) * 2 * VM_RAM);
    let parked = frames.allocate(stage2.root_bytes()).expect("memory");
    arch::memory().zero(parked, stage2.root_bytes());
    let names: Vec<String> = (0..counts.len()).map(|n| format!("vm-{n}")).collect();
    let rate = TickRate::new(1_000_000_000);
    Box::leak(Box::new(System {
        options,
        psci: Some(Conduit::Smc),
        timers: TimerInterrupts {
            virt: IntId(arch::fake::VIRTUAL_TIMER),
            phys: IntId(30),
            hyp: IntId(arch::fake::EL2_TIMER),
            frequency: None,
        },
        gic: GicV3 {
            dist: PaRange::new(Pa(0), 0),
            redist: ArrayVec::new(),
            redist_stride: None,
            maintenance: IntId(arch::fake::MAINTENANCE),
        },
        maintenance: IntId(arch::fake::MAINTENANCE),
        uart: None,
        entry_ticks: 0,
        counter_hz: rate.hz(),
        rtc_start: 0,
        slice_ticks: setup.slice,
        id_registers: arch::id_registers(),
        stage2,
        parked_vttbr: parked.0,
        vmid_bits: 8,
        vmids: Allocator::with_usable(setup.usable, setup.cpus, options.vmid).expect("more VMIDs than CPUs"),
        ghost: Some(Ghost::new(setup.cpus, setup.usable)),
        frames: Mutex::new(frames),
        common: Mutex::new(CommonPages::new(PaRange::new(Pa(0), 0))),
        console: Console::new(
            Pl011Port::new(PortRegisters(None)),
            GuestLines,
            rate,
            true,
            Words::new_const(),
            names.iter().map(String::as_str),
        ),
        switch: Switch::new(),
        cpus: (0..setup.cpus as u16).map(|n| CpuShared::new(CpuId(n), u64::from(n), u64::from(n))).collect(),
        idle: IdleMask::default(),
        links: Links::new(vcpus),
        vm_names: names,
        vms: Once::new(),
        vcpus: Once::new(),
        trace: setup.traced.then(|| trace(setup.cpus, rate)),
        vms_left: AtomicU32::new(counts.len() as u32),
        copy_ticks: AtomicU64::new(0),
    }))
}

fn make_vms(system: &'static System, pins: &[Vec<Option<u16>>]) {
    let mut all = Vec::new();
    let mut vms: Vec<&'static Vm> = Vec::new();
    for (n, pins) in pins.iter().enumerate() {
        let images = BootImages {
            kernel: &[],
            ramdisk: None,
            fdt: None,
            bootargs: "",
            placement: Placement {
                kernel: Ipa(layout::RAM_BASE.0),
                entry: Ipa(layout::RAM_BASE.0),
                ramdisk: None,
                dtb: Ipa(layout::RAM_BASE.0 + (2 << 20)),
            },
            devices: DeviceSet::default(),
            merges: false,
        };
        let name = system.vm_names[n].clone();
        let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmId(n as u16), name, VM_RAM, pins.len(), images)));
        let mut mine = ArrayVec::new();
        for (index, pin) in pins.iter().enumerate() {
            let vcpu = Vcpu::new(vm, VcpuIndex(index as u8), all.len() as u32, pin.map(CpuId));
            let vcpu: &'static Vcpu = Box::leak(Box::new(vcpu));
            vcpu.set_context(Box::leak(Box::new(Context::new(vcpu))));
            vcpu.stats.start(0);
            all.push(vcpu);
            mine.push(vcpu);
        }
        vm.set_vcpus(mine);
        crate::vm::life::prepare(system, vm).expect("memory for all");
        open_gic(vm);
        vms.push(vm);
    }
    system.vcpus.call_once(|| all);
    system.vms.call_once(|| vms);
}

/// What a kernel writes to its GIC: all in group 1, of one priority, enabled; SPIs edge-triggered.
pub fn open_gic(vm: &Vm) {
    const SGI_BASE: u64 = 0x1_0000;
    let lrs = FakeLrs::new(1);
    let nobody = &mut |_| {};
    let first = VcpuIndex(0);
    let mut dist = |offset, value| vm.vgic.dist_write(first, &lrs, offset, 4, value, nobody);
    for word in 1..3 {
        dist(0x80 + 4 * word, 0xffff_ffff);
        dist(0x100 + 4 * word, 0xffff_ffff);
    }
    for n in (32..96).step_by(4) {
        dist(0x400 + n, 0xa0a0_a0a0);
    }
    for n in 2..6 {
        dist(0xc00 + 4 * n, 0xaaaa_aaaa);
    }
    dist(0, 0x13);
    for index in (0..vm.vgic.vcpus() as u8).map(VcpuIndex) {
        let redist = |offset, value| {
            vm.vgic.redist_write(index, &lrs, index, SGI_BASE + offset, 4, value, &mut |_| {});
        };
        redist(0x80, 0xffff_ffff);
        for n in (0..32).step_by(4) {
            redist(0x400 + n, 0xa0a0_a0a0);
        }
        redist(0x100, 0xffff_ffff);
    }
}

impl Ran {
    /// Every counter fits with the others, and all memory came back.
    pub fn adds_up(&self) {
        let now = self.machine.now();
        let mut ins = 0;
        for vm in self.system.vms() {
            for vcpu in vm.vcpus() {
                ins += vcpu.stats.schedule_ins.get();
            }
        }
        let vmids = self.system.vmids.counters();
        // A CPU that was called out of a guest schedules its VM in once more.
        let scheduled = vmids.fast + vmids.slow;
        assert!((ins..=ins + vmids.kicks).contains(&scheduled), "schedule-ins: {ins}, {vmids:?}");
        let ghost = self.system.ghost.as_ref().map(Ghost::counters).expect("a ghost");
        assert_eq!(ghost.warm + ghost.cold, scheduled, "{ghost:?}, {vmids:?}");
        for cpu in &self.system.cpus {
            let totals = cpu.stats.snapshot(now, &mut Default::default());
            assert!(
                totals.guest + totals.hypervisor + totals.idle <= now,
                "{} was busy for longer than there was time",
                cpu.id
            );
        }
        if self.outcome == Outcome::Off {
            if vmids.rollovers == 0 {
                assert_eq!(vmids.released + vmids.reclaimed, vmids.allocations, "VMIDs");
            }
            assert_eq!(self.system.frames.lock().free_bytes(), self.free_before, "frames");
        }
    }

    /// What a vCPU, by its number in the machine, has noted.
    pub fn noted(&self, vcpu: u32) -> Vec<u64> {
        self.machine.guest(vcpu).notes.clone()
    }

    /// The VMs' states, for messages.
    pub fn states(&self) -> Vec<String> {
        let vcpus = self.system.vcpus.get().into_iter().flatten();
        vcpus
            .map(|vcpu| {
                let at = self.machine.guest(vcpu.global).at();
                format!(
                    "{}/{}: {:?} at step {at}, asked {:#x}",
                    vcpu.vm.name,
                    vcpu.index.0,
                    vcpu.state.get(),
                    vcpu.requests.load(Ordering::Relaxed)
                )
            })
            .collect()
    }
}
