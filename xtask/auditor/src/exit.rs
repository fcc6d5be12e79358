//! Exits by what the CPU says of them: the vector, and the exception class of ESR_EL2 (Arm ARM D24.2.40).

use crate::event::Vector;

/// The class of an exit, by its name in the record.
pub fn class(vector: Vector, syndrome: u64) -> &'static str {
    match (vector, syndrome >> 26 & 0x3f) {
        (Vector::Irq | Vector::Fiq, _) => "exit_interrupt",
        (Vector::Serror, _) => "exit_serror",
        (Vector::Synchronous, 0x01) => "exit_wfx",
        (Vector::Synchronous, 0x07) => "exit_fp",
        (Vector::Synchronous, 0x16) => "exit_hvc",
        (Vector::Synchronous, 0x17) => "exit_smc",
        (Vector::Synchronous, 0x20 | 0x24) => "exit_abort",
        // System registers, mostly, and what the guest gets an UNDEFINED exception for.
        (Vector::Synchronous, _) => "exit_instruction",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_counts_for_synchronous_exceptions_only() {
        let hvc = 0x16 << 26 | 1 << 25;
        assert_eq!(class(Vector::Synchronous, hvc), "exit_hvc");
        assert_eq!(class(Vector::Irq, hvc), "exit_interrupt");
        assert_eq!(class(Vector::Serror, hvc), "exit_serror");
        for (code, name) in [
            (0x00, "exit_instruction"),
            (0x01, "exit_wfx"),
            (0x18, "exit_instruction"),
            (0x20, "exit_abort"),
            (0x24, "exit_abort"),
            (0x25, "exit_instruction"),
        ] {
            assert_eq!(class(Vector::Synchronous, code << 26 | 0x1ff), name);
        }
    }
}
