//! Tests of the allocator on the host. The concurrent ones are in `hypervisor/tests/loom_vmid`.

mod comparison;
mod ends;
mod machine;
mod over_vms;
mod pinned;
mod prediction;
mod properties;
mod recorder;
mod replay;
mod rules;
mod simulator;
mod tlbs;
