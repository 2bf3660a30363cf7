//! `cargo xtask bpf`: recompiles the programs in eBPF: the one that `lockwright profile --kernel` loads, and the policies that we ship. The
//! repository contains the compiled programs, so that building lockwright doesn't need clang.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, scratch, source_dir};
use std::env;
use std::fs;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing: exit code 1 if a committed one differs
    #[arg(long)]
    check: bool,
}

/// A folder of programs. They are compiled in their crate's folder, by relative paths, so that no object contains a local path.
struct Folder {
    /// The crate.
    of: &'static str,
    /// The folder in it.
    name: &'static str,
    /// More flags.
    flags: &'static [&'static str],
}

const FOLDERS: [Folder; 2] = [
    Folder { of: "kernel", name: "bpf", flags: &[] },
    Folder { of: "policy", name: "policies", flags: &["-Wextra"] },
];

/// Atomics that return a value need version 3 (Linux 5.12); the tracepoints need Linux 5.19.
const FLAGS: &str = "-O2 -g -target bpf -mcpu=v3 -Wall -Werror -ffile-compilation-dir=.";

pub(crate) fn main(args: Args) -> Result<()> {
    let clang = tool("CLANG", "clang");
    let version = Child::new(&clang).args(["--version"]).run().with_context(|| absent(&clang))?;
    let version = version.text();
    let version = version.lines().next().unwrap_or("clang");
    let mut differ = Vec::new();
    let mut same = 0;
    for folder in FOLDERS {
        for name in folder.programs()? {
            let made = folder.compile(&name, &clang)?;
            let shown = format!("crates/{}/{}/{name}.o", folder.of, folder.name);
            let committed = source_dir().join("..").join(&shown);
            if fs::read(&committed).is_ok_and(|known| known == made) {
                same += 1;
                continue;
            }
            if !args.check {
                fs::write(&committed, made)?;
                println!("'{shown}' has changed: made by {version}");
            }
            differ.push(shown);
        }
    }
    ensure!(
        !args.check || differ.is_empty(),
        crate::answer::No(format!(
            "not what {version} makes of its source: {}\nhint: cargo xtask bpf",
            differ.join(", ")
        ))
    );
    if differ.is_empty() {
        println!("all {same} programs are what {version} makes of their sources");
    }
    Ok(())
}

impl Folder {
    /// Its programs, without `.c`.
    fn programs(&self) -> Result<Vec<String>> {
        let path = source_dir().join("../crates").join(self.of).join(self.name);
        let mut names = Vec::new();
        for file in fs::read_dir(&path).with_context(|| format!("'{}'", path.display()))? {
            let name = file?.file_name();
            let name = name.to_string_lossy();
            names
                .extend(name.strip_suffix(".c").filter(|n| n.ends_with(".bpf")).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// A program's object.
    fn compile(&self, name: &str, clang: &str) -> Result<Vec<u8>> {
        let object = scratch("bpf")?.join(format!("{name}.o"));
        let object_path = object.display().to_string();
        let source = format!("{}/{name}.c", self.name);
        let compile = Child::new(clang)
            .dir(&source_dir().join("../crates").join(self.of))
            .args(FLAGS.split(' '))
            .args(self.flags.iter().copied())
            .args(["-c", &source, "-o", &object_path]);
        run(compile, clang)?;
        // Remove debug information, but keep BTF: the loader needs it to adapt a program to the kernel, and a verifier's messages name
        // its lines.
        let strip = tool("LLVM_STRIP", "llvm-strip");
        run(Child::new(&strip).args(["--strip-debug", &object_path]), &strip)?;
        Ok(fs::read(&object)?)
    }
}

/// A program of LLVM, or the one that this variable names.
fn tool(variable: &str, name: &str) -> String {
    env::var(variable).unwrap_or_else(|_| name.to_owned())
}

fn absent(name: &str) -> String {
    format!(
        "cannot run '{name}'\nhint: sudo apt-get install clang llvm; another version: CLANG=clang-19 LLVM_STRIP=llvm-strip-19"
    )
}

fn run(child: Child, name: &str) -> Result<()> {
    let outcome = child.run().with_context(|| absent(name))?;
    ensure!(outcome.end == End::Code(0), "'{name}' failed\n{}", outcome.describe());
    Ok(())
}
