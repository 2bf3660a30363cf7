//! `cargo xtask bpf`: recompiles the program that `lockwright kernel` loads. The repository contains the compiled
//! program, so that building lockwright doesn't need clang.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, scratch, source_dir};
use std::env;
use std::fs;
use std::path::Path;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing: exit code 1 if the committed one differs
    #[arg(long)]
    check: bool,
}

/// The source, relative to its crate's folder, so that the object contains no local path.
const SOURCE: &str = "bpf/contention.bpf.c";
/// Atomics that return a value need version 3 (Linux 5.12); the tracepoints need Linux 5.19.
const FLAGS: &str = "-O2 -g -target bpf -mcpu=v3 -Wall -Werror -ffile-compilation-dir=.";

pub(crate) fn main(args: Args) -> Result<()> {
    let folder = source_dir().join("../crates/kernel");
    let committed = folder.join("bpf/contention.bpf.o");
    let object = scratch("bpf")?.join("contention.bpf.o");
    let clang = tool("CLANG", "clang");
    let object_path = object.display().to_string();
    let compile = Child::new(&clang).dir(&folder).args(FLAGS.split(' ')).args([
        "-c",
        SOURCE,
        "-o",
        &object_path,
    ]);
    run(compile, &clang)?;
    // Remove debug information, but keep BTF, which the loader needs to adapt the program to the kernel.
    let strip = tool("LLVM_STRIP", "llvm-strip");
    run(Child::new(&strip).args(["--strip-debug", &object_path]), &strip)?;
    let made = fs::read(&object)?;
    let version = Child::new(&clang).args(["--version"]).run()?.text();
    let version = version.lines().next().unwrap_or("clang");
    if fs::read(&committed).is_ok_and(|known| known == made) {
        println!("'{}' is what {version} makes of its source", shown(&committed));
        return Ok(());
    }
    ensure!(
        !args.check,
        crate::No(format!("'{}' is not what {version} makes of its source", shown(&committed)))
    );
    fs::write(&committed, made)?;
    println!("'{}' has changed: made by {version}", shown(&committed));
    Ok(())
}

/// A program of LLVM, or the one that this variable names.
fn tool(variable: &str, name: &str) -> String {
    env::var(variable).unwrap_or_else(|_| name.to_owned())
}

fn shown(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    format!("crates/kernel/bpf/{}", name.to_string_lossy())
}

fn run(child: Child, name: &str) -> Result<()> {
    let hint = "\nhint: sudo apt-get install clang llvm; another version: CLANG=clang-19 LLVM_STRIP=llvm-strip-19";
    let outcome = child.run().with_context(|| format!("cannot run '{name}'{hint}"))?;
    ensure!(outcome.end == End::Code(0), "'{name}' failed\n{}", outcome.describe());
    Ok(())
}
