//! Programs that link our locks: those of `sync/` and the examples, built with gcc and g++, dynamic and static, run
//! with each front lock, glibc's and one textbook lock, with and without the preloaded library.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockwright_locks::catalog::front_rules;
use lockwright_tests::{
    Child, End, Outcome, library, preload_list, scratch, source_dir, target_dir,
};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// How a program is linked, and whether the library is preloaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Dynamic,
    Preloaded,
    Static,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Dynamic, Mode::Preloaded, Mode::Static];

    fn name(self) -> &'static str {
        match self {
            Mode::Dynamic => "dynamic",
            Mode::Preloaded => "preloaded",
            Mode::Static => "static",
        }
    }
}

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
    binaries: [OnceLock<Result<PathBuf, String>>; 2],
}

impl Program {
    fn new(source: PathBuf) -> Program {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Program { name, source, binaries: Default::default() }
    }

    fn binary(&self, mode: Mode) -> Result<&Path, Failed> {
        let linked = usize::from(mode == Mode::Static);
        let binary = self.binaries[linked]
            .get_or_init(|| self.build(mode).map_err(|error| format!("{error:#}")));
        binary.as_deref().map_err(Failed::from)
    }

    /// Compiles it as an outsider would, with every warning an error, the link editor's too.
    fn build(&self, mode: Mode) -> Result<PathBuf> {
        let linked = if mode == Mode::Static { "static" } else { "dynamic" };
        let binary = scratch("sync")?.join(format!("{}-{linked}", self.name));
        let root = source_dir().parent().context("a workspace")?;
        let release = library()?.parent().context("a folder")?.to_path_buf();
        ensure!(
            release.join("liblockwright_static.a").exists(),
            "no 'liblockwright_static.a' in '{}'\nhint: cargo build --release -p lockwright-static",
            release.display()
        );
        let is_c = self.source.extension().is_some_and(|end| end == "c");
        let (compiler, standard) = if is_c { ("gcc", "-std=c11") } else { ("g++", "-std=c++17") };
        let mut child = Child::new(compiler)
            .args([standard, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(["-I".as_ref(), root.join("include").as_os_str(), self.source.as_os_str()])
            .args(["-o".as_ref(), binary.as_os_str(), "-L".as_ref(), release.as_os_str()])
            .args(["-llockwright_static", "-Wl,--fatal-warnings"]);
        if mode == Mode::Static {
            child = child.args(["-static"]);
        }
        let outcome = child.limit(120).run()?;
        ensure!(outcome.end == End::Code(0), "'{}': {}", self.name, outcome.describe());
        Ok(binary)
    }

    fn run(&self, mode: Mode, lock: &str, ours: &OsString) -> Result<Outcome, Failed> {
        let mut child = Child::new(self.binary(mode)?).env("LOCKWRIGHT_LOCK", lock).limit(60);
        if mode == Mode::Preloaded {
            child = child.env("LD_PRELOAD", ours);
        }
        Ok(child.run_fairly()?)
    }

    fn passes(&self, mode: Mode, lock: &str, ours: &OsString) -> Result<(), Failed> {
        let outcome = self.run(mode, lock, ours)?;
        if outcome.end == End::Code(0) && outcome.stderr.is_empty() && !outcome.stdout.is_empty() {
            return Ok(());
        }
        Err(format!("'{}', {}, {lock}: {}", self.name, mode.name(), outcome.describe()).into())
    }
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read '{}'", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "c" || end == "cpp") {
            sources.push(path);
        }
    }
    sources.sort();
    ensure!(!sources.is_empty(), "no programs in '{}'", folder.display());
    Ok(sources)
}

fn trials() -> Result<Vec<Trial>> {
    let ours = preload_list(&[&library()?]);
    let fronts = front_rules().map(|entry| entry.id);
    let locks: Vec<&'static str> = fronts.chain(["glibc", "mcs-stp"]).collect();
    let root = source_dir().parent().context("a workspace")?;
    let mut programs = sources(&source_dir().join("sync"))?;
    for example in sources(&root.join("examples"))? {
        if fs::read_to_string(&example)?.contains("#include \"lockwright.hpp\"") {
            programs.push(example); // the others need the preload alone
        }
    }
    let mut trials = Vec::new();
    for source in programs {
        let program = Arc::new(Program::new(source));
        for mode in Mode::ALL {
            for &lock in &locks {
                let (program, ours) = (program.clone(), ours.clone());
                let name = format!("{}::{}_{lock}", program.name, mode.name());
                trials.push(Trial::test(name, move || program.passes(mode, lock, &ours)));
            }
        }
    }
    for mode in Mode::ALL {
        let ours = ours.clone();
        trials.push(Trial::test(
            format!("a_misspelt_lock_is_told_once::{}", mode.name()),
            move || told_once(mode, &ours),
        ));
    }
    for mode in Mode::ALL {
        let ours = ours.clone();
        let name = format!("each_epoch_is_recorded_once::{}", mode.name());
        trials.push(Trial::test(name, move || epochs_are_recorded(mode, &ours)));
    }
    trials
        .push(Trial::test("the_command_runs_a_static_program_that_links_our_locks", command_runs));
    trials.push(Trial::test("the_library_shows_nothing_but_its_interface", shows_its_interface));
    Ok(trials)
}

/// One runtime serves a process: with two, both would complain.
fn told_once(mode: Mode, ours: &OsString) -> Result<(), Failed> {
    let program = Program::new(source_dir().join("sync/c_api.c"));
    // A name of its own: the other trials may be building the same program.
    let program = Program { name: format!("told-{}", mode.name()), ..program };
    let outcome = program.run(mode, "fifi", ours)?;
    let errors = outcome.errors();
    let told = errors.lines().count() == 1 && errors.contains("unknown lock 'fifi'");
    if outcome.end == End::Code(0) && told {
        return Ok(());
    }
    Err(format!("{}: {}", mode.name(), outcome.describe()).into())
}

/// Epochs are counted once each, by the runtime that serves.
fn epochs_are_recorded(mode: Mode, ours: &OsString) -> Result<(), Failed> {
    let program = Program::new(source_dir().join("sync/epochs.cpp"));
    let program = Program { name: format!("recorded-{}", mode.name()), ..program };
    let folder = tempfile::tempdir()?;
    let mut child = Child::new(program.binary(mode)?)
        .env("LOCKWRIGHT_LOCK", "asl")
        .env("LOCKWRIGHT_STATS", folder.path());
    if mode == Mode::Preloaded {
        child = child.env("LD_PRELOAD", ours);
    }
    let outcome = child.limit(60).run_fairly()?;
    if outcome.end != End::Code(0) {
        return Err(format!("{}: {}", mode.name(), outcome.describe()).into());
    }
    let processes = lockwright_stats::read_dir(folder.path())?;
    let counts: Vec<_> = processes
        .iter()
        .flat_map(|process| &process.epochs)
        .map(|epoch| (epoch.id, epoch.name.as_str(), epoch.slo_ns, epoch.all().count))
        .collect();
    let wanted = [(7, "request", 250_000, 6000), (9, "9", 1_000_000, 600)];
    if processes.len() == 1 && wanted.iter().all(|epoch| counts.contains(epoch)) {
        return Ok(());
    }
    Err(format!("{}: {} processes, {counts:?}", mode.name(), processes.len()).into())
}

/// `lockwright run` and `doctor` know it from other static programs, which they refuse; also when it is stripped.
fn command_runs() -> Result<(), Failed> {
    let program = Program::new(source_dir().join("sync/epochs.cpp"));
    let program = Program { name: "stripped".into(), ..program };
    let binary = program.binary(Mode::Static)?;
    let stripped = Child::new("strip").args([binary]).run()?;
    let command = library()?.with_file_name("lockwright");
    let run = |arguments: &[&str]| {
        Child::new(&command).args(arguments).args(["--".as_ref(), binary.as_os_str()]).run_fairly()
    };
    let ran = run(&["run", "--lock", "asl", "--stats"])?;
    let doctor = run(&["doctor"])?;
    let errors = ran.errors();
    // The row below the epoch's heading: `  all  6,000  ...`.
    let row = errors.lines().skip_while(|line| !line.starts_with("request, SLO ")).nth(1);
    let counted = row.unwrap_or_default().split_whitespace().nth(1) == Some("6,000");
    if stripped.end == End::Code(0) && ran.end == End::Code(0) && counted {
        if doctor.end == End::Code(0) && doctor.text().contains("verdict   reachable") {
            return Ok(());
        }
        return Err(format!("doctor: {}", doctor.describe()).into());
    }
    Err(format!("run: {}", ran.describe()).into())
}

/// What the static library defines for others to see: the header's functions, all of them; and nothing that would
/// clash with another library written in Rust.
fn shows_its_interface() -> Result<(), Failed> {
    let archive = target_dir()?.join("release/liblockwright_static.a");
    let archive = match library()?.with_file_name("liblockwright_static.a") {
        beside if beside.exists() => beside,
        _ => archive,
    };
    let outcome = Child::new("nm")
        .args(["--defined-only", "--extern-only"])
        .args([archive.as_os_str()])
        .run()?;
    let text = outcome.text();
    let defined = |symbol: &str| {
        text.lines().any(|line| line.split(' ').nth(1) == Some("T") && line.ends_with(symbol))
    };
    let header = source_dir().with_file_name("include/lockwright_sync.h");
    let header = fs::read_to_string(&header)?;
    let functions = header.lines().filter_map(|line| {
        let name = line.split_once('(')?.0.rsplit(' ').next()?;
        name.starts_with("lw_").then_some(name)
    });
    let epochs = ["lw_epoch_start", "lw_epoch_end", "lw_epoch_percentile", "lw_epoch_name"];
    let functions: Vec<&str> = functions.chain(epochs).collect();
    if functions.len() < 20 {
        return Err(format!("only {functions:?} found in the header").into());
    }
    for function in functions {
        if !defined(&format!(" {function}")) {
            return Err(format!("'{function}' of the header is not in the library").into());
        }
    }
    if defined(" rust_eh_personality") {
        return Err("rust_eh_personality is not weak".into());
    }
    Ok(())
}
