//! Functions as epochs (`LOCKWRIGHT_EPOCHS`): every program of `functions/` is compiled, linked in each way, run without and
//! with its functions as epochs; it must print the same, and each function's epochs must be as many as it says.
//!
//! A program's first lines say:
//! `// library: lib_x` link with `lib_x`; `// beside: lib_x` build it, don't link;
//! `// epoch: FUNCTION N` make it an epoch, N executions are counted.
#![cfg(target_arch = "x86_64")]

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockwright_tests::{Child, End, Outcome, library, scratch, source_dir};
use std::fs;
use std::path::{Path, PathBuf};

/// How the objects are linked: what only the program gets, and what all get.
const WAYS: [(&str, &[&str], &[&str]); 4] = [
    // Slots are bound at once, and read-only afterwards.
    ("now", &[], &["-Wl,-z,now,-z,relro"]),
    // Slots are bound by the first call.
    ("lazy", &[], &["-Wl,-z,lazy"]),
    // The program's own addresses stand for the functions.
    ("fixed", &["-no-pie", "-fno-pie"], &["-Wl,-z,lazy"]),
    // Calls go by the offset table.
    ("noplt", &["-fno-plt"], &["-fno-plt"]),
];

fn main() {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit(),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    }
}

struct Program {
    name: String,
    source: PathBuf,
    link: Vec<String>,
    beside: Vec<String>,
    epochs: Vec<(String, u64)>,
}

impl Program {
    fn read(source: PathBuf) -> Result<Program> {
        let text = fs::read_to_string(&source)?;
        let said = |key: &str| {
            text.lines()
                .take_while(|line| line.starts_with("//"))
                .filter_map(|line| line[2..].trim().strip_prefix(key)?.strip_prefix(": "))
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        let epoch = |line: &String| -> Result<(String, u64)> {
            let (function, count) = line.split_once(' ').context("a function and a count")?;
            Ok((function.to_owned(), count.parse()?))
        };
        Ok(Program {
            name: source.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            link: said("library"),
            beside: said("beside"),
            epochs: said("epoch").iter().map(epoch).collect::<Result<_>>()?,
            source,
        })
    }

    /// Compiles the program and its libraries.
    fn build(&self, way: &str, own: &[&str], all: &[&str]) -> Result<PathBuf> {
        let dir = scratch("functions")?.join(format!("{}-{way}", self.name));
        fs::create_dir_all(&dir)?;
        let folder = dir.to_str().context("a path in UTF-8")?;
        let mut libraries = Vec::new();
        for name in self.link.iter().chain(&self.beside) {
            let c = self.source.with_file_name(name).with_extension("c");
            let source = if c.exists() { c } else { c.with_extension("cc") };
            let output = dir.join(name).with_extension("so");
            let search = ["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN,--enable-new-dtags"];
            compile(&source, &output, &[&search, all].concat())?;
            libraries.push(format!("{folder}/{name}.so"));
        }
        libraries.truncate(self.link.len());
        let binary = dir.join(&self.name);
        let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
        // Not `DT_RPATH`: that would hold for the libraries too.
        let search = ["-Wl,-rpath,$ORIGIN,--enable-new-dtags,--no-as-needed"];
        compile(&self.source, &binary, &[&search, own, all, &libraries[..]].concat())?;
        Ok(binary)
    }

    fn passes(&self, way: &str, own: &[&str], all: &[&str], preload: &Path) -> Result<(), Failed> {
        let binary = self.build(way, own, all)?;
        let plain = Child::new(&binary).run_fairly()?;
        end_well("glibc", &plain)?;
        let stats = tempfile::tempdir()?;
        let list: Vec<_> = self
            .epochs
            .iter()
            .map(|(function, _)| format!("{function}={function}:50000"))
            .collect();
        let ours = Child::new(&binary)
            .env("LD_PRELOAD", preload)
            .env("LOCKWRIGHT_EPOCHS", list.join(";"))
            .env("LOCKWRIGHT_STATS", stats.path())
            .run_fairly()?;
        end_well("epochs", &ours)?;
        if plain.text() != ours.text() || !ours.stderr.is_empty() {
            return Err(format!("glibc: {}\nepochs: {}", plain.text(), ours.describe()).into());
        }
        let processes = lockwright_stats::read_dir(stats.path())?;
        for (function, count) in &self.epochs {
            let epochs = processes.iter().flat_map(|process| &process.epochs);
            let found: u64 = epochs
                .filter(|epoch| epoch.name == *function && epoch.slo_ns == 50_000)
                .map(|epoch| epoch.all().count)
                .sum();
            if found != *count {
                return Err(format!("'{function}': {found} epochs, not {count}").into());
            }
        }
        Ok(())
    }
}

fn end_well(name: &str, outcome: &Outcome) -> Result<(), Failed> {
    match outcome.end {
        End::Code(0) => Ok(()),
        _ => Err(format!("under {name}: {}", outcome.describe()).into()),
    }
}

fn compile(source: &Path, output: &Path, flags: &[&str]) -> Result<()> {
    let (compiler, language) = match source.extension().is_some_and(|end| end == "cc") {
        true => ("c++", "-std=gnu++17"),
        false => ("cc", "-std=gnu11"),
    };
    // The AVX vector's calling convention is what the test is about.
    let base = [language, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-pthread"];
    let outcome = Child::new(compiler)
        .args(base)
        .args([source.as_os_str(), "-o".as_ref(), output.as_os_str()])
        .args(flags)
        .limit(120)
        .run()?;
    ensure!(outcome.end == End::Code(0), "'{}': {}", source.display(), outcome.describe());
    Ok(())
}

fn trials() -> Result<Vec<Trial>> {
    let preload = library()?;
    let mut trials = Vec::new();
    let mut sources: Vec<PathBuf> = fs::read_dir(source_dir().join("functions"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    sources.sort();
    for source in sources {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("lib_") || name.ends_with(".h") {
            continue;
        }
        for (way, own, all) in WAYS {
            let (program, preload) = (Program::read(source.clone())?, preload.clone());
            trials.push(Trial::test(format!("{}::{way}", program.name), move || {
                program.passes(way, own, all, &preload)
            }));
        }
    }
    ensure!(!trials.is_empty(), "no programs in 'functions'");
    Ok(trials)
}
