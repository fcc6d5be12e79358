//! Pointer authentication (Arm ARM D8.10): keys that belong to a vCPU.
//!
//! Most guests that never use it should not pay for it: HCR_EL2.API and APK let its instructions and key registers trap until the
//! first use, as FP/SIMD does; from then on the keys go in and out with the vCPU, until it is started anew.

use super::{read_sysreg, write_sysreg};
use crate::arch::context::Context;

/// HCR_EL2.APK and API: key registers and instructions don't trap.
const HCR_PAUTH: u64 = 1 << 40 | 1 << 41;

macro_rules! keys {
    ($($index:literal => $name:literal,)*) => {
        fn save_keys(keys: &mut [u64; 10]) {
            $(keys[$index] = read_sysreg!($name);)*
        }

        fn load_keys(keys: &[u64; 10]) {
            $(write_sysreg!($name, keys[$index]);)*
        }
    };
}

// By encoding: the assembler knows the names only for CPUs that have the registers.
keys! {
    0 => "S3_0_C2_C1_0", // APIAKeyLo_EL1
    1 => "S3_0_C2_C1_1",
    2 => "S3_0_C2_C1_2", // APIBKeyLo_EL1
    3 => "S3_0_C2_C1_3",
    4 => "S3_0_C2_C2_0", // APDAKeyLo_EL1
    5 => "S3_0_C2_C2_1",
    6 => "S3_0_C2_C2_2", // APDBKeyLo_EL1
    7 => "S3_0_C2_C2_3",
    8 => "S3_0_C2_C3_0", // APGAKeyLo_EL1
    9 => "S3_0_C2_C3_1",
}

/// Puts the keys of a vCPU that uses them away, and lets the next one's uses trap.
#[cold]
pub fn save_pauth(context: &mut Context) {
    save_keys(&mut context.pauth_keys);
    deny_pauth();
}

/// Lets uses trap.
pub fn deny_pauth() {
    write_sysreg!("hcr_el2", read_sysreg!("hcr_el2") & !HCR_PAUTH);
}

/// Loads the keys of a vCPU that uses them.
#[cold]
pub fn load_pauth(context: &Context) {
    write_sysreg!("hcr_el2", read_sysreg!("hcr_el2") | HCR_PAUTH);
    load_keys(&context.pauth_keys);
}
