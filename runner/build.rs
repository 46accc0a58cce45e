//! How the program is linked: a start of it is part of every sandbox.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if packs_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    const ORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/start.ld");
    println!("cargo::rerun-if-changed={ORDER}");
    if lays_out() {
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{ORDER}");
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_native_with_glibc() -> bool {
    variable("CARGO_CFG_TARGET_ENV") == "gnu" && variable("TARGET") == variable("HOST")
}

/// Whether the C library that is linked in can read the packed list of the places that a position-independent program
/// corrects when it starts. The list is 4 KiB then, and not 330, which every start reads.
fn packs_relocations() -> bool {
    if !is_native_with_glibc() {
        return false;
    }
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let told = String::from_utf8_lossy(&output.stdout);
    let mut numbers =
        told.trim().trim_start_matches("glibc ").split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (2, 36)
}

/// Whether what a start calls is laid side by side: in what people run, by the linker that rustc brings along. Not every
/// other one takes such a list.
fn lays_out() -> bool {
    let linker_is_chosen =
        !variable("RUSTC_LINKER").is_empty() || variable("CARGO_ENCODED_RUSTFLAGS").contains("fuse-ld");
    is_native_with_glibc()
        && variable("CARGO_CFG_TARGET_ARCH") == "x86_64"
        && variable("PROFILE") == "release"
        && !linker_is_chosen
}
