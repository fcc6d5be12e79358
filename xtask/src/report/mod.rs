//! What a run reports: the hypervisor's records as types, statistics over trials, and tables.

pub mod records;
pub mod statistics;
pub mod summary;
pub mod symbols;
pub mod table;
