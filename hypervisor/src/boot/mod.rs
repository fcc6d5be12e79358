//! Image header, first instructions, EL2 MMU, secondary CPUs.
