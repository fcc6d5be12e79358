//! Hands the linker script to the linker when the EL2 image is built.

use std::{env, path::PathBuf};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let script = root.join("../linker/hypervisor.ld");
    println!("cargo:rerun-if-changed={}", script.display());
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        println!("cargo:rustc-link-arg-bins=-T{}", script.display());
        for arg in [
            "-pie",
            "--no-dynamic-linker",
            "-znotext",
            "-znorelro",
            "--no-apply-dynamic-relocs",
            "--gc-sections",
            "--build-id=none",
        ] {
            println!("cargo:rustc-link-arg-bins={arg}");
        }
    }
}
