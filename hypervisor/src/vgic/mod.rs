//! The virtual GICv3.
