//! What the device tree says of the machine; drivers for what the hypervisor itself uses.

pub mod fdt;
pub mod machine;
pub mod options;
