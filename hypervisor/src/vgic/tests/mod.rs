//! Tests of the virtual GIC, under a fake of the hardware's virtual CPU interface.

mod concurrency;
mod delivery;
mod machine;
mod property;
mod registers;
mod switch;
mod traps;
