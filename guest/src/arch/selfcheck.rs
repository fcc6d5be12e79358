//! Instructions that the self-check tries: registers kept across exits (registers.S), and ones that a hypervisor
//! has to refuse or to emulate.

use core::arch::asm;

use super::exception::probe;

core::arch::global_asm!(include_str!("registers.S"));

mod entry {
    unsafe extern "C" {
        pub fn registers_hvc(function: u64) -> u64;
        pub fn registers_mmio(address: usize) -> u64;
        pub fn registers_system() -> u64;
        pub fn registers_spin(deadline: u64) -> u64;
        pub fn registers_wait() -> u64;
        pub fn vectors_hold(pattern: u64, deadline: u64, wait: u64) -> u64;
    }
}

/// General registers that changed over an HVC of `function`, as a mask.
pub fn registers_over_hvc(function: u64) -> u64 {
    // SAFETY: keeps what the calling convention wants kept; callers name functions without effect on memory.
    unsafe { entry::registers_hvc(function) }
}

/// The same over a load and a store of the device register at `address`, which takes back what it gave.
pub fn registers_over_mmio(address: usize) -> u64 {
    // SAFETY: as above; callers give a device register's address.
    unsafe { entry::registers_mmio(address) }
}

/// The same over reads of ID registers.
pub fn registers_over_id() -> u64 {
    // SAFETY: as above.
    unsafe { entry::registers_system() }
}

/// The same while spinning until the counter reaches `deadline`.
pub fn registers_over_time(deadline: u64) -> u64 {
    // SAFETY: as above.
    unsafe { entry::registers_spin(deadline) }
}

/// The same over a WFI, which must have something to end it.
pub fn registers_over_wait() -> u64 {
    // SAFETY: as above.
    unsafe { entry::registers_wait() }
}

/// Vector registers (and FPCR, bit 32) that changed until `deadline`, and over a WFI after it if `wait`.
pub fn vectors_over_time(pattern: u64, deadline: u64, wait: bool) -> u64 {
    // SAFETY: as above; this kernel keeps nothing in vector registers.
    unsafe { entry::vectors_hold(pattern, deadline, u64::from(wait)) }
}

/// Tries one instruction; evaluates to the syndrome if it faulted.
macro_rules! attempt {
    ($instruction:literal) => {
        probe(|| {
            // SAFETY: an instruction without effect on memory, or one that faults; the handler goes on behind it.
            unsafe { asm!($instruction, out("x9") _, options(nostack)) }
        })
    };
}

/// What an instruction did.
pub type Outcome = Option<u64>;

/// A read of a register in the IMPLEMENTATION DEFINED space that no CPU has.
pub fn read_implementation_defined() -> Outcome {
    attempt!("mrs x9, S3_7_C15_C15_7")
}

/// A read of a register that the architecture doesn't have.
pub fn read_unallocated() -> Outcome {
    attempt!("mrs x9, S3_3_C13_C3_7")
}

/// A write of a register that the architecture doesn't have.
pub fn write_unallocated() -> Outcome {
    attempt!("msr S3_3_C13_C3_7, xzr")
}

/// An HVC with another immediate and no known function.
pub fn odd_hvc() -> Outcome {
    probe(|| {
        // SAFETY: SMCCC: at most x0 to x17 change; no such function exists.
        unsafe { asm!("hvc #0x4a5b", inout("x0") 0xffff_fff0u64 => _, clobber_abi("C"), options(nostack)) }
    })
}

/// An SMC with no known function: its status, unless it faulted.
pub fn odd_smc() -> Result<i64, u64> {
    let mut status = 0;
    match probe(|| status = super::psci::status(super::psci::smc(0x8400_00fe, 0, 0, 0))) {
        Some(syndrome) => Err(syndrome),
        None => Ok(status),
    }
}

/// Cache maintenance by set and way, which is trapped or done.
pub fn set_way() -> Outcome {
    attempt!("dc cisw, xzr")
}

/// WFE with an event there.
pub fn wait_for_event() -> Outcome {
    let _ = attempt!("sev");
    attempt!("wfe")
}

/// Register 31 as source and target of what traps: ID register, SGI register (nobody is addressed).
pub fn zero_register_system() -> Outcome {
    attempt!("mrs xzr, id_aa64pfr0_el1").or(attempt!("msr S3_0_C12_C11_5, xzr"))
}

/// Tries one access to memory or a device at x9 = `$address`.
macro_rules! access {
    ($instruction:literal, $address:expr) => {
        probe(|| {
            // SAFETY: callers give a device register, or an address where there is nothing that Rust owns.
            unsafe {
                asm!($instruction, inout("x9") $address => _, out("x10") _, out("x11") _, options(nostack))
            }
        })
    };
}

/// A load into the zero register.
pub fn load_zero(address: usize) -> Outcome {
    access!("ldr wzr, [x9]", address)
}

/// A store of the zero register.
pub fn store_zero(address: usize) -> Outcome {
    access!("str wzr, [x9]", address)
}

/// A pair load.
pub fn load_pair(address: usize) -> Outcome {
    access!("ldp w10, w11, [x9]", address)
}

/// A load with write-back.
pub fn load_write_back(address: usize) -> Outcome {
    access!("ldr w10, [x9], #4", address)
}

/// A store with write-back; it stores zero.
pub fn store_write_back(address: usize) -> Outcome {
    access!("str wzr, [x9, #0]!", address)
}

/// A load of a byte.
pub fn load_byte(address: usize) -> Outcome {
    access!("ldrb w10, [x9]", address)
}

/// A load of 64 bits.
pub fn load_double(address: usize) -> Outcome {
    access!("ldr x10, [x9]", address)
}

/// A load of 32 bits that is not aligned.
pub fn load_unaligned(address: usize) -> Outcome {
    access!("ldr w10, [x9, #1]", address)
}

/// An exclusive load, which a device need not take.
pub fn load_exclusive(address: usize) -> Outcome {
    access!("ldxr w10, [x9]", address)
}

/// Lets an address' cache line reach memory.
pub fn clean(address: usize) {
    // SAFETY: cache maintenance changes no contents.
    unsafe { asm!("dc civac, {}", "dsb sy", in(reg) address, options(nostack)) };
}
