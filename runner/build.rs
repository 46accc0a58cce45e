//! How the program is linked.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if packs_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library that is linked in can read the packed list of the places that a position-independent program
/// corrects when it starts. The list is 4 KiB then, and not 330, which every start reads.
fn packs_relocations() -> bool {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_ENV") != "gnu" || variable("TARGET") != variable("HOST") {
        return false;
    }
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let told = String::from_utf8_lossy(&output.stdout);
    let mut numbers =
        told.trim().trim_start_matches("glibc ").split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (2, 36)
}
