//! `cargo xtask eval delegation`: programs after those of RCL's authors (R12), as they are, with other threads running their sections
//! (`run --delegate`), and rewritten (`lockwright rewrite`).
//!
//! memcached and Berkeley DB are Debian's. Phoenix and SPLASH-2 are not in Debian: `eval/shapes.c` has programs of the same shape. A rewritten
//! program is a row of its own, whose reference is the rewritten program under glibc's locks: there its sections lock, as before.

use super::bench::{Bench, Program, ProgramSample, free_port, listens};
use super::load;
use crate::eval::build;
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, target_dir};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::thread;
use std::{env, fs};

const MEMCACHED: &[&str] = &["memcached", "libmemcached-tools"];
const MEMCACHED_SOURCE: &[&str] = &[
    "memcached",
    "libmemcached-tools",
    "build-essential",
    "dpkg-dev",
    "bear",
    "libevent-dev",
    "libclang-dev",
    "patch",
];
const BUILT: &[&str] = &["build-essential"];
const REWRITTEN: &[&str] = &["build-essential", "libclang-dev", "patch"];
const SHAPE: &str = "As in Phoenix 2: tasks, two at a time, from a queue under its lock, results added under another one. An operation is a task.";

/// Where `lockwright rewrite` finds how files are compiled.
const DATABASE: &str = "compile_commands.json";

/// A program of `eval/shapes.c`, as it is or rewritten; an operation is a unit of its work.
macro_rules! shape {
    ($shape:literal, $units:literal, rewritten) => {
        shape!(
            @ $shape, concat!($shape, "-rw"), ", rewritten", REWRITTEN,
            "The same program after <code>lockwright rewrite</code>.", $units, true
        )
    };
    ($shape:literal, $units:literal, $workload:expr) => {
        shape!(@ $shape, $shape, ", 4 threads", BUILT, $workload, $units, false)
    };
    (@ $shape:literal, $id:expr, $how:literal, $packages:expr, $workload:expr, $units:literal, $rewritten:literal) => {
        Program {
            id: $id,
            name: concat!("shape of ", $shape, $how),
            packages: $packages,
            workload: $workload,
            run: |bench| shape(bench, $shape, $units, $rewritten),
        }
    };
}

const RAYS: &str = "As in SPLASH-2: bundles of rays from a pool with a lock, and a counter under another one for each ray. An \
     operation is a bundle.";
const PATCHES: &str = "As in SPLASH-2: tasks that put others into a queue with a lock, memory from a list with a lock. An \
     operation is a task.";

/// The rows.
pub(super) const DELEGATION: &[Program] = &[
    Program {
        id: "memcached-set",
        name: "memcached, 8 threads, sets",
        packages: MEMCACHED,
        workload: "<code>memcaslap</code>, 2 threads, 32 connections, only sets of 100 bytes.",
        run: |bench| memcached(bench, "memcached", SETS),
    },
    Program {
        id: "memcached-get",
        name: "memcached, 8 threads, gets",
        packages: MEMCACHED,
        workload: "The same, 95 % gets.",
        run: |bench| memcached(bench, "memcached", GETS),
    },
    Program {
        id: "memcached-set-rw",
        name: "memcached, rewritten, sets",
        packages: MEMCACHED_SOURCE,
        workload: "Debian’s source after <code>lockwright rewrite</code>.",
        run: |bench| rewritten_memcached(bench, SETS),
    },
    Program {
        id: "memcached-get-rw",
        name: "memcached, rewritten, gets",
        packages: MEMCACHED_SOURCE,
        workload: "The same, 95 % gets.",
        run: |bench| rewritten_memcached(bench, GETS),
    },
    Program {
        id: "bdb-tpcc",
        name: "Berkeley DB, 8 threads, TPC-C",
        packages: &["build-essential", "libdb5.3-dev"],
        workload: "Stock Level, and New Order one time in ten (<code>eval/tpcc.cc</code>), in memory.",
        run: tpcc,
    },
    shape!("histogram", 1_000_000, SHAPE),
    shape!("histogram", 1_000_000, rewritten),
    shape!("linear-regression", 2_000_000, SHAPE),
    shape!("linear-regression", 2_000_000, rewritten),
    shape!("string-match", 300_000, SHAPE),
    shape!("string-match", 300_000, rewritten),
    shape!("raytrace", 1_000_000, RAYS),
    shape!("raytrace", 1_000_000, rewritten),
    shape!("radiosity", 1_000_000, PATCHES),
    shape!("radiosity", 1_000_000, rewritten),
];

fn folder() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a workspace")?;
    Ok(root.join("eval"))
}

fn done(what: &str, child: Child) -> Result<String> {
    let outcome = child.limit(600).run()?;
    ensure!(outcome.end == End::Code(0), "{what}: {}", outcome.describe());
    Ok(outcome.text())
}

fn shape(bench: &Bench, id: &str, units: u64, is_rewritten: bool) -> Result<ProgramSample> {
    let tree = bench.input("tree", |tree| {
        fs::create_dir(tree)?;
        let source = tree.join("shapes.c");
        fs::copy(folder()?.join("shapes.c"), &source)?;
        if is_rewritten {
            let unit =
                json!([{"directory": tree, "file": source, "arguments": ["cc", "-c", "shapes.c"]}]);
            fs::write(tree.join(DATABASE), unit.to_string())?;
            rewrite(tree, "")?;
        }
        let flags = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", "shapes"];
        let compiler = Child::new("cc").dir(tree).args(flags).args(["shapes.c"]);
        done("cannot build shapes.c", compiler).map(drop)
    })?;
    let program = tree.join("shapes");
    let program = program.to_str().context("a folder's name is no text")?;
    let units = units * u64::from(bench.seconds) / 2;
    let child = bench.program(program).args([id, "4", &units.to_string()]);
    bench.batch(sent(child, bench, is_rewritten), units as f64)
}

/// Rewrites the program in `tree`, which has a [`DATABASE`], by the command.
fn rewrite(tree: &Path, config: &str) -> Result<()> {
    let command = target_dir()?.join("release/lockwright");
    if !command.is_file() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = Child::new(cargo).dir(&folder()?).limit(3600);
        let build = build.args(["build", "--release", "-p", "lockwright-cli", "--target-dir"]);
        let outcome = build.args([target_dir()?]).run()?;
        ensure!(outcome.end == End::Code(0), "cannot build the command: {}", outcome.describe());
    }
    fs::write(tree.join("lockwright.toml"), config)?;
    let flags = ["rewrite", "--config", "lockwright.toml"];
    done("lockwright rewrite", Child::new(&command).dir(tree).args(flags))?;
    let patch = fs::read(tree.join("lockwright.patch")).context("lockwright.patch")?;
    done("patch", Child::new("patch").dir(tree).args(["-p1", "-s"]).input(patch)).map(drop)
}

/// A rewritten program's sections go to whoever holds the mutex, under any lock of ours.
fn sent(child: Child, bench: &Bench, is_rewritten: bool) -> Child {
    match bench.lock {
        Some(_) if is_rewritten => child.env("LOCKWRIGHT_SECTIONS", "always"),
        _ => child,
    }
}

fn tpcc(bench: &Bench) -> Result<ProgramSample> {
    let driver = bench.input("driver", |path| {
        fs::copy(build::driver("tpcc", "Berkeley DB", "tpcc.cc", "-ldb")?, path)?;
        Ok(())
    })?;
    let driver = driver.to_str().context("a folder's name is no text")?;
    let seconds = bench.seconds.to_string();
    let flags = ["--threads", "8", "--size", "1000", "--warmup", "0.2", "--seconds", &seconds];
    bench.driver(bench.program(driver).args(flags))
}

/// memcaslap's way to say what is asked: keys and values of these sizes, then commands (0: set, 1: get) with their shares.
const SETS: &str = "key\n16 16 1\nvalue\n100 100 1\ncmd\n0 1\n";
const GETS: &str = "key\n16 16 1\nvalue\n100 100 1\ncmd\n0 0.05\n1 0.95\n";

fn memcached(bench: &Bench, program: &str, what: &str) -> Result<ProgramSample> {
    let port = free_port()?;
    let config = bench.input("load", |path| Ok(fs::write(path, what)?))?;
    let mut server = bench.program(program).args(["-l", "127.0.0.1", "-U", "0", "-t", "8"]);
    if rustix::process::geteuid().is_root() {
        server = server.args(["-u", "root"]);
    }
    server = server.args(["-m", "64", "-p", &port.to_string()]);
    let server = sent(server, bench, program.contains('/'));
    let seconds = format!("{}s", bench.seconds);
    let clients = bench
        .helper("memcaslap")
        .args(["-s", &format!("127.0.0.1:{port}"), "-T", "2", "-c", "32"])
        .args(["-F".as_ref(), config.as_os_str()])
        .args(["-t", &seconds, "-S", &seconds]);
    bench.serve(server, || listens(port))?.measure(clients, load::memcaslap)
}

/// What may run on any thread in memcached, whatever it does: its threads find their loggers there, and any of them will do.
const HARMLESS: &str = "harmless = ['pthread_getspecific']\n";

fn rewritten_memcached(bench: &Bench, what: &str) -> Result<ProgramSample> {
    let tree = bench.input("memcached", |folder| {
        fs::create_dir(folder)?;
        build_rewritten(folder)
    })?;
    let program = tree.join("tree/memcached");
    memcached(bench, program.to_str().context("a folder's name is no text")?, what)
}

/// Debian's source of memcached, built as it is, rewritten, and built again.
fn build_rewritten(folder: &Path) -> Result<()> {
    eprintln!("fetching, rewriting and building memcached");
    source("memcached", folder)?;
    let entries = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let unpacked = entries.into_iter().find(|path| path.is_dir()).context("no source")?;
    let tree = folder.join("tree");
    fs::rename(unpacked, &tree)?;
    let here = |program: &str| Child::new(program).dir(&tree);
    let jobs = thread::available_parallelism().map_or(1, usize::from).to_string();
    done("./configure", here("./configure"))?;
    done("bear -- make", here("bear").args(["--", "make", "-j", &jobs, "memcached"]))?;
    rewrite(&tree, HARMLESS)?;
    done("make", here("make").args(["-j", &jobs, "memcached"])).map(drop)
}

/// Fetches a package's source into `folder`, from where this machine's packages come from.
fn source(package: &str, folder: &Path) -> Result<()> {
    let mut lines = String::new();
    let apt = Path::new("/etc/apt");
    let more = fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    for file in more.map(|entry| entry.path()).chain([apt.join("sources.list")]) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        // Two forms: `deb ...` lines, and stanzas with `Types: deb`.
        match file.extension().is_some_and(|end| end == "sources") {
            true => {
                let stanzas = text.replace("Types: deb\n", "Types: deb-src\n");
                fs::write(folder.join("more.sources"), stanzas)?;
            }
            false => lines.extend(text.lines().filter_map(|line| {
                let rest = line.strip_prefix("deb ").or(line.strip_prefix("deb-src "))?;
                Some(format!("deb-src {rest}\n"))
            })),
        }
    }
    fs::write(folder.join("sources.list"), lines)?;
    fs::create_dir_all(folder.join("lists/partial"))?;
    let place = |name: &str, what: &str| format!("{name}={}", folder.join(what).display());
    let options = [
        place("Dir::Etc::sourcelist", "sources.list"),
        place("Dir::Etc::sourceparts", ""),
        place("Dir::State::lists", "lists"),
    ];
    let apt_get = || {
        let child = Child::new("apt-get").dir(folder);
        options.iter().fold(child, |child, option| child.args(["-o", option]))
    };
    done("apt-get update", apt_get().args(["update"]))?;
    done("apt-get source", apt_get().args(["source", package]))?;
    fs::remove_dir_all(folder.join("lists"))?;
    Ok(())
}
