//! Sets the library's link options.

fn main() {
    // Once loaded, it stays: threads may be on its stacks.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
