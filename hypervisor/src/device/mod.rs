//! Virtual devices behind one MMIO bus.
