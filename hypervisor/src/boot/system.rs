//! Making what all CPUs share.

use super::{BootError, guests, trace};
use crate::arch;
use crate::bundle::Bundle;
use crate::device::pl031;
use crate::device::virtio::net::Switch;
use crate::ids::CpuId;
use crate::memory::address::{BLOCK_2M, Pa, PaRange};
use crate::memory::frames::Frames;
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::Stage2Config;
use crate::memory::tables::TableSource;
use crate::platform::console::Console;
use crate::platform::gic::{Gic, GicError, Registers};
use crate::platform::machine::{CpuNode, Machine};
use crate::platform::options::{DebugFault, Options};
use crate::platform::uart::Pl011Port;
use crate::scheduler::queue::Links;
use crate::scheduler::{Cpu, CpuShared, IdleMask};
use crate::stats::TickRate;
use crate::sync::Mutex;
use crate::system::{GuestLines, PortRegisters, System};
use crate::vm::Vm;
use crate::vm::pages::common::CommonPages;
use crate::vmid::{Allocator, Ghost};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64};
use spin::Once;

/// Makes the machine's shared state.
///
/// # Errors
///
/// The CPU lacks something, or what is asked for does not go together.
pub fn make(
    machine: &Machine<'_>,
    options: Options,
    bundle: &Bundle<'static>,
    totals: guests::Totals,
    nodes: &[CpuNode],
    mut frames: Frames,
    entry_ticks: u64,
) -> Result<&'static System, BootError> {
    let stage2 = Stage2Config::from_id(
        arch::id_aa64mmfr0(),
        arch::id_aa64mmfr1(),
        arch::id_aa64mmfr2(),
        totals.ipa_bits,
    )?;
    let available = stage2.vmid_bits();
    let vmid_bits = match options.vmid_bits {
        Some(asked) if asked > available => return Err(BootError::VmidBits { asked, available }),
        Some(asked) => asked,
        None => available,
    };
    let parked = frames.allocate(stage2.root_bytes()).ok_or(BootError::OutOfMemory)?;
    arch::memory().zero(parked, stage2.root_bytes());

    // Without a piece as large, VMs keep their copies.
    let common = frames.alloc(totals.common, BLOCK_2M);
    let common = common.map_or(PaRange::new(Pa(0), 0), |base| PaRange::new(base, totals.common));

    let counter_hz = match arch::counter_frequency() {
        0 => machine.timer.frequency.map_or(0, u64::from),
        hz => hz,
    };
    let rate = TickRate::new(counter_hz);
    let trace = trace::make(&options, nodes.len(), rate, &mut frames)?;
    let names: Vec<String> = bundle
        .configs()
        .flat_map(|config| (0..config.count).map(move |index| config.vm_name(index).as_str().to_string()))
        .collect();
    let port = Pl011Port::new(PortRegisters(machine.uart.map(|uart| uart.base)));
    if let Some(uart) = machine.uart {
        port.init(uart.clock_hz, uart.baud);
    }
    let vmids = Allocator::new(vmid_bits, nodes.len(), options.vmid)?;
    Ok(Box::leak(Box::new(System {
        options,
        psci: machine.psci,
        timers: machine.timer,
        gic: machine.gic.clone(),
        maintenance: machine.gic.maintenance,
        uart: machine.uart.and_then(|uart| uart.intid),
        entry_ticks,
        counter_hz: rate.hz(),
        rtc_start: rtc_start(&machine.rtc, rate),
        slice_ticks: rate.from_us(u64::from(options.slice_us)),
        id_registers: arch::id_registers(),
        stage2,
        parked_vttbr: parked.0,
        vmid_bits,
        ghost: options.ghost.then(|| Ghost::new(nodes.len(), vmids.usable())),
        vmids,
        frames: Mutex::new(frames),
        common: Mutex::new(CommonPages::new(common)),
        console: Console::new(
            port,
            GuestLines,
            rate,
            options.console_prefix,
            options.until,
            names.iter().map(String::as_str),
        ),
        switch: Switch::new(),
        cpus: (0u16..)
            .zip(nodes)
            .map(|(index, node)| CpuShared::new(CpuId(index), node.mpidr, arch::kick_target(node.mpidr)))
            .collect(),
        idle: IdleMask::default(),
        links: Links::new(totals.vcpus),
        vm_names: names,
        vms: Once::new(),
        vcpus: Once::new(),
        vms_left: AtomicU32::new(0),
        trace,
        copy_ticks: AtomicU64::new(0),
    })))
}

/// Lets guests' and our own lines out, and input in.
///
/// # Errors
///
/// The GIC does not respond.
pub fn enable_console(system: &'static System, cpu: &Cpu) -> Result<(), GicError> {
    let gic = Gic::new(arch::devices(), system.gic.dist.base);
    gic.init_distributor(cpu.shared.mpidr)?;
    if log::set_logger(&system.console).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    if let Some(intid) = system.uart {
        gic.enable_spi(intid);
        system.console.enable_interrupts();
    }
    Ok(())
}

/// The VMs in the order in which they start: the bundle's, shuffled by `sched.seed` (Fisher and Yates; the numbers are those of
/// a 64-bit linear congruential generator), so that trials of one measurement differ and can be repeated.
pub fn start_order(system: &'static System) -> Vec<&'static Vm> {
    let mut vms: Vec<&'static Vm> = system.vms().to_vec();
    let mut state = u64::from(system.options.seed);
    if state != 0 {
        for last in (1..vms.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            vms.swap(last, ((state >> 33) as usize) % (last + 1));
        }
    }
    vms
}

/// What the machine's PL031 says, less the seconds that the system counter has counted so far.
fn rtc_start(rtc: &Option<PaRange>, rate: TickRate) -> u32 {
    let Some(rtc) = rtc else { return 0 };
    let now = arch::devices().read32(Pa(rtc.base.0 + pl031::DR));
    now.wrapping_sub((arch::counter() / rate.hz()) as u32)
}

/// Does what `debug.fault` asks for.
pub fn provoke(fault: Option<DebugFault>) {
    match fault {
        None => {}
        Some(DebugFault::Panic) => panic!("debug.fault=panic"),
        Some(fault) => arch::provoke(fault),
    }
}

/// All of the machine's memory, in bytes.
pub fn memory_bytes(machine: &Machine<'_>) -> u64 {
    machine.memory.iter().map(|bank| bank.size).sum()
}
