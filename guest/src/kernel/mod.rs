//! The kernel: from the first Rust function to the load, and from its end to SYSTEM_OFF.

pub mod console;
pub mod cpus;
pub mod memory;
pub mod pipes;
pub mod tasks;

use arrayvec::ArrayString;
use spin::Once;

use core::fmt;
use core::sync::atomic::Ordering;

use crate::arch::{cpu, gic, mmu, psci};
use crate::arguments::Load;
use crate::json::Escaped;
use crate::machine::{Machine, Region, blob_size};
use crate::output::Output;
use console::report;
use memory::Arena;

/// Longest bootargs in bytes.
const BOOTARGS: usize = 2048;
/// Where QEMU's `virt` and Odometer have the console: for the message that there is no usable device tree.
const LIKELY_UART: Region = Region { base: 0x900_0000, size: 0x1000 };

static BOOTARGS_COPY: Once<ArrayString<BOOTARGS>> = Once::new();
static MACHINE: Once<Machine<'static>> = Once::new();

/// The machine. Panics before [`start`] has read it.
pub fn machine() -> &'static Machine<'static> {
    MACHINE.get().expect("the machine is read first of all")
}

/// Prints an error line.
pub fn error(arguments: fmt::Arguments<'_>) {
    report!("error", "\"message\":\"{}\"", Escaped(arguments));
}

/// Prints the last line and powers off.
pub fn end(ok: bool) -> ! {
    report!("end", "\"ok\":{}", ok);
    console::drain();
    psci::system_off()
}

/// Prints an error and the last line, and powers off.
pub fn fail(arguments: fmt::Arguments<'_>) -> ! {
    error(arguments);
    end(false)
}

/// No console is known yet: tries the likely one.
fn fail_early(arguments: fmt::Arguments<'_>) -> ! {
    if mmu::map_device(LIKELY_UART) {
        console::init(LIKELY_UART);
    }
    fail(arguments)
}

/// The device tree at `address`. `None`: there is none that is mapped.
fn device_tree(address: usize) -> Option<&'static [u8]> {
    let ram = crate::machine::RAM_BASE as usize..2 * crate::machine::RAM_BASE as usize - (2 << 20);
    if !ram.contains(&address) || !address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: RAM is mapped; nobody writes there until the arena is made.
    let header = unsafe { core::slice::from_raw_parts(address as *const u8, 40) };
    let size = blob_size(header).filter(|size| (40..=2 << 20).contains(size))?;
    // SAFETY: as above.
    Some(unsafe { core::slice::from_raw_parts(address as *const u8, size) })
}

/// Reads the machine and keeps what is needed of it, so that the device tree's memory can be used.
fn read_machine(address: usize) -> &'static Machine<'static> {
    let Some(blob) = device_tree(address) else {
        fail_early(format_args!("no device tree at {address:#x}, which x0 held at the start"));
    };
    let machine = match Machine::from_blob(blob) {
        Ok(machine) => machine,
        Err(error) => fail_early(format_args!("{error}")),
    };
    let devices =
        [machine.uart, machine.distributor].into_iter().chain(machine.redistributors.iter().copied());
    for device in devices {
        if !mmu::map_device(device) {
            fail_early(format_args!(
                "device at {:#x} does not lie below 1 GiB, where this kernel maps devices",
                device.base
            ));
        }
    }
    console::init(machine.uart);
    let bootargs = BOOTARGS_COPY.call_once(|| match ArrayString::from(machine.bootargs) {
        Ok(copy) => copy,
        Err(_) => fail(format_args!("bootargs are longer than {BOOTARGS} bytes")),
    });
    let mut machine = Machine { bootargs, ..machine };
    // The boot CPU is CPU 0.
    match machine.cpus.iter().position(|affinity| *affinity == cpu::affinity()) {
        Some(at) => machine.cpus[..=at].rotate_right(1),
        None => machine.cpus[0] = cpu::affinity(),
    }
    for (i, affinity) in machine.cpus.iter().enumerate() {
        cpus::get(i).affinity.store(*affinity, Ordering::Relaxed);
    }
    if let Some(conduit) = machine.psci {
        psci::set_conduit(conduit);
    }
    MACHINE.call_once(|| machine)
}

fn start_interrupts() {
    let Some(frame) = cpus::redistributor() else {
        fail(format_args!("no GICv3 redistributor for affinity {:#x}", cpu::affinity()));
    };
    cpu::stop_timer();
    gic::init_cpu(frame, machine().timer);
}

/// Starts the kernel on the boot CPU.
pub fn start(device_tree: usize, started: u64) -> ! {
    cpu::set_index(0);
    cpus::this().started.store(started, Ordering::Relaxed);
    let machine = read_machine(device_tree);
    mmu::protect(machine.memory.base + machine.memory.size);
    // SAFETY: made here once. The device tree is not used any more: `machine` refers to the copy of bootargs.
    let arena = unsafe { Arena::new(machine.memory) };
    gic::init(machine);
    start_interrupts();
    cpus::set_online(true);
    cpu::unmask_interrupts();
    match Output::of(machine.bootargs) {
        Some(output) => console::limit(output),
        None => fail(format_args!("parameter console: it must be on, reduced or off")),
    }
    match Load::parse(machine.bootargs) {
        Ok(load) => {
            let ok = crate::loads::run(load, arena);
            end(ok)
        }
        Err(error) => fail(format_args!("{error}")),
    }
}

/// Starts a further CPU.
pub fn start_secondary(index: usize, started: u64) -> ! {
    cpu::set_index(index);
    cpus::this().started.store(started, Ordering::Relaxed);
    start_interrupts();
    cpu::unmask_interrupts();
    cpus::set_online(true);
    cpus::work()
}

/// The interrupt handler; `time` is the counter at its start.
#[unsafe(no_mangle)]
extern "C" fn guest_interrupt(time: u64) {
    let cpu = cpus::this();
    let intid = gic::acknowledge();
    if intid >= gic::SPECIAL {
        return;
    }
    cpu.note(intid, time);
    let tick = intid == machine().timer;
    let scheduling = tick && tasks::tick(time);
    if tick && !scheduling {
        cpu::stop_timer();
    }
    gic::complete(intid);
    if scheduling {
        tasks::preempt();
    } else if intid == cpus::SGI_KICK {
        tasks::kicked();
    }
}
