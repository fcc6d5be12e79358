//! The guest kernel's image: its two Rust entries. Everything else is in the library.
#![cfg_attr(target_os = "none", no_std, no_main)]

/// Entered on the boot CPU with MMU, caches and stack set up: the device tree's address, and the counter at the
/// first instruction.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn guest_main(device_tree: usize, started: u64) -> ! {
    guest::kernel::start(device_tree, started)
}

/// Entered on a CPU that CPU_ON started, likewise.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn guest_secondary(cpu: usize, started: u64) -> ! {
    guest::kernel::start_secondary(cpu, started)
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a bare-metal guest kernel; build and run it with `cargo xtask run`");
    std::process::exit(2);
}
