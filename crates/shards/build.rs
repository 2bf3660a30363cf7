//! A hash of the sources that decide results: those of two different ones must not be mixed. A commit would not do, as sources
//! may be changed and not committed.
//!
//! A packaged crate has no siblings. Then nothing is hashed, and the version, which stands beside the hash, says it all.

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

/// The first is there in the project alone.
const SOURCES: [&str; 24] = [
    "../platform/src",
    "../locks/src",
    "../numbers/src",
    // What is simulated, explored, and fitted.
    "../sim/src",
    "../sim/profiles",
    "../sim/targets",
    "../figures/src",
    "../stats/src",
    "../cli/src/sim",
    "../cli/src/explore",
    "../../xtask/src/fit.rs",
    "../../xtask/src/fit",
    // What is measured, and how.
    "../native/src",
    "../runtime/src",
    "../preload/src",
    "../contract/src",
    "../energy/src",
    "../bench/src",
    "../demo/src",
    "../../eval",
    "../../tests/src",
    "../../xtask/src/eval.rs",
    "../../xtask/src/eval",
    "../../Cargo.lock",
];

fn files(path: &Path, all: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| files(&entry.path(), all)),
        Err(_) => all.push(path.to_owned()),
    }
}

fn main() {
    let (mut all, mut hasher) = (Vec::new(), SipHasher13::new());
    if Path::new(SOURCES[0]).exists() {
        for source in SOURCES {
            assert!(Path::new(source).exists(), "{source} has moved: its results need a hash");
            println!("cargo::rerun-if-changed={source}");
            files(Path::new(source), &mut all);
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    all.sort();
    for file in all {
        let bytes = fs::read(&file).expect("a source can be read");
        for part in [file.as_os_str().as_encoded_bytes(), &bytes] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
    }
    println!("cargo::rustc-env=LOCKWRIGHT_SOURCES={:032x}", hasher.finish128().as_u128());
}
