//! Runs the POSIX programs, and the C programs that link our locks, on 64-bit ARM, under user-mode emulation. It checks that
//! the code compiles, loads and works on the other architecture. It can't check memory orderings, because the emulator runs
//! on x86, whose memory model is stronger. The models check those.

use crate::answer::No;
use crate::pool::parallel;
use crate::progress::progress;
use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::entry::Kind;
use lockwright_tests::{Child, End, Outcome, scratch, source_dir};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";
pub(crate) const COMPILER: &str = "aarch64-linux-gnu-gcc";
pub(crate) const EMULATOR: &str = "qemu-aarch64-static";
/// Where Debian's cross packages install the other architecture's libraries.
pub(crate) const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Programs that need features the emulator lacks.
const UNABLE: [(&str, &str); 5] = [
    ("atfork", "the emulator has no MADV_WIPEONFORK"),
    ("c_api", "the emulator has no MADV_WIPEONFORK"),
    ("decided", "the emulator can't execute /proc/self/exe"),
    ("fork_condvar", "the emulator has no MADV_WIPEONFORK"),
    ("mutex_robust", "the emulator has no robust mutexes"),
];

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only programs whose name contains this.
    #[arg(value_name = "PART", default_value = "")]
    part: String,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let programs = compile_programs(&args.part)?;
    let [library, linked] = build_libraries()?;
    let linking = compile_linking(&args.part, &linked)?;
    ensure!(
        !(programs.is_empty() && linking.is_empty()),
        "no program's name contains '{}'\nhint: cargo xtask aarch64 mutex",
        args.part
    );
    let locks: Vec<_> = CATALOG.iter().filter(|e| e.kind == Kind::Front).map(|e| e.id).collect();
    let able = programs.iter().filter(|program| unable(program).is_none()).count();
    let bar = progress((able * (1 + locks.len()) + linking.len() * locks.len()) as u64, "runs")?;
    let rows = parallel(2, &programs, |program| -> Result<Vec<String>> {
        let verdicts = verdicts(program, &locks, &library, &bar)?;
        bar.suspend(|| println!("{:<22} {}", name(program), verdicts.join(", ")));
        Ok(verdicts)
    });
    let linked = parallel(2, &linking, |program| -> Result<Vec<String>> {
        let verdict = |lock: &&str| {
            bar.set_message(format!("{}, {lock}", name(program)));
            let outcome = run(program, Some(lock), None)?;
            bar.inc(1);
            Ok(match outcome.end {
                End::Code(0) if outcome.stderr.is_empty() => "ok".into(),
                _ => format!("{lock}: FAILED: {}", outcome.describe()),
            })
        };
        let verdicts = locks.iter().map(verdict).collect::<Result<Vec<String>>>()?;
        bar.suspend(|| println!("{:<22} {}", name(program), verdicts.join(", ")));
        Ok(verdicts)
    });
    bar.finish_and_clear();
    let (mut passed, mut failed) = (0, 0);
    for verdicts in rows.into_iter().chain(linked) {
        let verdicts = verdicts?;
        passed += verdicts.iter().filter(|verdict| *verdict == "ok").count();
        failed += verdicts.iter().filter(|verdict| verdict.contains("FAILED")).count();
    }
    println!("aarch64, emulated: {passed} passed, {failed} failed");
    if failed > 0 {
        bail!(No(format!("{failed} runs failed, or differ from glibc's")));
    }
    Ok(())
}

/// Runs a program without us and under each lock: a verdict for each lock, or one that says why there is none. `bar` has a
/// step for each run.
fn verdicts(
    program: &Path,
    locks: &[&str],
    library: &Path,
    bar: &ProgressBar,
) -> Result<Vec<String>> {
    if let Some(why) = unable(program) {
        return Ok(vec![format!("not run: {why}")]);
    }
    let run = |lock: Option<&str>| {
        bar.set_message(format!("{}, {}", name(program), lock.unwrap_or("without us")));
        let outcome = run(program, lock, lock.map(|_| library));
        bar.inc(1);
        outcome
    };
    let plain = run(None)?;
    if plain.end != End::Code(0) {
        bar.inc(locks.len() as u64);
        return Ok(vec![format!("{} without us", plain.end)]);
    }
    let verdict = |lock: &&str| -> Result<String> {
        let ours = run(Some(lock))?;
        Ok(match ours.end {
            End::Code(0) if ours.stdout == plain.stdout => "ok".into(),
            End::Code(0) => format!("{lock}: FAILED: other output"),
            end => format!("{lock}: FAILED: {end}"),
        })
    };
    locks.iter().map(verdict).collect()
}

/// Why the emulator can't run this program.
fn unable(program: &Path) -> Option<&'static str> {
    let name = name(program);
    UNABLE.iter().find(|(unable, _)| *unable == name).map(|(_, why)| *why)
}

fn name(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Builds the libraries for the other architecture: to preload, and to link.
fn build_libraries() -> Result<[PathBuf; 2]> {
    let target = scratch("")?;
    let (end, _) = Child::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "-p", "lockwright-preload", "-p", "lockwright-static"])
        .args(["--target", TARGET])
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER)
        .limit(600)
        .run_shown()?;
    if end != End::Code(0) {
        bail!(
            "cannot build for {TARGET}\nhint: rustup target add {TARGET} && apt-get install \
             gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
        );
    }
    let built = target.join(TARGET).join("release");
    Ok(["liblockwright.so", "liblockwright_static.a"].map(|file| built.join(file)))
}

/// Compiles the C programs that link our locks.
fn compile_linking(part: &str, library: &Path) -> Result<Vec<PathBuf>> {
    let root = source_dir().parent().context("a workspace")?;
    let mut programs = Vec::new();
    for entry in fs::read_dir(source_dir().join("sync"))? {
        let source = entry?.path();
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_unable = UNABLE.iter().any(|(unable, _)| *unable == name);
        if source.extension().is_none_or(|e| e != "c") || !name.contains(part) || is_unable {
            continue;
        }
        let program = scratch("aarch64")?.join(&name);
        let child = Child::new(COMPILER)
            .args(["-std=c11", "-O2", "-g", "-pthread", "-static", "-I"])
            .args([root.join("include").as_os_str(), source.as_os_str()])
            .args(["-o".as_ref(), program.as_os_str(), library.as_os_str()]);
        compiled(child, &source)?;
        programs.push(program);
    }
    programs.sort();
    Ok(programs)
}

fn compiled(compiler: Child, source: &Path) -> Result<()> {
    let outcome = compiler
        .run()
        .context("no compiler for it\nhint: apt-get install gcc-aarch64-linux-gnu")?;
    ensure!(
        outcome.end == End::Code(0),
        "cannot compile '{}': {}",
        source.display(),
        outcome.describe()
    );
    Ok(())
}

/// Compiles the programs that consist of a single file.
fn compile_programs(part: &str) -> Result<Vec<PathBuf>> {
    let dir = scratch("aarch64")?;
    let mut programs = Vec::new();
    for entry in fs::read_dir(source_dir().join("posix"))? {
        let source = entry?.path();
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_program = source.extension().is_some_and(|e| e == "c") && !name.starts_with("lib_");
        let text = fs::read_to_string(&source)?;
        let with_library = text.contains("\n// library: ") || text.contains("\n// beside: ");
        if !is_program || with_library || !name.contains(part) {
            continue;
        }
        let program = dir.join(&name);
        let child = Child::new(COMPILER)
            .args(["-std=gnu11", "-O1", "-g", "-pthread", "-o"])
            .args([&program, &source]);
        compiled(child, &source)?;
        programs.push(program);
    }
    programs.sort();
    Ok(programs)
}

/// Runs it under `lock`, with this library preloaded.
fn run(program: &Path, lock: Option<&str>, library: Option<&Path>) -> Result<Outcome> {
    let mut child = Child::new(EMULATOR).args(["-L", LIBRARIES]);
    if let Some(library) = library {
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(library);
        child = child.args(["-E".into(), preload]);
    }
    if let Some(lock) = lock {
        child = child.args(["-E", &format!("LOCKWRIGHT_LOCK={lock}")]);
    }
    child
        .args([program])
        .run_fairly()
        .context("cannot emulate\nhint: apt-get install qemu-user-static libc6-dev-arm64-cross")
}
