//! Links the unwinder's small library into the binary: one shared object less to find, map and relocate at
//! every start.

fn main() {
    println!("cargo:rustc-link-arg-bins=-static-libgcc");
    println!("cargo:rerun-if-changed=build.rs");
}
