//! Tests of the virtual GIC, under a fake of the hardware's virtual CPU interface.

mod machine;
mod traps;
