//! The VMID allocator and its policies.
