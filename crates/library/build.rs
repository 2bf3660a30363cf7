//! Builds `liblockwright.so` with cargo from `source/`, in a workspace of its own, if the profile is a release one.
//!
//! A crate can't depend on another's cdylib, and cargo installs only binaries. So the sources come along: `source/` has the root's
//! manifest (its release profile is what the library must be built with) and the crates that the library is made of, under
//! names that `cargo package` doesn't take for packages of their own.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, process};

fn main() {
    println!("cargo:rustc-check-cfg=cfg(built)");
    println!("cargo:rerun-if-changed=build.rs");
    // Tests and checks have no use for it, and would build it again.
    if variable("PROFILE") != "release" {
        return;
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let tree = out.join("tree");
    lay_out(Path::new("source"), &tree).unwrap_or_else(|error| {
        fail(&format!("cannot copy the library's sources to '{}': {error}", tree.display()))
    });
    // Without the network first: what it depends on is in the cache, since we depend on it, too.
    let built = build(&out, &["--offline"]);
    let built = if built.status.success() { built } else { build(&out, &[]) };
    if !built.status.success() {
        fail(&format!("cannot build the library:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    let file = out.join("target").join(variable("TARGET")).join("release/liblockwright.so");
    let bytes = fs::read(&file)
        .unwrap_or_else(|error| fail(&format!("cannot read '{}': {error}", file.display())));
    let mut hash = DefaultHasher::new();
    hash.write(&bytes);
    println!("cargo:rustc-cfg=built");
    println!("cargo:rustc-env=LIBRARY={}", file.display());
    println!("cargo:rustc-env=HASH={:016x}", hash.finish());
}

/// The library's workspace: the root's manifest, and each crate where that says it is.
fn lay_out(source: &Path, tree: &Path) -> io::Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    for entry in fs::read_dir(source)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        match (name, path.is_dir()) {
            ("workspace", _) => manifest(&path, &tree.join("Cargo.toml"))?,
            ("build-preload", _) => copy(&path, &tree.join("crates/preload/build.rs"))?,
            (_, true) => copy_folder(&path, &tree.join("crates").join(name).join("src"))?,
            (_, false) => manifest(&path, &tree.join("crates").join(name).join("Cargo.toml"))?,
        }
    }
    Ok(())
}

/// A manifest without what only the whole project has: its other members, and what tests depend on.
fn manifest(from: &Path, to: &Path) -> io::Result<()> {
    println!("cargo:rerun-if-changed={}", from.display());
    let text = fs::read_to_string(from)?;
    let mut kept = String::new();
    let mut is_for_tests = false;
    for line in text.lines() {
        if line.starts_with('[') {
            is_for_tests = line == "[dev-dependencies]";
        }
        if line.starts_with("members = ") {
            kept += "members = [\"crates/*\"]\n";
        } else if !is_for_tests && !line.starts_with("default-members = ") {
            kept += line;
            kept += "\n";
        }
    }
    write(to, kept.as_bytes())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let to = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() { copy_folder(&path, &to)? } else { copy(&path, &to)? }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    println!("cargo:rerun-if-changed={}", from.display());
    write(to, &fs::read(from)?)
}

fn write(to: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(to.parent().expect("it lies in a folder"))?;
    fs::write(to, bytes)
}

/// Builds it in `out`, for the machine that the command is for, with the linker and flags that we were given.
fn build(out: &Path, flags: &[&str]) -> Output {
    let target = variable("TARGET");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--release", "--quiet", "--package", "lockwright-preload", "--target"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(out.join("tree/Cargo.toml"))
        .arg("--target-dir")
        .arg(out.join("target"))
        .args(flags)
        // The copy in the command is for running, not for reading.
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // clippy's, which would build nothing.
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        let name = target.to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{name}_LINKER"), linker);
    }
    cargo.output().unwrap_or_else(|error| fail(&format!("cannot run cargo: {error}")))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("{name} is not set: cargo sets it")))
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    process::exit(1)
}
