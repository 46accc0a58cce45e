//! How the program is linked: a start of it is part of every sandbox.

use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if packs_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    const ORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/start.ld");
    println!("cargo::rerun-if-changed={ORDER}");
    if lays_out() && is_understood(ORDER) {
        // Apart: a folder may have a comma in its name.
        for argument in ["-Xlinker", "-T", "-Xlinker", ORDER] {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_native_with_glibc() -> bool {
    variable("CARGO_CFG_TARGET_ENV") == "gnu" && variable("TARGET") == variable("HOST")
}

/// Whether the C library that is linked in can read the packed list of the places that a position-independent program
/// corrects when it starts. The list is 6 KiB then, and not 480, which every start reads.
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

/// Whether what a start calls is laid side by side: in what people run, where a start is known.
fn lays_out() -> bool {
    is_native_with_glibc()
        && variable("CARGO_CFG_TARGET_ARCH") == "x86_64"
        && variable("PROFILE") == "release"
}

/// Whether the linker that is used takes such a list: not every one does, and none is asked for its name. It is tried.
fn is_understood(order: &str) -> bool {
    let folder = Path::new(&variable("OUT_DIR")).join("order");
    let source = folder.join("main.rs");
    if fs::create_dir_all(&folder).and_then(|()| fs::write(&source, "fn main() {}\n")).is_err() {
        return false;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    let linker = variable("RUSTC_LINKER");
    if !linker.is_empty() {
        rustc.arg(format!("-Clinker={linker}"));
    }
    rustc.arg("-o").arg(folder.join("main")).arg(source);
    rustc
        .args(["-Clink-arg=-Xlinker", "-Clink-arg=-T", "-Clink-arg=-Xlinker"])
        .arg(format!("-Clink-arg={order}"));
    rustc.output().is_ok_and(|output| output.status.success())
}
