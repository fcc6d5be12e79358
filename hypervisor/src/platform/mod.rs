//! What the device tree says of the machine; drivers for what the hypervisor itself uses.
