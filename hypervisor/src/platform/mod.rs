//! What the device tree says of the machine; drivers for what the hypervisor itself uses.

pub mod console;
pub mod fdt;
pub mod gic;
pub mod machine;
pub mod options;
pub mod uart;
