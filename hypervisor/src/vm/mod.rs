//! A VM and its vCPUs.
