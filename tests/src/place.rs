//! Where things are.

use crate::{Child, End};
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The folder of this package's sources.
pub fn source_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's target folder: the one this very program lies in.
pub fn target_dir() -> Result<PathBuf> {
    let program = env::current_exe()?;
    program
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists())
        .map(Path::to_path_buf)
        .with_context(|| format!("'{}' lies in no cargo target folder", program.display()))
}

/// A folder below the target folder, made when missing.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let dir = target_dir()?.join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make '{}'", dir.display()))?;
    Ok(dir)
}

/// The library that the tests preload: `LOCKWRIGHT_LIBRARY`, else the release build.
pub fn library() -> Result<PathBuf> {
    let path = match env::var_os("LOCKWRIGHT_LIBRARY") {
        Some(path) => PathBuf::from(path),
        None => target_dir()?.join("release/liblockwright.so"),
    };
    path.canonicalize().with_context(|| {
        format!(
            "cannot find '{}'\nhint: cargo build --release -p lockwright-preload",
            path.display()
        )
    })
}

/// A value for `LD_PRELOAD`.
pub fn preload_list(libraries: &[&Path]) -> OsString {
    libraries.iter().map(|path| path.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// Compiles a C program (or, with `-shared` among the flags, a library) to `output`. If another test runs what is there already,
/// it goes on with that: the new file replaces the old one as a whole.
pub fn compile(source: &Path, output: &Path, flags: &[&str]) -> Result<()> {
    let base = [
        "-std=gnu11",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Werror",
        "-pthread",
    ];
    static COMPILED: AtomicU32 = AtomicU32::new(0);
    let number = COMPILED.fetch_add(1, Relaxed);
    let ours = output.with_added_extension(format!("{}-{number}", process::id()));
    let outcome = Child::new("cc")
        .args(base)
        .args([source.as_os_str(), OsStr::new("-o"), ours.as_os_str()])
        .args(flags)
        .limit(120)
        .run()?;
    if outcome.end.is_killed() {
        bail!("compiling '{}': {}", source.display(), outcome.ended());
    }
    ensure!(
        outcome.end == End::Code(0),
        "cannot compile '{}': {}",
        source.display(),
        outcome.describe()
    );
    fs::rename(&ours, output).with_context(|| format!("cannot write '{}'", output.display()))
}

/// Writes a program, such as a script, that may be run at once.
///
/// A child writes it. While we had it open ourselves, any child that another thread forks would have it open, too, until its exec,
/// and the kernel runs no file that somebody may still write to (ETXTBSY).
pub fn executable(path: &Path, contents: impl Into<Vec<u8>>) -> Result<()> {
    let outcome = Child::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .args([path])
        .input(contents)
        .limit(60)
        .run()?;
    let (path, said) = (path.display(), outcome.describe());
    ensure!(outcome.end == End::Code(0), "cannot write '{path}': {said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn what_was_just_written_runs_while_others_fork() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        // With a hook, so that it forks.
                        Child::new("true").run().expect("it starts");
                    }
                });
            }
            let run = |number: u32| {
                let path = folder.path().join(number.to_string());
                executable(&path, format!("#!/bin/sh\nexit {number}\n"))?;
                let code = Command::new(&path).status()?.code();
                ensure!(code == Some(number as i32), "{code:?}");
                Ok(())
            };
            let ran = (0..30).try_for_each(run);
            done.store(true, Relaxed);
            ran
        })
    }
}
