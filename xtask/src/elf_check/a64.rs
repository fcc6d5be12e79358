//! Which A64 instructions touch FP, SIMD, SVE or SME registers.
//!
//! By the classes of the Arm ARM (DDI 0487), chapter C4 "A64 Instruction Set Encoding": the main class stands in bits
//! 28:25 (`op0`). No disassembler is needed for this question, and so none can be wrong about it.

/// What kind of register an instruction touches besides the general ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vector {
    /// A load or store of FP/SIMD registers (bit 26, `V`, in the class "Loads and Stores").
    LoadStore,
    /// The class "Data Processing -- Scalar Floating-Point and Advanced SIMD", cryptography included.
    DataProcessing,
    /// SVE or SME.
    Scalable,
    /// A move from or to FPCR or FPSR, which CPTR_EL2 traps as it traps the others.
    StatusRegister,
}

/// Classifies one instruction; `None`: it touches no FP/SIMD state.
pub fn vector(word: u32) -> Option<Vector> {
    let bits = |high: u32, low: u32| (word >> low) & ((1 << (high - low + 1)) - 1);
    match bits(28, 25) {
        // Bit 31 tells SME from the permanently undefined encodings.
        0b0000 => (bits(31, 31) == 1).then_some(Vector::Scalable),
        0b0010 => Some(Vector::Scalable),
        // x1x0: loads and stores.
        0b0100 | 0b0110 | 0b1100 | 0b1110 => {
            (bits(26, 26) == 1 && !is_memory_set(word)).then_some(Vector::LoadStore)
        }
        // x111: scalar floating-point and Advanced SIMD.
        0b0111 | 0b1111 => Some(Vector::DataProcessing),
        // MRS and MSR (bits 31:22 = 1101010100, bit 21 is the direction) of S3_3_C4_C4_0 and _1.
        0b1010 | 0b1011 => (word & 0xffdf_ffc0 == 0xd51b_4400).then_some(Vector::StatusRegister),
        _ => None,
    }
}

/// Memory copy and memory set (FEAT_MOPS): the one class of loads and stores where bit 26 says something else (`SETG*`
/// against `CPY*` and `SET*`). Bits 29:27 = 011, 25:24 = 01, 21 = 0, 11:10 = 01.
fn is_memory_set(word: u32) -> bool {
    word & 0x3b20_0c00 == 0x1900_0400
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings as an assembler gives them.
    #[test]
    fn instructions_without_fp_are_let_through() {
        for (word, name) in [
            (0xd503201f, "nop"),
            (0xd65f03c0, "ret"),
            (0xd65f0bff, "retaa"),
            (0x14000001, "b .+4"),
            (0x54000040, "b.eq .+8"),
            (0x34000040, "cbz w0, .+8"),
            (0x36000040, "tbz w0, #0, .+8"),
            (0xa9bf7bfd, "stp x29, x30, [sp, #-16]!"),
            (0xa9400400, "ldp x0, x1, [x0]"),
            (0x69400400, "ldpsw x0, x1, [x0]"),
            (0xf9400000, "ldr x0, [x0]"),
            (0xb9400000, "ldr w0, [x0]"),
            (0x39400000, "ldrb w0, [x0]"),
            (0x58000040, "ldr x0, .+8"),
            (0xf8626800, "ldr x0, [x0, x2]"),
            (0x885f7c00, "ldxr w0, [x0]"),
            (0xc8dffc00, "ldar x0, [x0]"),
            (0x48207c82, "casp x0, x1, x2, x3, [x4]"),
            (0xf8200020, "ldadd x0, x0, [x1]"),
            (0xd9200800, "stg x0, [x0]"),
            (0x19010440, "cpyfp"),
            (0x19c20420, "setp"),
            (0x1dc20420, "setgp: bit 26 is no V there"),
            (0xd51c1100, "msr hcr_el2, x0"),
            (0xd53e1140, "mrs x0, cptr_el3"),
            (0xd53b4200, "mrs x0, nzcv"),
            (0xd50342df, "msr daifset, #2"),
            (0xd5033fdf, "isb"),
            (0x91000400, "add x0, x0, #1"),
            (0x8b010000, "add x0, x0, x1"),
            (0x9b017c00, "mul x0, x0, x1"),
            (0xdac01000, "clz x0, x0"),
            (0x9ac04c00, "crc32x w0, w0, x0"),
            (0x90000000, "adrp x0, ."),
            (0xd2800000, "mov x0, #0"),
            (0xd4000002, "hvc #0"),
            (0xd69f03e0, "eret"),
            (0x00000000, "udf #0"),
            (0x0000dead, "udf #0xdead"),
        ] {
            assert_eq!(vector(word), None, "{word:#010x} {name}");
        }
    }

    #[test]
    fn fp_and_simd_are_found() {
        use Vector::{DataProcessing, LoadStore, Scalable, StatusRegister};
        for (word, kind, name) in [
            (0xad000400, LoadStore, "stp q0, q1, [x0]"),
            (0x6d400400, LoadStore, "ldp d0, d1, [x0]"),
            (0x3dc00000, LoadStore, "ldr q0, [x0]"),
            (0xfd400000, LoadStore, "ldr d0, [x0]"),
            (0xbd400000, LoadStore, "ldr s0, [x0]"),
            (0x3d400000, LoadStore, "ldr b0, [x0]"),
            (0x1c000040, LoadStore, "ldr s0, .+8"),
            (0x9c000040, LoadStore, "ldr q0, .+8"),
            (0x3cc00000, LoadStore, "ldur q0, [x0]"),
            (0x3ce26800, LoadStore, "ldr q0, [x0, x2]"),
            (0x4c407000, LoadStore, "ld1 {v0.16b}, [x0]"),
            (0x4cdf7000, LoadStore, "ld1 {v0.16b}, [x0], #16"),
            (0x0d400000, LoadStore, "ld1 {v0.b}[0], [x0]"),
            (0x1e602800, DataProcessing, "fadd d0, d0, d0"),
            (0x1e6e1000, DataProcessing, "fmov d0, #1.0"),
            (0x9e660000, DataProcessing, "fmov x0, d0"),
            (0x9e670000, DataProcessing, "fmov d0, x0"),
            (0x1e620000, DataProcessing, "scvtf d0, w0"),
            (0x1f420000, DataProcessing, "fmadd d0, d0, d2, d0"),
            (0x4ea01c00, DataProcessing, "mov v0.16b, v0.16b"),
            (0x6f00e400, DataProcessing, "movi v0.2d, #0"),
            (0x4e080c00, DataProcessing, "dup v0.2d, x0"),
            (0x4e284800, DataProcessing, "aese v0.16b, v0.16b"),
            (0x5e280800, DataProcessing, "sha1h s0, s0"),
            (0xce000000, DataProcessing, "eor3 v0.16b, v0.16b, v0.16b, v0.16b"),
            (0x0e205800, DataProcessing, "cnt v0.8b, v0.8b"),
            (0x04a00000, Scalable, "add z0.s, z0.s, z0.s"),
            (0x2518e3e0, Scalable, "ptrue p0.b"),
            (0xa5e0a000, Scalable, "ld1d {z0.d}, p0/z, [x0]"),
            (0x85804000, Scalable, "ldr z0, [x0]"),
            (0xc0080000, Scalable, "zero {}"),
            (0xd53b4400, StatusRegister, "mrs x0, fpcr"),
            (0xd53b4421, StatusRegister, "mrs x1, fpsr"),
            (0xd51b4402, StatusRegister, "msr fpcr, x2"),
            (0xd51b4423, StatusRegister, "msr fpsr, x3"),
        ] {
            assert_eq!(vector(word), Some(kind), "{word:#010x} {name}");
        }
    }
}
