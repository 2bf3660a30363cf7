//! Link options of the library.

fn main() {
    // Once loaded it stays: the fork handler that our constructor registered, the threads' static TLS and
    // waiters inside of our code would outlive a `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Line tables for whoever reads a backtrace, at a third of their size.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--compress-debug-sections=zlib");
    println!("cargo:rerun-if-changed=build.rs");
}
