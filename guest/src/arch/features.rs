//! An instruction of each class of features, to be tried: where the ID registers name the feature it must work, and where they
//! don't it must be undefined. docs/id-registers.md of Odometer says which it offers.
//!
//! Instructions that the assembler doesn't know for this target are given by their encoding (Arm ARM C6.2, C7.2). This kernel keeps
//! nothing in vector registers, and nothing below its stack pointer is changed: what writes memory adds 0, or writes 0 bytes.

use core::arch::asm;

use super::cpu::{counter, isb, read_register, write_register};
use super::exception::probe;
use super::selfcheck::Outcome;

/// A feature, and what came of using it.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether the ID registers name it.
    pub present: bool,
    /// What the instruction did.
    pub outcome: Outcome,
}

/// Calls a function with the [`Feature`] of each line: its name, the ID register, the field's lowest bit and its least value, the
/// instruction.
macro_rules! try_features {
    ($each:ident: $($name:literal $register:literal $shift:literal $least:literal $($instruction:literal),+;)*) => {
        $($each(Feature {
            name: $name,
            present: field(read_register!($register), $shift) >= $least,
            outcome: probe(|| {
                // SAFETY: as in the module's comment; one that faults is stepped over.
                unsafe {
                    asm!($($instruction,)+ out("x9") _, out("x10") _, out("x11") _)
                }
            }),
        });)*
    };
}

/// A field of an ID register; 15 is "not there" in those that have it.
const fn field(register: u64, shift: u32) -> u64 {
    match (register >> shift) & 0xf {
        15 => 0,
        value => value,
    }
}

/// Tries all features.
pub fn each(mut each: impl FnMut(Feature)) {
    // Our own traps (CPACR_EL1.ZEN and SMEN) come before a hypervisor's: out of the way.
    let cpacr = read_register!("cpacr_el1");
    write_register!("cpacr_el1", cpacr | (3 << 16) | (3 << 24));
    isb();
    switched_off(&mut each);
    offered(&mut each);
    write_register!("cpacr_el1", cpacr);
    isb();
}

/// Features with state that Odometer doesn't switch.
fn switched_off(each: &mut impl FnMut(Feature)) {
    try_features! { each:
        "feature_sve" "id_aa64pfr0_el1" 32 1 ".inst 0x04bf5029"; // RDVL X9, #1
        "feature_sve_register" "id_aa64pfr0_el1" 32 1 "mrs x9, S3_0_C1_C2_0"; // ZCR_EL1
        "feature_sme" "id_aa64pfr1_el1" 24 1 ".inst 0x04bf5829"; // RDSVL X9, #1
        "feature_sme_register" "id_aa64pfr1_el1" 24 1 "mrs x9, S3_0_C1_C2_6"; // SMCR_EL1
        "feature_mte_gcr" "id_aa64pfr1_el1" 8 2 "mrs x9, S3_0_C1_C0_6";
        "feature_mte_tfsr" "id_aa64pfr1_el1" 8 2 "mrs x9, S3_0_C5_C6_0";
        "feature_ras" "id_aa64pfr0_el1" 28 1 "mrs x9, S3_0_C5_C3_0"; // ERRIDR_EL1
        "feature_amu" "id_aa64pfr0_el1" 44 1 "mrs x9, S3_3_C13_C2_0"; // AMCR_EL0
        "feature_mpam" "id_aa64pfr0_el1" 40 1 "mrs x9, S3_0_C10_C5_0"; // MPAM1_EL1
        "feature_scxtnum" "id_aa64pfr0_el1" 56 2 "mrs x9, S3_0_C13_C0_7";
        "feature_nmi" "id_aa64pfr1_el1" 36 1 "msr S3_0_C4_C3_0, xzr"; // ALLINT
        "feature_gcs" "id_aa64pfr1_el1" 44 1 "mrs x9, S3_0_C2_C5_0"; // GCSCR_EL1
        "feature_the" "id_aa64pfr1_el1" 48 1 "mrs x9, S3_0_C13_C0_6"; // RCWMASK_EL1
        "feature_pmu" "id_aa64dfr0_el1" 8 1 "mrs x9, pmcr_el0";
        "feature_pmu_counter" "id_aa64dfr0_el1" 8 1 "mrs x9, pmccntr_el0";
        "feature_spe" "id_aa64dfr0_el1" 32 1 "mrs x9, S3_0_C9_C9_7"; // PMSIDR_EL1
        "feature_trbe" "id_aa64dfr0_el1" 44 1 "mrs x9, S3_0_C9_C11_7"; // TRBIDR_EL1
        "feature_brbe" "id_aa64dfr0_el1" 52 1 "mrs x9, S2_1_C9_C0_0"; // BRBCR_EL1
        "feature_trace" "id_aa64dfr0_el1" 4 1 "mrs x9, S2_1_C1_C1_4"; // TRCOSLSR
        "feature_trace_filter" "id_aa64dfr0_el1" 40 1 "mrs x9, S3_0_C1_C2_1"; // TRFCR_EL1
        "feature_lor" "id_aa64mmfr1_el1" 16 1 "mrs x9, S3_0_C10_C4_3"; // LORC_EL1
        "feature_tme" "id_aa64isar0_el1" 24 1 ".inst 0xd5233169"; // TTEST X9
        "feature_ls64" "id_aa64isar1_el1" 60 3 "mrs x9, S3_0_C13_C0_5"; // ACCDATA_EL1
        "feature_mops_set" "S3_0_C0_C6_2" 16 1 "mov x9, sp", "mov x10, xzr", ".inst 0x19cb0549"; // SETP
        "feature_mops_copy" "S3_0_C0_C6_2" 16 1 "mov x9, sp", "mov x10, sp", "mov x11, xzr", ".inst 0x190a0569"; // CPYFP
        "feature_tcr2" "S3_0_C0_C7_3" 0 1 "mrs x9, S3_0_C2_C0_3";
        "feature_sctlr2" "S3_0_C0_C7_3" 4 1 "mrs x9, S3_0_C1_C0_3";
        "feature_s1pie" "S3_0_C0_C7_3" 8 1 "mrs x9, S3_0_C10_C2_3"; // PIR_EL1
        "feature_s1poe" "S3_0_C0_C7_3" 16 1 "mrs x9, S3_3_C10_C2_4"; // POR_EL0
        "feature_fpmr" "S3_0_C0_C4_2" 32 1 "mrs x9, S3_3_C4_C4_2";
    }
}

/// Features without state, or with state that is switched.
fn offered(each: &mut impl FnMut(Feature)) {
    try_features! { each:
        "feature_aes" "id_aa64isar0_el1" 4 1 ".inst 0x4e284820"; // AESE V0.16B, V1.16B
        "feature_pmull" "id_aa64isar0_el1" 4 2 ".inst 0x0ee1e000"; // PMULL V0.1Q, V0.1D, V1.1D
        "feature_sha1" "id_aa64isar0_el1" 8 1 ".inst 0x5e280820"; // SHA1H S0, S1
        "feature_sha256" "id_aa64isar0_el1" 12 1 ".inst 0x5e282820"; // SHA256SU0 V0.4S, V1.4S
        "feature_sha512" "id_aa64isar0_el1" 12 2 ".inst 0xcec08020"; // SHA512SU0 V0.2D, V1.2D
        "feature_sha3" "id_aa64isar0_el1" 32 1 ".inst 0xce628c20"; // RAX1 V0.2D, V1.2D, V2.2D
        "feature_sm3" "id_aa64isar0_el1" 36 1 ".inst 0xce62c020"; // SM3PARTW1 V0.4S, V1.4S, V2.4S
        "feature_sm4" "id_aa64isar0_el1" 40 1 ".inst 0xcec08420"; // SM4E V0.4S, V1.4S
        "feature_crc32" "id_aa64isar0_el1" 16 1 ".inst 0x9ac94d29"; // CRC32X W9, W9, X9
        "feature_lse" "id_aa64isar0_el1" 20 2 ".inst 0xf83f03e9"; // LDADD XZR, X9, [SP]
        "feature_rdm" "id_aa64isar0_el1" 28 1 ".inst 0x6e828420"; // SQRDMLAH V0.4S, V1.4S, V2.4S
        "feature_dotprod" "id_aa64isar0_el1" 44 1 ".inst 0x4e829420"; // SDOT V0.4S, V1.16B, V2.16B
        "feature_fhm" "id_aa64isar0_el1" 48 1 ".inst 0x4e22ec20"; // FMLAL V0.4S, V1.4H, V2.4H
        "feature_flagm" "id_aa64isar0_el1" 52 1 ".inst 0xd500401f"; // CFINV
        "feature_tlbi_range" "id_aa64isar0_el1" 56 2 "mov x9, xzr", ".inst 0xd5088629", "dsb sy"; // TLBI RVAE1, X9
        "feature_rng" "id_aa64isar0_el1" 60 1 "mrs x9, S3_3_C2_C4_0"; // RNDR
        "feature_dpb" "id_aa64isar1_el1" 0 1 "mov x9, sp", ".inst 0xd50b7c29"; // DC CVAP, X9
        "feature_jscvt" "id_aa64isar1_el1" 12 1 ".inst 0x1e7e0009"; // FJCVTZS W9, D0
        "feature_fcma" "id_aa64isar1_el1" 16 1 ".inst 0x6e82e420"; // FCADD V0.4S, V1.4S, V2.4S, #90
        "feature_lrcpc" "id_aa64isar1_el1" 20 1 ".inst 0xf8bfc3e9"; // LDAPR X9, [SP]
        "feature_frintts" "id_aa64isar1_el1" 32 1 ".inst 0x1e284020"; // FRINT32Z S0, S1
        "feature_sb" "id_aa64isar1_el1" 36 1 ".inst 0xd50330ff"; // SB
        "feature_bf16" "id_aa64isar1_el1" 44 1 ".inst 0x6e42fc20"; // BFDOT V0.4S, V1.8H, V2.8H
        "feature_i8mm" "id_aa64isar1_el1" 52 1 ".inst 0x4e829c20"; // USDOT V0.4S, V1.16B, V2.16B
        "feature_fp16" "id_aa64pfr0_el1" 16 1 ".inst 0x1ee22820"; // FADD H0, H1, H2
        "feature_dit" "id_aa64pfr0_el1" 48 1 "mrs x9, S3_3_C4_C2_5";
        "feature_pan" "id_aa64mmfr1_el1" 20 1 "mrs x9, S3_0_C4_C2_3";
        "feature_uao" "id_aa64mmfr2_el1" 4 1 "mrs x9, S3_0_C4_C2_4";
        "feature_ecv" "id_aa64mmfr0_el1" 60 1 "mrs x9, S3_3_C14_C0_6"; // CNTVCTSS_EL0
    }
}

/// CRC32X of 64 bits that are 1 and an accumulator of 0, if there is CRC32.
pub fn crc32() -> Option<u64> {
    let mut sum = 0u64;
    let fault = probe(|| {
        // SAFETY: CRC32X W9, W9, X10 computes in registers; where it is undefined it is stepped over.
        unsafe { asm!(".inst 0x9aca4d29", inout("x9") sum, in("x10") u64::MAX, options(nomem, nostack)) }
    });
    fault.is_none().then_some(sum)
}

/// What LDADD of `add` makes of `value`, and what it found there, if there are atomic instructions.
pub fn add_atomically(value: u64, add: u64) -> Option<(u64, u64)> {
    let mut cell = value;
    let mut found = 0u64;
    let fault = probe(|| {
        let at = &raw mut cell;
        // SAFETY: LDADD X11, X9, [X10] on a cell of our own; where it is undefined it is stepped over.
        unsafe { asm!(".inst 0xf82b0149", inout("x9") found, in("x10") at, in("x11") add, options(nostack)) }
    });
    fault.is_none().then_some((cell, found))
}

/// SCTLR_EL1.EnIA: key A for instruction addresses is used.
const ENIA: u64 = 1 << 31;

/// Whether the ID registers name pointer authentication of addresses.
fn has_pointer_authentication() -> bool {
    let isar1 = read_register!("id_aa64isar1_el1");
    let isar2 = read_register!("S3_0_C0_C6_2");
    (isar1 >> 4) & 0xff != 0 || (isar2 >> 12) & 0xf != 0
}

/// Signs a pointer with a key made of `seed`, now and when the counter has reached `deadline`: both signed pointers; `None`
/// where there is no pointer authentication of addresses.
pub fn signatures_over_time(seed: u64, deadline: u64) -> Option<(u64, u64)> {
    if !has_pointer_authentication() {
        return None;
    }
    let sctlr = read_register!("sctlr_el1");
    write_register!("S3_0_C2_C1_0", seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    write_register!("S3_0_C2_C1_1", !seed);
    write_register!("sctlr_el1", sctlr | ENIA);
    isb();
    let sign = || {
        let mut pointer = 0x4008_0000_u64;
        // SAFETY: PACIA X9, X10 computes in registers.
        unsafe { asm!(".inst 0xdac10149", inout("x9") pointer, in("x10") 7, options(nomem, nostack)) };
        pointer
    };
    let first = sign();
    while counter() < deadline {}
    let second = sign();
    write_register!("sctlr_el1", sctlr);
    isb();
    Some((first, second))
}

/// Signs a pointer with key A under `modifier` and authenticates it under `with`: the signed one, and what became of it; `None`
/// where there is no pointer authentication of addresses.
pub fn authenticate(pointer: u64, modifier: u64, with: u64) -> Option<(u64, u64)> {
    if !has_pointer_authentication() {
        return None;
    }
    let sctlr = read_register!("sctlr_el1");
    write_register!("S3_0_C2_C1_0", 0x0123_4567_89ab_cdef);
    write_register!("S3_0_C2_C1_1", 0xfedc_ba98_7654_3210);
    write_register!("sctlr_el1", sctlr | ENIA);
    isb();
    let (mut signed, mut checked) = (pointer, 0u64);
    // An authentication that fails may also fault, where the CPU has FEAT_FPAC.
    let fault = probe(|| {
        // SAFETY: PACIA X9, X10 and AUTIA X11, X12 compute in registers.
        unsafe {
            asm!(
                ".inst 0xdac10149",
                "mov x11, x9",
                ".inst 0xdac1118b",
                inout("x9") signed,
                in("x10") modifier,
                inout("x11") checked,
                in("x12") with,
                options(nomem, nostack)
            )
        }
    });
    write_register!("sctlr_el1", sctlr);
    isb();
    Some((signed, if fault.is_some() { 0 } else { checked }))
}
