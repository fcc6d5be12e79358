//! Tests of the allocator on the host. The concurrent ones are in `hypervisor/tests/loom_vmid.rs`.

mod machine;
mod prediction;
mod properties;
mod recorder;
mod rules;
