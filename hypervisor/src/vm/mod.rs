//! A VM and its vCPUs.

pub mod device_tree;
pub mod layout;
pub mod load;
