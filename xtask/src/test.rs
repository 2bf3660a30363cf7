//! Runs all tests in order, each step with a time limit. The last line says how many passed.

mod times;

pub(crate) use times::short;

use crate::guard;
use anyhow::{Context, Result, bail};
use lockwright_tests::{Child, End, scratch};
use lockwright_text::beside;
use regex_lite::Regex;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use times::Times;

/// The Debian packages that the steps need.
pub(crate) const PACKAGES: [&str; 32] = [
    "build-essential",
    "chromium",
    "chromium-sandbox",
    "dpkg-dev",
    "faketime",
    "gdb",
    "git",
    "jq",
    "libc6-i386",
    "libclang-dev",
    "libjemalloc2",
    "libkyotocabinet-dev",
    "libleveldb-dev",
    "libmemcached-tools",
    "libpython3.11-testsuite",
    "libsqlite3-dev",
    "libtcmalloc-minimal4",
    "memcached",
    "mmdebstrap",
    "musl-tools",
    "openjdk-17-jdk-headless",
    "patch",
    "pkg-config",
    "procps",
    "python3",
    "python3-venv",
    "python3-yaml",
    "sqlite3",
    "strace",
    "stress-ng",
    "valgrind",
    "xz-utils",
];

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, separated by commas.
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    only: Vec<String>,
    /// Print each step: its name, what it took when it last ran here, what it shows.
    #[arg(long)]
    list: bool,
}

/// How to run a step.
#[derive(Clone, Copy)]
pub(crate) enum Runner {
    Cargo,
    Xtask,
}
use Runner::{Cargo, Xtask};

/// A step: its name, what it shows, how to run it, and its time limit in seconds (on two cores, from a cold start:
/// several times the usual time).
pub(crate) struct Step<'a> {
    pub(crate) name: &'a str,
    pub(crate) shows: &'a str,
    pub(crate) runner: Runner,
    pub(crate) args: &'a str,
    pub(crate) limit: u64,
}

const STEPS: &[Step<'static>] = &[
    Step {
        name: "build",
        shows: "the library and the command, as users build them",
        runner: Cargo,
        args: "build --release",
        limit: 900,
    },
    Step {
        name: "format",
        shows: "rustfmt has nothing to change",
        runner: Cargo,
        args: "fmt --all --check",
        limit: 60,
    },
    Step {
        name: "lints",
        shows: "clippy has nothing to say",
        runner: Cargo,
        args: "clippy --workspace --all-targets -- -D warnings",
        limit: 900,
    },
    Step {
        name: "tidy",
        shows: "the house's conventions are kept",
        runner: Xtask,
        args: "tidy",
        limit: 60,
    },
    Step {
        name: "book",
        shows: "the book builds, has every page of docs/, and no link in it is broken",
        runner: Xtask,
        args: "book",
        limit: 900,
    },
    Step {
        name: "deny",
        shows: "all dependencies have permitted licences, versions and sources",
        runner: Xtask,
        args: "deny",
        limit: 900,
    },
    // With the command: alone it has other features of clap and rustix, and nearly all crates would be built again for it. Three threads on two
    // CPUs: the command's tests wait more than they compute.
    Step {
        name: "unit",
        shows: "every crate's own tests; the command: its words, its exit codes, every example of its help",
        runner: Cargo,
        args: "test --no-fail-fast --workspace --exclude lockwright-model --exclude lockwright-tests -- --test-threads 3",
        limit: 2400,
    },
    Step {
        name: "harness",
        shows: "what the steps below rely on: a hung child ends, with all that it started",
        runner: Cargo,
        args: "test -p lockwright-tests --lib",
        limit: 300,
    },
    Step {
        name: "models",
        shows: "every lock and the condition variable, model-checked",
        runner: Cargo,
        args: "test --no-fail-fast -p lockwright-model -- --show-output",
        limit: 1500,
    },
    Step {
        name: "weaken",
        shows: "models notice a weakened hand-over and a lost wake: one of each in each file of the front locks (soak: all files)",
        runner: Xtask,
        args: "weaken --quick --only front/",
        limit: 900,
    },
    Step {
        name: "dask",
        shows: "eight shards on a Dask cluster, two of whose workers are killed, make the report of one run",
        runner: Xtask,
        args: "dask",
        limit: 300,
    },
    Step {
        name: "posix",
        shows: "POSIX corner by corner, as under glibc",
        runner: Cargo,
        args: "test -p lockwright-tests --test posix -- --test-threads 4",
        limit: 900,
    },
    Step {
        name: "sync",
        shows: "C and C++ programs that link our locks, dynamic and static, with and without the preload",
        runner: Cargo,
        args: "test -p lockwright-tests --test sync",
        limit: 600,
    },
    Step {
        name: "epochs",
        shows: "epochs in real programs: what is recorded, and what survives; the examples",
        runner: Cargo,
        args: "test -p lockwright-tests --test epochs",
        limit: 300,
    },
    Step {
        name: "record",
        shows: "traces of real programs' locks: exact, however the programs end",
        runner: Cargo,
        args: "test -p lockwright-tests --test record",
        limit: 300,
    },
    Step {
        name: "functions",
        shows: "functions as epochs: calls are counted, and nothing else changes",
        runner: Cargo,
        args: "test -p lockwright-tests --test functions",
        limit: 300,
    },
    Step {
        name: "rewrite",
        shows: "sections as functions, or on their own stacks: the same results, whoever runs them",
        runner: Cargo,
        args: "test -p lockwright-tests --test rewrite --test delegate",
        limit: 300,
    },
    Step {
        name: "stress",
        shows: "kinds x operations x locks, eight threads",
        runner: Cargo,
        args: "test -p lockwright-tests --test stress",
        limit: 600,
    },
    Step {
        name: "policies",
        shows: "policies in a running program: adversaries, loads and unloads, killed loaders",
        runner: Cargo,
        args: "test -p lockwright-tests --test policies",
        limit: 300,
    },
    Step {
        name: "emulate",
        shows: "emulated little cores: computation is slowed down, waiting is not",
        runner: Cargo,
        args: "test -p lockwright-tests --test emulate -- --test-threads 1",
        limit: 300,
    },
    Step {
        name: "guests",
        shows: "sanitizers and valgrind find the same as without us; files, filters and system calls",
        runner: Cargo,
        args: "test -p lockwright-tests --test guests",
        limit: 600,
    },
    Step {
        name: "apps",
        shows: "real programs give the same output",
        runner: Cargo,
        args: "test -p lockwright-tests --test apps",
        limit: 900,
    },
    Step {
        name: "conformance",
        shows: "glibc's own thread tests, without regression",
        runner: Xtask,
        args: "conformance --in-turn",
        limit: 1500,
    },
    Step {
        name: "demo",
        shows: "the demo's panels run, one beside hogs that do compute, their answers are verified, and report, picture and table are written",
        runner: Xtask,
        args: "demo --quick --output",
        limit: 600,
    },
    Step {
        name: "eval",
        shows: "the paper's databases run under its locks, and their report is written",
        runner: Xtask,
        args: "eval libasl-apps --quick --output",
        limit: 600,
    },
    Step {
        name: "programs",
        shows: "a server, an interpreter and a compressor are measured under glibc and under our locks",
        runner: Xtask,
        args: "eval programs --quick --only memcached,python,xz --output",
        limit: 600,
    },
    Step {
        name: "dist",
        shows: "packages and crates: made, installed in a bare Debian root, used, removed; docs/deploy.md's recipes (soak: `cargo install`)",
        runner: Xtask,
        args: "dist --check",
        limit: 1200,
    },
];

pub(crate) fn main(args: Args) -> Result<()> {
    if args.list {
        print!("{}", list(&Times::read(&times_file()?)));
        return Ok(());
    }
    if let Some(name) = args.only.iter().find(|only| STEPS.iter().all(|step| step.name != *only)) {
        bail!("unknown step '{name}'\nhint: cargo xtask test --list");
    }
    install_packages(&PACKAGES)?;
    // Now, before a step builds a newer one. The path stays valid.
    let xtask = env::current_exe()?;
    let (logs, times) = (scratch("test-logs")?, times_file()?);
    let mut total = Count::default();
    for step in STEPS {
        if args.only.is_empty() || args.only.iter().any(|only| only == step.name) {
            let start = Instant::now();
            let count = step.run(&xtask, &[], &logs.join(format!("{}.log", step.name)))?;
            Times::note(&times, step.name, start.elapsed().as_secs())?;
            total.passed += count.passed;
            total.failed += count.failed;
        }
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// The file with the steps' times.
fn times_file() -> Result<PathBuf> {
    Ok(scratch("test-logs")?.join("times.tsv"))
}

/// The steps, each with its time when it last ran here.
fn list(times: &Times) -> String {
    let mut out = String::new();
    let (mut sum, mut unknown) = (0, 0);
    for step in STEPS {
        let took = times.of(step.name);
        sum += took.unwrap_or(0);
        unknown += usize::from(took.is_none());
        let took = took.map_or("-".to_owned(), short);
        out += &beside(&format!("{:<12} {took:>7}  ", step.name), step.shows);
    }
    let total = if unknown == STEPS.len() { "-".to_owned() } else { short(sum) };
    let missing = match unknown {
        0 => String::new(),
        1 => "; 1 step (-) not yet run here".to_owned(),
        many => format!("; {many} steps (-) not yet run here"),
    };
    let typical = "all steps typically take half an hour on two cores";
    let first = format!("{:<12} {total:>7}  ", "total");
    out + &beside(&first, &format!("when each step last ran here{missing}; {typical}"))
}

/// Numbers of passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Step<'_> {
    /// Runs the step, and reports the result.
    ///
    /// # Errors
    /// It could not be started, or its log could not be written.
    pub(crate) fn run(
        &self,
        xtask: &Path,
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Result<Count> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a workspace")?;
        let program = match self.runner {
            Cargo => env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            Xtask => xtask.into(),
        };
        let mut child = Child::new(xtask).args(guard::words([program]));
        let target = scratch("")?;
        if self.args.starts_with("test ") {
            // Tests need unwinding. Use it for the programs that they start, too, so that common code is built only
            // once.
            child = child.env("CARGO_PROFILE_DEV_PANIC", "unwind");
        }
        child = child
            .args(self.args.split(' '))
            .env("CARGO_TARGET_DIR", &target)
            .dir(root)
            .limit(self.limit);
        for (name, value) in variables {
            child = child.env(name, value);
        }
        if self.args.ends_with("--output") {
            child = child.args([scratch(&format!("{}-test", self.name))?]);
        }
        eprintln!("test: {} ...", self.name);
        let start = Instant::now();
        let (end, _) = child.run_logged(log)?;
        let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        let count = count(&text, end);
        let verdict = if count.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "{:<12} {verdict:<6} {:>5} s  {} passed, {} failed: {}",
            self.name,
            start.elapsed().as_secs(),
            count.passed,
            count.failed,
            self.shows
        );
        if count.failed > 0 {
            println!(
                "{}\n{}: {end}; the whole of it is in '{}'",
                why(&text),
                self.name,
                log.display()
            );
        }
        Ok(count)
    }
}

/// The part of a failed step's output that says why: what each failed test printed, and how each harness ended that
/// names none (a signal, a limit); or else the last lines. Harnesses that run after the failed one print pages of
/// their own, so the end alone may hide it.
fn why(text: &str) -> String {
    const LINES: usize = 150;
    let list =
        Regex::new(r"(?ms)^failures:\n(\n----.*?)^failures:\n.*?^test result: FAILED[^\n]*$")
            .expect("a pattern");
    let mut said: Vec<_> = list.find_iter(text).flat_map(|found| found.as_str().lines()).collect();
    said.extend(ends(text));
    if said.is_empty() {
        let lines: Vec<_> = text.lines().collect();
        return lines[lines.len().saturating_sub(LINES)..].join("\n");
    }
    // The names stand last, and the first test's words first.
    if said.len() <= 2 * LINES {
        return said.join("\n");
    }
    let (first, last) = (&said[..LINES], &said[said.len() - LINES..]);
    format!("{}\n[{} lines]\n{}", first.join("\n"), said.len() - 2 * LINES, last.join("\n"))
}

/// How each harness ended that cargo calls failed but that names no failed test, with the last lines that it printed.
fn ends(text: &str) -> Vec<&str> {
    const BEFORE: usize = 15;
    const AFTER: usize = 3;
    let lines: Vec<_> = text.lines().collect();
    let (mut told, mut from) = (Vec::new(), 0);
    for at in (0..lines.len()).filter(|&at| lines[at].starts_with("error: test failed")) {
        let before = &lines[at.saturating_sub(BEFORE).max(from)..at];
        if !before.iter().any(|line| line.starts_with("test result: FAILED")) {
            told.extend_from_slice(before);
            told.extend_from_slice(&lines[at..(at + 1 + AFTER).min(lines.len())]);
        }
        from = at + 1;
    }
    told
}

/// Adds up the results of a step's test harnesses. A step without such output counts as one test. A step that fails
/// without a failed test gets one more.
fn count(text: &str, end: End) -> Count {
    let line =
        Regex::new(r"(?m)^test result: \w+\. (\d+) passed; (\d+) failed").expect("a pattern");
    let mut count = Count::default();
    for found in line.captures_iter(text) {
        let number = |group: usize| found[group].parse::<usize>().unwrap_or(0);
        count.passed += number(1);
        count.failed += number(2);
    }
    if end != End::Code(0) && count.failed == 0 {
        count.failed = 1;
    } else if count == Count::default() {
        count.passed = 1;
    }
    count
}

/// Installs the missing ones of these Debian packages, if we are allowed to.
pub(crate) fn install_packages(packages: &[&str]) -> Result<()> {
    let installed = Child::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .run()
        .context("this needs Debian\nhint: run it in a Debian 12 container")?
        .text();
    let installed =
        |name: &&&str| installed.lines().any(|line| line == format!("{name} installed"));
    let missing: Vec<&str> = packages.iter().filter(|name| !installed(name)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!("these packages are missing: {list}\nhint: sudo apt-get install {list}");
    }
    eprintln!("installing {list}");
    let apt = |args: &[&str]| -> Result<()> {
        let outcome = Child::new("apt-get")
            .args(["-qq", "-o", "DPkg::Lock::Timeout=120"])
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .limit(600)
            .run()?;
        if outcome.end != End::Code(0) {
            bail!("apt-get {}: {}", args.join(" "), outcome.describe());
        }
        Ok(())
    };
    // Slim images leave out the manual's folders. Without this one, the JDK's package can't be configured.
    fs::create_dir_all("/usr/share/man/man1")?;
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_are_added_up() {
        let text = "x\ntest result: ok. 3 passed; 0 failed; 1 ignored\n\
                    test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        assert_eq!(count(text, End::Code(101)), Count { passed: 4, failed: 2 });
    }

    #[test]
    fn a_step_that_only_ends_badly_is_a_failure() {
        let text = "test result: ok. 3 passed; 0 failed;\n";
        assert_eq!(count(text, End::Code(101)), Count { passed: 3, failed: 1 });
        assert_eq!(count("", End::TimedOut(Duration::from_secs(1))).failed, 1);
        assert_eq!(count("", End::Code(0)), Count { passed: 1, failed: 0 });
    }

    #[test]
    fn a_failed_test_is_told_though_others_ran_after_it() {
        let failed = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
                      thread 'b' panicked at x.rs:1:2:\nno\n\n\nfailures:\n    b\n\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let text = format!("{failed}{}", "Doc-tests of a crate\n".repeat(400));
        let told = why(&text);
        assert!(told.contains("x.rs:1:2:\nno") && told.ends_with("0 ignored"), "{told}");
        assert!(!told.contains("Doc-tests"), "{told}");
        assert_eq!(why("x\ny\n"), "x\ny");
    }

    #[test]
    fn a_harness_that_a_signal_ended_is_told() {
        let killed = "test a ... ok\nerror: test failed, to rerun pass `-p x --test y`\n\nCaused by:\n  \
                      process didn't exit successfully: `y` (signal: 9, SIGKILL: kill)\n";
        let text = format!("{killed}{}", "Doc-tests of a crate\n".repeat(400));
        assert_eq!(why(&text), killed.trim_end());
        // Beside a harness that names a test, and ended by itself.
        let named = "failures:\n\n---- b stdout ----\nno\n\nfailures:\n    b\n\n\
                     test result: FAILED. 1 passed; 1 failed; 0 ignored\n\n\
                     error: test failed, to rerun pass `-p x --test z`\n";
        let told = why(&format!("{named}{text}"));
        assert!(told.contains("b stdout") && told.ends_with(killed.trim_end()), "{told}");
        assert!(!told.contains("--test z"), "{told}");
    }

    #[test]
    fn the_list_fits_and_says_what_has_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times.tsv");
        let none = list(&Times::read(&file));
        assert!(none.lines().all(|line| line.chars().count() <= 80), "{none}");
        let unknown = format!("{} steps (-) not yet run here", STEPS.len());
        assert!(none.split_whitespace().collect::<Vec<_>>().join(" ").contains(&unknown), "{none}");
        for step in STEPS {
            Times::note(&file, step.name, 60).unwrap();
        }
        let all = list(&Times::read(&file));
        assert!(
            all.contains(&format!("total {:>14}  when", short(60 * STEPS.len() as u64))),
            "{all}"
        );
        assert!(!all.contains("(-)"), "{all}");
    }

    #[test]
    fn every_step_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
