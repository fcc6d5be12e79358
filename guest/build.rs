//! Hands the linker script to the linker when the guest is built for the bare machine.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let bare = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    if !bare {
        return;
    }
    let package =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let script = package.join("../linker/guest.ld");
    println!("cargo::rerun-if-changed={}", script.display());
    println!("cargo::rustc-link-arg-bins=-T{}", script.display());
    println!("cargo::rustc-link-arg-bins=--no-pie");
}
