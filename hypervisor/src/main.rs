//! The EL2 image: how the machine gets from its loader to the first guest.
//!
//! On the host it is a stub, so that `cargo build` and `cargo clippy` work at the root.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod el2 {
    use core::fmt::Write;
    use core::panic::PanicInfo;
    use odometer::boot::early::Early;
    use odometer::boot::{BootError, bundle, cpus, guests, machine, memory, stop, system};
    use odometer::ids::CpuId;
    use odometer::scheduler::{self, Cpu};
    use odometer::stats::collect;
    use odometer::vm::life;

    /// From `head.s`: the MMU is on, with a map of the image and the device tree at `dtb`.
    #[unsafe(no_mangle)]
    extern "C" fn boot_main(dtb: u64, entry_ticks: u64, early: &mut Early) -> ! {
        let mut console = early.console(dtb);
        match boot(dtb, entry_ticks, early) {
            Ok(cpu) => scheduler::run(cpu),
            Err(error) => {
                let _ = writeln!(console, "odometer: {error}");
                stop::power_off(machine::conduit(dtb))
            }
        }
    }

    fn boot(dtb: u64, entry_ticks: u64, early: &mut Early) -> Result<&'static Cpu, BootError> {
        // What the device tree says of the machine, its command line, and the guests it was given.
        let machine = machine::read(dtb)?;
        let options = machine::options(&machine)?;
        let bundle = bundle::read(&machine, early)?;
        let totals = guests::totals(&bundle, &options);

        // Memory of our own, on the map that we keep; from here on there is a heap.
        let heap = guests::heap_bytes(totals, machine.cpus.len(), &options);
        let (stacks, frames) = memory::take(&machine, early, heap)?;
        let nodes = cpus::in_order(&machine);
        let system = system::make(&machine, options, &bundle, totals, &nodes, frames, entry_ticks)?;

        // This CPU, then the VMs, then the other CPUs, which wait for work.
        let cpu = cpus::make(system, stacks, CpuId::BOOT, totals.vcpus);
        cpus::init(cpu)?;
        system::enable_console(system, cpu)?;
        collect::boot_report(system, system::memory_bytes(&machine));
        guests::make(system, &bundle)?;
        cpus::start_others(system, stacks, &nodes, totals.vcpus);
        collect::start_report(system, odometer::arch::counter());
        system::provoke(options.fault);
        for vm in system::start_order(system) {
            life::boot(cpu, vm);
        }
        Ok(cpu)
    }

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        odometer::exit::own_fault::panicked(format_args!("{info}"))
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is Odometer's EL2 image; build and run it with `cargo xtask run`");
    std::process::exit(2);
}
