//! The check that EL2 code has no FP/SIMD instruction.
//! (Stub: `setup` fills it in.)
