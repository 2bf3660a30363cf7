//! Policies in C: compiled by the user's clang.

use crate::hints::{Failure, cause};
use lockwright_policy::HEADER;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a policy is compiled.
pub(crate) const FLAGS: &str = "-O2 -g -target bpf -mcpu=v3";

/// What the header is called where policies include it.
pub(crate) const HEADER_FILE: &str = "lockwright_policy.h";

/// Compiles a policy, and returns the object file. The header beside it comes before ours.
pub(crate) fn compile(source: &Path) -> Result<Vec<u8>, Failure> {
    let shown = source.display();
    let clang = command().ok_or_else(|| {
        Failure::new(format!("cannot compile '{shown}': clang is not installed"))
            .hint("sudo apt-get install clang, or use an object file that was compiled elsewhere")
    })?;
    let fail = |error: &std::io::Error| {
        Failure::new(format!("cannot compile '{shown}': {}", cause(error)))
            .hint("clang needs a folder for its files: df -h /tmp")
    };
    let folder = tempfile::tempdir().map_err(|error| fail(&error))?;
    fs::write(folder.path().join(HEADER_FILE), HEADER).map_err(|error| fail(&error))?;
    let object = folder.path().join("policy.bpf.o");
    let mut call = Command::new(&clang);
    call.args(FLAGS.split(' ')).arg("-I").arg(folder.path());
    // Its path may begin with a hyphen.
    call.arg("-c").arg(Path::new(".").join(source)).arg("-o").arg(&object);
    let output = call.stdin(Stdio::null()).output().map_err(|error| {
        let (clang, why) = (Path::new(&clang).display(), cause(&error));
        Failure::new(format!("cannot compile '{shown}': cannot run '{clang}': {why}"))
            .hint("CLANG names a clang; without it, the one in PATH is taken")
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find(|line| line.contains("error:"));
        let why = error.or(said.lines().next()).unwrap_or("clang says nothing").trim();
        return Err(Failure::new(format!("clang refuses '{shown}': {why}"))
            .hint(format!("to see all that it says: clang {FLAGS} -c '{shown}' -o /dev/null")));
    }
    fs::read(&object).map_err(|error| fail(&error))
}

/// The user's clang: `$CLANG`, `clang`, or the newest `clang-N` in PATH.
pub(crate) fn command() -> Option<OsString> {
    if let Some(own) = env::var_os("CLANG").filter(|own| !own.is_empty()) {
        return Some(own);
    }
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let is_there = |name: &OsStr| folders.iter().any(|folder| folder.join(name).is_file());
    let names = ["clang".to_owned()].into_iter();
    let mut names = names.chain((14..40).rev().map(|version| format!("clang-{version}")));
    names.find(|name| is_there(OsStr::new(name))).map(OsString::from)
}
