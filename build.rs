//! Links the program with packed relocations: its file is 0.4 MB smaller, and as much is not read into memory at start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
}
