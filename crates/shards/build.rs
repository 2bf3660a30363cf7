//! A hash of the sources that decide what a simulation answers: results of two different ones must not be mixed. A commit
//! would not do, as sources may be changed and not committed.

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 7] = [
    "../platform/src",
    "../locks/src",
    "../sim/src",
    "../sim/profiles",
    "../sim/targets",
    "../figures/src",
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
    for source in SOURCES {
        // Published without them: then the version says it all.
        if Path::new(source).exists() {
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
