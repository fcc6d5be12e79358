//! Reading and writing a system register by name.
//!
//! `aarch64-cpu` has typed accessors for registers whose fields we set; these macros serve those that are only saved,
//! restored or passed on, and those that it lacks (ICC_*, ICH_ELRSR_EL2, CNTHP_CVAL_EL2, VPIDR_EL2).

/// The value of a system register. Reading the registers that this crate names has no side effect on memory.
macro_rules! read_sysreg {
    ($name:expr) => {{
        let value: u64;
        // SAFETY: MRS of a named register changes nothing that Rust relies on.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }};
}

/// Writes a system register. Those that change how EL2 itself executes (SCTLR_EL2, TTBR0_EL2, VBAR_EL2) are written in
/// assembly or in `mmu` alone; the rest concern the guest, the GIC or a timer.
macro_rules! write_sysreg {
    ($name:expr, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: see above: no register written through this macro affects EL2's own memory or control flow.
        unsafe { core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) value, options(nostack, preserves_flags)) }
    }};
}

pub(crate) use {read_sysreg, write_sysreg};
