//! This CPU's identification registers.

use super::read_sysreg;
use crate::exit::id_registers::{IdRegisters, SLOTS};

macro_rules! read_all {
    ($table:ident, $($crm:literal),*) => {
        $(read_all!(@row $table, $crm, 0, 1, 2, 3, 4, 5, 6, 7);)*
    };
    (@row $table:ident, $crm:literal, $($op2:literal),*) => {
        $($table[$crm * 8 + $op2] = read_sysreg!(concat!("S3_0_C0_C", $crm, "_", $op2));)*
    };
}

/// All ID registers of the space that TID3 traps (op0 3, op1 0, CRn 0, CRm 1 to 7) as this CPU has them.
pub fn id_registers() -> IdRegisters {
    let mut values = [0; SLOTS];
    read_all!(values, 1, 2, 3, 4, 5, 6, 7);
    IdRegisters::from_hardware(values)
}
