//! Faults of EL2 itself, which end everything: reported with registers and a backtrace, whose addresses `xtask` resolves to names.

use crate::arch::{self, context::FaultArea};
use crate::boot::stop;
use crate::scheduler::Cpu;
use crate::stats::report::{FaultLine, write_fault};
use crate::system::Port;
use core::fmt::{self, Write};

/// Most frames of a backtrace.
const DEPTH: usize = 32;

/// Names of the vectors that EL2's own exceptions take.
const VECTORS: [&str; 8] = [
    "synchronous exception with SP_EL0",
    "IRQ with SP_EL0",
    "FIQ with SP_EL0",
    "SError with SP_EL0",
    "synchronous exception",
    "IRQ",
    "FIQ",
    "SError",
];

/// An exception at EL2, on the emergency stack: nothing can be done but to say where it was.
#[unsafe(no_mangle)]
extern "C" fn el2_fault(area: &'static FaultArea, vector: u64) -> ! {
    let what = VECTORS.get(vector as usize).copied().unwrap_or("exception");
    let mut trace = [0; DEPTH];
    let depth = arch::backtrace(area.x[29], &mut trace);
    let cpu = arch::this_cpu();
    report(cpu, what, &area.x, area.sp, trace.get(..depth).unwrap_or(&[]), arch::own_exception())
}

/// A panic of EL2's own code.
pub fn panicked(message: fmt::Arguments<'_>) -> ! {
    let mut trace = [0; DEPTH];
    let depth = arch::backtrace(arch::frame_pointer(), &mut trace);
    if !arch::has_cpu() {
        let base = arch::image_layout().whole.base.0;
        let mut console = crate::boot::early::console_of_last_resort();
        let _ = write!(
            console,
            "odometer: panic during boot: {message}\nodometer: backtrace (offsets in the image):"
        );
        for address in trace.iter().take(depth) {
            let _ = write!(console, " {:#x}", address.wrapping_sub(base));
        }
        let _ = writeln!(console);
        arch::halt()
    }
    let cpu = arch::this_cpu();
    cpu.system.console.emergency(|out| writeln!(out, "odometer: panic on {}: {message}", cpu.shared.id));
    report(cpu, "panic", &[], 0, trace.get(..depth).unwrap_or(&[]), arch::OwnException::default())
}

/// Prints everything, past whoever holds the console, and switches the machine off.
fn report(
    cpu: &Cpu,
    what: &str,
    registers: &[u64],
    sp: u64,
    trace: &[u64],
    exception: arch::OwnException,
) -> ! {
    let system = cpu.system;
    let ran = cpu.resident.get();
    let fault = FaultLine {
        what,
        base: Some(arch::image_layout().whole.base.0),
        cpu: u64::from(cpu.shared.id.0),
        guest: ran.map(|vcpu| (vcpu.vm.name.as_str(), u64::from(vcpu.vm.id.0), u64::from(vcpu.index.0))),
        el: 2,
        pc: exception.pc,
        pstate: exception.pstate,
        esr: exception.esr,
        far: exception.far,
        ipa: None,
        registers,
        backtrace: trace,
    };
    system.console.emergency(|out| {
        for_people(out, cpu, &fault, sp)?;
        write_fault(out, &fault)
    });
    stop::power_off(system.psci)
}

fn for_people(
    out: &mut crate::platform::uart::Polled<'_, Port>,
    cpu: &Cpu,
    fault: &FaultLine<'_>,
    sp: u64,
) -> fmt::Result {
    let base = arch::image_layout().whole.base.0;
    writeln!(out, "odometer: fault at EL2 on {}: {}", cpu.shared.id, fault.what)?;
    writeln!(
        out,
        "odometer: image at {base:#x}, PC {:#x}, SP {sp:#x}, ESR {:#x}, FAR {:#x}",
        fault.pc, fault.esr, fault.far
    )?;
    if let Some((name, _, vcpu)) = fault.guest {
        writeln!(out, "odometer: loaded: {name}, vCPU {vcpu}")?;
    }
    for (row, registers) in fault.registers.chunks(4).enumerate() {
        write!(out, "odometer:")?;
        for (column, value) in registers.iter().enumerate() {
            write!(out, " x{:<2} {value:016x}", 4 * row + column)?;
        }
        writeln!(out)?;
    }
    write!(out, "odometer: backtrace (offsets in the image):")?;
    // A panic has no address of its own.
    let pc = Some(&fault.pc).filter(|&&pc| pc != 0);
    for address in pc.into_iter().chain(fault.backtrace) {
        write!(out, " {:#x}", address.wrapping_sub(base))?;
    }
    writeln!(out)
}
