//! The EL2 image. On the host it is a stub, so that `cargo build` and `cargo clippy` work at the root.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is Odometer's EL2 image; build and run it with `cargo xtask run`");
    std::process::exit(2);
}
