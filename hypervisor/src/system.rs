//! Everything that the CPUs share: made once at boot, then only read, but for what is atomic or behind a lock.

use crate::arch;
use crate::device::virtio::net::Switch;
use crate::exit::id_registers::IdRegisters;
use crate::ids::{CpuId, IntId, VmId};
use crate::memory::address::Pa;
use crate::memory::frames::Frames;
use crate::memory::stage2::Stage2Config;
use crate::platform::console::{Console, UartLine};
use crate::platform::gic::Registers;
use crate::platform::machine::{Conduit, GicV3, TimerInterrupts};
use crate::platform::options::Options;
use crate::platform::uart::{Mmio32, Pl011Port};
use crate::scheduler::queue::Links;
use crate::scheduler::{self, CpuShared, IdleMask};
use crate::stats::TickRate;
use crate::sync::Mutex;
use crate::trace::Area;
use crate::vm::host::Host;
use crate::vm::pages::common::CommonPages;
use crate::vm::ram::Store;
use crate::vm::{RunState, Vcpu, Vm, VmState, layout, life, request};
use crate::vmid::{Allocator, Ghost};
use core::sync::atomic::{AtomicU32, AtomicU64};
use spin::Once;

/// The shared state of the machine.
pub struct System {
    /// The command line's options.
    pub options: Options,
    /// How firmware is called.
    pub psci: Option<Conduit>,
    /// The physical interrupts of the timers.
    pub timers: TimerInterrupts,
    /// The GIC.
    pub gic: GicV3,
    /// The GIC's maintenance interrupt.
    pub maintenance: IntId,
    /// The console's interrupt.
    pub uart: Option<IntId>,
    /// Count at the image's first instruction.
    pub entry_ticks: u64,
    /// Ticks a second.
    pub counter_hz: u64,
    /// Seconds since 1970 when the counter was 0, as the machine's real-time clock has it; 0 where there is none.
    pub rtc_start: u32,
    /// A time slice in ticks.
    pub slice_ticks: u64,
    /// The ID registers that guests see.
    pub id_registers: IdRegisters,
    /// The shape of every VM's stage 2.
    pub stage2: Stage2Config,
    /// An empty stage-2 root: VTTBR_EL2 while no vCPU is loaded, VMID 0.
    pub parked_vttbr: u64,
    /// Width of a VMID in use.
    pub vmid_bits: u8,
    /// The VMID allocator.
    pub vmids: Allocator,
    /// Whose entries the TLBs may hold (`vmid.ghost`).
    pub ghost: Option<Ghost>,
    /// Free memory.
    pub frames: Mutex<Frames>,
    /// Pages that several VMs have alike.
    pub common: Mutex<CommonPages>,
    /// The console.
    pub console: MachineConsole,
    /// The switch between the VMs' network cards.
    pub switch: Switch,
    /// All CPUs.
    pub cpus: alloc::vec::Vec<CpuShared>,
    /// CPUs that wait for work.
    pub idle: IdleMask,
    /// Links of the run queues.
    pub links: Links,
    /// The VMs' names, by number.
    pub vm_names: alloc::vec::Vec<alloc::string::String>,
    /// All VMs, set once they are made.
    pub vms: Once<alloc::vec::Vec<&'static Vm>>,
    /// All vCPUs, in the order of their global number.
    pub vcpus: Once<alloc::vec::Vec<&'static Vcpu>>,
    /// VMs that have not ended.
    pub vms_left: AtomicU32,
    /// The trace, if there is one.
    pub trace: Option<Area<'static>>,
    /// Ticks spent writing what guests find in memory.
    pub copy_ticks: AtomicU64,
}

/// The machine's serial port.
pub type Port = Pl011Port<PortRegisters>;

/// The machine's console.
pub type MachineConsole = Console<Port, GuestLines>;

/// The registers of the machine's UART; where it has none, nothing.
#[derive(Clone, Copy, Debug)]
pub struct PortRegisters(pub Option<Pa>);

impl Mmio32 for PortRegisters {
    fn read(&self, offset: usize) -> u32 {
        self.0.map_or(0, |base| arch::devices().read32(Pa(base.0 + offset as u64)))
    }

    fn write(&self, offset: usize, value: u32) {
        if let Some(base) = self.0 {
            arch::devices().write32(Pa(base.0 + offset as u64), value);
        }
    }
}

/// Carries the lines of guests' UARTs to their interrupt controllers.
#[derive(Debug)]
pub struct GuestLines;

impl UartLine for GuestLines {
    fn set_level(&self, vm: VmId, level: bool) {
        let cpu = arch::this_cpu();
        if let Some(vm) = cpu.system.vms().get(usize::from(vm.0)) {
            vm.vgic.set_spi_line(layout::UART_INTID, level, &mut |index| {
                scheduler::notify_index(cpu, vm, index)
            });
        }
    }

    fn has_room(&self, vm: VmId) -> bool {
        let vm = arch::this_cpu().system.vms().get(usize::from(vm.0));
        vm.is_some_and(|vm| vm.devices.console_has_room(&Host::here()))
    }

    fn has_input(&self, vm: VmId) {
        if let Some(vm) = arch::this_cpu().system.vms().get(usize::from(vm.0)) {
            vm.devices.console_has_input(&Host::here());
        }
    }

    fn has_panicked(&self, vm: VmId) {
        let cpu = arch::this_cpu();
        let vms = cpu.system.vms();
        if let Some(vm) = vms.get(usize::from(vm.0))
            && cpu.system.options.panic.is_some()
            && let Some(vcpu) = vm.vcpus().iter().find(|vcpu| vcpu.state.get() != RunState::Off)
        {
            vcpu.ask(request::PANICKED);
            scheduler::notify_index(cpu, vm, vcpu.index);
        }
    }

    fn has_said(&self, vm: VmId) {
        if let Some(vm) = arch::this_cpu().system.vms().get(usize::from(vm.0)) {
            life::begin_stop(vm, VmState::Ending);
        }
    }
}

impl System {
    /// Where VMs' memory comes from.
    pub fn store(&self) -> Store<'_> {
        Store { frames: &self.frames, common: &self.common }
    }

    /// Ticks between two periodic reports, if there are any.
    pub fn report_ticks(&self) -> Option<u64> {
        let period = self.options.report_period_ms;
        (period != 0).then(|| self.rate().from_us(u64::from(period) * 1000))
    }

    /// Ticks after which a VM that shows no sign of life is ended, if any are.
    pub fn watchdog_ticks(&self) -> Option<u64> {
        let limit = self.options.watchdog_ms;
        (limit != 0).then(|| self.rate().from_us(u64::from(limit) * 1000))
    }

    /// Ticks between two looks of the watchdog, if there is one: a stuck VM is ended at most a quarter late.
    pub fn watch_period(&self) -> Option<u64> {
        self.watchdog_ticks().map(|limit| (limit / 4).max(1))
    }

    /// Ticks to nanoseconds.
    pub fn rate(&self) -> TickRate {
        TickRate::new(self.counter_hz)
    }

    /// The vCPU with this global number.
    #[inline]
    pub fn vcpu(&self, global: u32) -> Option<&'static Vcpu> {
        self.vcpus.get()?.get(global as usize).copied()
    }

    /// All VMs.
    pub fn vms(&self) -> &[&'static Vm] {
        self.vms.get().map_or(&[], |vms| vms.as_slice())
    }

    /// A CPU.
    #[inline]
    pub fn cpu(&self, id: CpuId) -> Option<&CpuShared> {
        self.cpus.get(id.index())
    }
}

#[cfg(test)]
pub(crate) mod fake;
