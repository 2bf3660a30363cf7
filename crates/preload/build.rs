//! Link options of the library.

fn main() {
    // Once loaded it stays: the fork handler that our constructor registered, the threads' static TLS and
    // waiters inside of our code would outlive a `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
