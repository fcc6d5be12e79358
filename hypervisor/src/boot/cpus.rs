//! The CPUs: each one's own structure, and starting those that the loader left asleep.

use super::memory::Stacks;
use crate::arch;
use crate::ids::{CpuId, IntId};
use crate::memory::stage2::Stage2Config;
use crate::platform::gic::{Gic, GicError};
use crate::platform::machine::{CpuNode, EnableMethod, Machine};
use crate::platform::options::DebugFault;
use crate::scheduler::{Cpu, run};
use crate::system::System;
use crate::vgic::Vgic;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use spin::Once;

/// How EL2 is configured on the first CPU.
static FIRST: Once<[arch::Configured; arch::CONFIGURED]> = Once::new();

const CPU_ON: u32 = 0xc400_0003;

/// What a secondary CPU finds: read by `head.s`.
#[repr(C)]
pub struct SecondaryStart {
    ttbr0: u64,
    tcr: u64,
    stack: u64,
    cpu: &'static Cpu,
}

const _: () = assert!(
    core::mem::offset_of!(SecondaryStart, stack) == 16 && core::mem::offset_of!(SecondaryStart, cpu) == 24
);

/// The machine's CPUs, the one that runs this first.
pub fn in_order(machine: &Machine<'_>) -> Vec<CpuNode> {
    let mine = arch::mpidr();
    let mut cpus: Vec<CpuNode> = machine.cpus.iter().copied().filter(|cpu| cpu.mpidr == mine).collect();
    if cpus.is_empty() {
        cpus.push(CpuNode { mpidr: mine, enable: EnableMethod::None });
    }
    cpus.extend(machine.cpus.iter().copied().filter(|cpu| cpu.mpidr != mine));
    cpus
}

/// Makes the structure of CPU `id`.
pub fn make(system: &'static System, stacks: Stacks, id: CpuId, vcpus: usize) -> &'static Cpu {
    Box::leak(Box::new(Cpu::new(system, id, stacks.of(id.index()), vcpus)))
}

/// The SGIs and PPIs that a CPU takes.
fn private_interrupts(system: &System) -> u32 {
    let bit = |intid: IntId| if intid.is_private() { 1u32 << intid.0 } else { 0 };
    bit(IntId(0)) | bit(system.timers.virt) | bit(system.timers.hyp) | bit(system.maintenance)
}

/// Brings this CPU up as `cpu`.
///
/// # Errors
///
/// Its redistributor does not respond.
pub fn init(cpu: &'static Cpu) -> Result<(), GicError> {
    let system = cpu.system;
    let now = arch::counter();
    cpu.set_mark(now);
    cpu.shared.stats.start(now);
    arch::init_cpu(cpu, &system.stage2);
    arch::set_vttbr(system.parked_vttbr);
    // That one, and the one of `init_cpu`.
    cpu.shared.tlb.vttbr_writes.add(2);
    let gic = Gic::new(arch::devices(), system.gic.dist.base);
    let frame = gic.redistributor(&system.gic, cpu.shared.mpidr)?;
    if !arch::init_interrupt_interface() {
        return Err(GicError::Stuck("ICC_SRE_EL2.SRE"));
    }
    cpu.sgi_frame.set(gic.init_redistributor(frame, private_interrupts(system))?);
    Vgic::init_cpu(&arch::HardwareListRegisters);
    if system.options.fault == Some(DebugFault::Differ) && cpu.shared.id != CpuId::BOOT {
        arch::differ();
    }
    let own = arch::configuration();
    let first = FIRST.call_once(|| own);
    if let Some(((name, here), (_, there))) = own.iter().zip(first).find(|(here, there)| here != there) {
        log::error!("{}: not used: {name} is {here:#x}, and {there:#x} on CPU 0", cpu.shared.id);
        arch::halt()
    }
    cpu.shared.online.store(true, Ordering::SeqCst);
    Ok(())
}

/// Starts all other CPUs, and waits until each has come up.
pub fn start_others(system: &'static System, stacks: Stacks, nodes: &[CpuNode], vcpus: usize) {
    let (ttbr0, tcr) = arch::own_map();
    for (index, node) in nodes.iter().enumerate().skip(1) {
        let id = CpuId(index as u16);
        let cpu = make(system, stacks, id, vcpus);
        let start = Box::leak(Box::new(SecondaryStart { ttbr0, tcr, stack: cpu.stack, cpu }));
        let argument = core::ptr::from_mut(start) as u64;
        // It reads this with its caches off.
        arch::clean(argument, size_of::<SecondaryStart>() as u64);
        match (node.enable, system.psci) {
            (EnableMethod::Psci, Some(conduit)) => {
                let status =
                    arch::firmware_call(conduit, CPU_ON, node.mpidr, arch::secondary_entry(), argument);
                if status != 0 {
                    log::error!(
                        "{id} (MPIDR {:#x}) does not start: PSCI CPU_ON returns {status}",
                        node.mpidr
                    );
                    continue;
                }
            }
            (EnableMethod::SpinTable { release }, _) => {
                arch::release_from_spin_table(release, node.mpidr, argument)
            }
            _ => {
                log::error!(
                    "{id} (MPIDR {:#x}) has no enable-method that can be used: psci and spin-table can",
                    node.mpidr
                );
                continue;
            }
        }
        let patience = arch::counter().saturating_add(system.counter_hz);
        while !cpu.shared.online.load(Ordering::SeqCst) {
            if arch::counter() > patience {
                log::error!("{id} (MPIDR {:#x}) was started and has not come up within a second", node.mpidr);
                break;
            }
            crate::sync::relax();
        }
    }
}

/// A secondary CPU, on its own stack with the MMU on.
#[unsafe(no_mangle)]
extern "C" fn secondary_main(cpu: &'static Cpu) -> ! {
    let system = cpu.system;
    let wanted = &system.stage2;
    let here = Stage2Config::from_id(
        arch::id_aa64mmfr0(),
        arch::id_aa64mmfr1(),
        arch::id_aa64mmfr2(),
        wanted.ipa_bits(),
    );
    let suits = here.is_ok_and(|here| {
        here.vmid_bits() >= wanted.vmid_bits()
            && here.vtcr() == wanted.vtcr()
            && here.forces_write_back() >= wanted.forces_write_back()
    });
    if !suits {
        log::error!(
            "{}: not used: its VMIDs, address sizes, granules or cacheability of stage 2 are not those of CPU 0",
            cpu.shared.id
        );
        arch::halt()
    }
    if system.id_registers.restrict_to(&arch::id_registers()) {
        log::warn!("{}: lacks features of other CPUs: guests get what all have", cpu.shared.id);
    }
    match init(cpu) {
        Ok(()) => run(cpu),
        Err(error) => {
            log::error!("{}: {error}", cpu.shared.id);
            arch::halt()
        }
    }
}
