//! Sets the library's link options, and finds out whether its symbols can have versions.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

/// glibc's version nodes that `export.rs` names, oldest first: the first is what a reference without a version gets.
const X86_64: &[&str] =
    &["GLIBC_2.2.5", "GLIBC_2.3.2", "GLIBC_2.3.4", "GLIBC_2.28", "GLIBC_2.30", "GLIBC_2.34"];
const OTHERS: &[&str] = &["GLIBC_2.17", "GLIBC_2.28", "GLIBC_2.30", "GLIBC_2.34"];

/// Keeps together what every program reads and writes when it starts: two pages that are touched, instead of a dozen.
const LAYOUT: &str = "
SECTIONS { .lockwright.begin : { *(.lockwright.begin) } } INSERT BEFORE .text;
SECTIONS {
  .lockwright.start : ALIGN(4096) {
    *(.lockwright.mailbox) *(.data.DW.ref.rust_eh_personality) *(.lockwright.start) *(.lockwright.programs)
    . = ALIGN(4096);
  }
} INSERT AFTER .data;
";

/// The source of a library with a versioned function.
const PROBE: &str = r#"
#![no_std]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
extern "C" fn probe() {}
core::arch::global_asm!(
    ".globl probe.1", ".type probe.1, %function", ".set probe.1, {probe}",
    ".symver probe.1, probe@@GLIBC_2.34, remove", probe = sym probe,
);
"#;

fn main() {
    // Once loaded, the library stays: the fork handler that our constructor registered, the threads' static TLS and
    // waiters inside our code would outlive a `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // No start files of the compiler's: what they register is for C++ and for libraries that are unloaded. Each symbol that they look up
    // in vain, and each page that they touch, would be paid for at the start of every program.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    // Line tables for backtraces, at a third of their size.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--compress-debug-sections=zlib");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(versions)");

    let out = env::var("OUT_DIR").expect("cargo says where");
    let layout = Path::new(&out).join("layout.ld");
    fs::write(&layout, LAYOUT).expect("our own folder can be written");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{}", layout.display());
    let script = Path::new(&out).join("versions.map");
    let is_x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let nodes = if is_x86 { X86_64 } else { OTHERS };
    let lines: Vec<String> = nodes.iter().map(|node| format!("{node} {{ }};\n")).collect();
    fs::write(&script, lines.concat()).expect("our own folder can be written");
    if takes_versions(Path::new(&out), &script) {
        println!("cargo:rustc-cfg=versions");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    } else {
        println!(
            "cargo:warning=this linker takes no symbol versions beside rustc's own list (lld does): \
             programs that ask for glibc's functions by version (libtsan) will not get ours"
        );
    }
}

/// Does the linker that rustc will use accept a version script beside rustc's own? GNU ld and gold don't.
fn takes_versions(out: &Path, script: &Path) -> bool {
    let source = out.join("probe.rs");
    fs::write(&source, PROBE).expect("our own folder can be written");
    let said = |name: &str| env::var(name).unwrap_or_default();
    let mut rustc = Command::new(said("RUSTC"));
    rustc.args(["--crate-type=cdylib", "--edition=2024", "-Cpanic=abort", "-Clink-arg=-nostdlib"]);
    rustc.arg(format!("-Clink-arg=-Wl,--version-script={}", script.display()));
    rustc.args(["--target", &said("TARGET")]).arg("-o").arg(out.join("probe.so")).arg(&source);
    let linker = said("RUSTC_LINKER");
    if !linker.is_empty() {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let flags = said("CARGO_ENCODED_RUSTFLAGS");
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    rustc.stdout(Stdio::null()).stderr(Stdio::null());
    rustc.status().is_ok_and(|status| status.success())
}
