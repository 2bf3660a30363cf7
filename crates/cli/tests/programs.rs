//! Real programs through `run` and `doctor`: small ones in C, compiled here, and some of the system's.

mod built;
mod terminal;

use anyhow::{Context, Result, ensure};
use built::LIBRARY;
use lockwright_observer::multilib;
use lockwright_tests::{Child, End, Outcome, compile, executable};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use tempfile::TempDir;

#[cfg(target_arch = "x86_64")]
#[path = "programs/attach.rs"]
mod attach;
#[path = "programs/bench.rs"]
mod bench;
#[path = "programs/blame.rs"]
mod blame;
#[path = "programs/compare.rs"]
mod compare;
#[path = "programs/ctl.rs"]
mod ctl;
#[path = "programs/doctor.rs"]
mod doctor;
#[path = "programs/energy.rs"]
mod energy;
#[path = "programs/guest.rs"]
mod guest;
#[path = "programs/hostile.rs"]
mod hostile;
#[path = "programs/hung.rs"]
mod hung;
#[path = "programs/kernel.rs"]
mod kernel;
#[path = "programs/killed.rs"]
mod killed;
#[path = "programs/line.rs"]
mod line;
#[path = "programs/often.rs"]
mod often;
#[path = "programs/order.rs"]
mod order;
#[path = "programs/overlap.rs"]
mod overlap;
#[path = "programs/paths.rs"]
mod paths;
#[path = "programs/policy.rs"]
mod policy;
#[path = "programs/profile.rs"]
mod profile;
#[path = "programs/record.rs"]
mod record;
#[path = "programs/semaphores.rs"]
mod semaphores;
#[path = "programs/slow.rs"]
mod slow;
#[path = "programs/strangers.rs"]
mod strangers;
#[path = "programs/switch.rs"]
mod switch;
#[path = "programs/top.rs"]
mod top;
#[path = "programs/tune.rs"]
mod tune;
#[path = "programs/unended.rs"]
mod unended;
#[path = "programs/waits.rs"]
mod waits;
#[path = "programs/wrappers.rs"]
mod wrappers;

/// What `contend` prints.
const COUNT: &str = "12000\n";

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder"));

/// Only programs: in a folder with other files, a test that writes to a file of a program's name changes the program.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = FOLDER.path().join("programs");
    fs::create_dir(&folder).expect("a folder");
    folder
});

/// Where a program is made. Two tests that make one run at the same time, so each name serves once.
fn place(name: &str) -> PathBuf {
    static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = TAKEN.lock().expect("no test panics here").insert(name.to_owned());
    assert!(is_new, "two programs are called {name}");
    PROGRAMS.join(name)
}

fn compiled(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = place(name);
    compile(&source, &program, flags).expect("our C programs compile");
    program
}

/// The same for C++.
fn compiled_cpp(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = place(name);
    let all = ["-std=c++17", "-g", "-Wall", "-Wextra", "-pthread", "-o"];
    let compiler = Child::new("c++").args(all).args([&program]).args(flags).args([&source]);
    let outcome = compiler.limit(120).run().expect("there is a compiler");
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    program
}

/// What the variable has for our library.
fn preloaded() -> Result<String> {
    let library = LIBRARY.canonicalize()?;
    let library = multilib::path(&library).unwrap_or(library);
    Ok(library.to_str().context("a path in UTF-8")?.to_owned())
}

static ASAN: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("asan", "contend.c", &["-fsanitize=address"]));
static CONTEND: LazyLock<PathBuf> = LazyLock::new(|| compiled("contend", "contend.c", &[]));

fn lockwright() -> Child {
    Child::new(env!("CARGO_BIN_EXE_lockwright"))
        .env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
        // What the user's own says of this machine changes nothing here.
        .env("XDG_CONFIG_HOME", FOLDER.path())
}

fn run(arguments: &[&str]) -> Result<Outcome> {
    lockwright().args(["run"]).args(arguments).run()
}

fn contend_path() -> &'static str {
    CONTEND.to_str().expect("a path in UTF-8")
}

/// The library's variables, as a program under `run` finds them.
fn environment(options: &[&str]) -> Result<BTreeMap<String, String>> {
    let outcome = lockwright().args(["run"]).args(options).args(["--", "env"]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let lines = outcome.text();
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.into(), value.into()));
    Ok(lines.lines().filter_map(pair).collect())
}

fn file(name: &str, text: &str) -> String {
    let path = FOLDER.path().join(name);
    fs::write(&path, text).expect("the temporary folder takes files");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// What `run --stats` says of a program without epochs.
const NO_EPOCHS: &str = "epochs: none\nhint: lockwright run --stats --epoch ";

#[test]
fn exit_code_and_output_are_the_programs_own() -> Result<()> {
    for code in [0, 1, 2, 7, 255] {
        let end = ["--", contend_path(), "exit", &code.to_string()];
        let outcome = run(&end)?;
        assert_eq!(outcome.end, End::Code(code), "{}", outcome.describe());
        assert_eq!((outcome.text().as_str(), outcome.errors().as_str()), (COUNT, ""));
        let outcome = run(&[&["--stats"], &end[..]].concat())?;
        assert_eq!(outcome.end, End::Code(code), "{}", outcome.describe());
        assert_eq!(outcome.text(), COUNT);
        let errors = outcome.errors();
        let record = format!(" lockwright profile --record -- '{}'\n", contend_path());
        assert!(errors.starts_with(NO_EPOCHS) && errors.ends_with(&record), "{errors}");
    }
    Ok(())
}

#[test]
fn signals_are_the_programs_own() -> Result<()> {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGUSR1] {
        for options in [&[][..], &["--stats"]] {
            let end = ["--", contend_path(), "signal", &signal.to_string()];
            let outcome = run(&[options, &end].concat())?;
            assert_eq!(outcome.end, End::Signal(signal), "{}", outcome.describe());
            assert_eq!(outcome.text(), COUNT);
        }
    }
    Ok(())
}

#[test]
fn signals_are_passed_on_to_a_child() -> Result<()> {
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let script =
            format!("trap 'echo {signal}; exit 7' {signal}; kill -{signal} $PPID; sleep 9 & wait");
        let outcome = run(&["--stats", "--", "sh", "-c", &script])?;
        assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
        assert_eq!(outcome.text(), format!("{signal}\n"));
    }
    Ok(())
}

/// Scripts start programs in the background with SIGINT ignored, and end them with it if these handle it.
#[test]
fn a_signal_that_is_inherited_as_ignored_is_for_the_program_to_handle() -> Result<()> {
    let python = "import os, signal, sys, time\n\
                  assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN\n\
                  os.kill(os.getppid(), signal.SIGHUP)\n\
                  signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n\
                  os.kill(os.getppid(), signal.SIGINT)\n\
                  time.sleep(1000)";
    for words in [&["run", "--stats"][..], &["policy", "load", "histogram"]] {
        let outcome = Child::new("env")
            .env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
            .args(["--ignore-signal=INT", "--ignore-signal=HUP", env!("CARGO_BIN_EXE_lockwright")])
            .args(words)
            .args(["--", "/usr/bin/python3", "-c", python])
            .run()?;
        assert_eq!(outcome.end, End::Code(7), "{words:?}: {}", outcome.describe());
    }
    Ok(())
}

#[test]
fn program_inherits_signals_as_from_our_parent() -> Result<()> {
    let states = |prefix: &[&str]| -> Result<Vec<String>> {
        let state = "--block-signal=USR1 --ignore-signal=HUP --ignore-signal=PIPE";
        let outcome = Child::new("env")
            .env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
            .args(state.split(' '))
            .args(prefix)
            .args(["grep", "Sig", "/proc/self/status"])
            .run()?;
        ensure!(outcome.end == End::Code(0), outcome.describe());
        // All of a user's processes have one count of queued signals, SigQ.
        let text = outcome.text();
        let own = text.lines().filter(|line| !line.starts_with("SigQ:"));
        Ok(own.map(str::to_owned).collect())
    };
    let alone = states(&[])?;
    assert!(
        alone
            .iter()
            .any(|line| line.starts_with("SigBlk:") && !line.ends_with("\t0000000000000000"))
    );
    assert_eq!(states(&[env!("CARGO_BIN_EXE_lockwright"), "run", "--"])?, alone);
    assert_eq!(states(&[env!("CARGO_BIN_EXE_lockwright"), "run", "--stats", "--"])?, alone);
    let plain = |prefix: &[&str]| -> Result<String> {
        let grep = ["env", "grep", "SigIgn", "/proc/self/status"];
        let command = [prefix, &grep].concat();
        Ok(Child::new(command[0])
            .env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
            .args(&command[1..])
            .run()?
            .text())
    };
    assert_eq!(plain(&[env!("CARGO_BIN_EXE_lockwright"), "run", "--"])?, plain(&[])?);
    Ok(())
}

#[test]
fn text_without_an_interpreter_line_is_the_shells() -> Result<()> {
    let script = FOLDER.path().join("plain-script");
    executable(&script, "exit 11\n")?;
    assert_eq!(run(&["--", script.to_str().context("a path in UTF-8")?])?.end, End::Code(11));
    Ok(())
}

#[test]
fn program_with_raised_rights_is_refused() -> Result<()> {
    // SAFETY: no preconditions, can't fail.
    let program = if unsafe { libc::getuid() } == 0 {
        let program = forged("setuid", |_| ())?;
        std::os::unix::fs::chown(&program, Some(1), None)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
        program
    } else {
        "/usr/bin/su".to_owned()
    };
    let outcome = run(&["--", &program])?;
    assert_eq!(outcome.end, End::Code(125), "{}", outcome.describe());
    assert!(outcome.errors().contains("it is setuid, so the dynamic linker ignores LD_PRELOAD"));
    assert_eq!(lockwright().args(["doctor", &program]).run()?.end, End::Code(1));
    Ok(())
}

#[test]
fn go_program_runs_with_a_warning() -> Result<()> {
    let program = forged("go", |_| ())?;
    let outcome = Child::new("objcopy")
        .args(["--add-section", &format!(".go.buildinfo={}", file("buildinfo", "go")), &program])
        .run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let outcome = run(&["--", &program])?;
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(0), COUNT));
    assert!(
        outcome.errors().starts_with("warning: ") && outcome.errors().contains("is a Go program")
    );
    assert!(lockwright().args(["doctor", &program]).run()?.text().contains("language  Go: "));
    Ok(())
}

#[test]
fn every_lock_runs_a_program() -> Result<()> {
    let locks = lockwright().args(["list", "--json"]).run()?;
    let locks: serde_json::Value = serde_json::from_slice(&locks.stdout)?;
    let glibc = serde_json::json!({ "name": "glibc", "kind": "" });
    for lock in locks.as_array().context("an array")?.iter().chain([&glibc]) {
        let name = lock["name"].as_str().context("a name")?;
        let outcome = run(&["--lock", name, "--", contend_path()])?;
        if ["readers-writer", "delegated"].iter().any(|kind| lock["kind"] == *kind) {
            assert_eq!(outcome.end, End::Code(2), "{name}: {}", outcome.describe());
            continue;
        }
        assert_eq!(outcome.end, End::Code(0), "{name}: {}", outcome.describe());
        assert_eq!(outcome.text(), COUNT, "{name}");
        let textbook = lock["kind"] == "textbook";
        let warning =
            format!("warning: '{name}' is a textbook lock: with more threads than CPUs (");
        assert_eq!(outcome.errors().starts_with(&warning), textbook, "{}", outcome.errors());
        assert_eq!(outcome.errors().is_empty(), !textbook, "{}", outcome.errors());
    }
    Ok(())
}

#[test]
fn variables_are_set_and_other_preloads_kept() -> Result<()> {
    let library = preloaded()?;
    let set = environment(&["--lock", "fifo:spin=10", "--topology", "big:0-"]);
    assert!(set.is_err(), "a bad topology must not start the program");
    let set = environment(&["--lock", "fifo:spin=10"])?;
    assert_eq!(set["LD_PRELOAD"], library);
    assert_eq!(set["LOCKWRIGHT_LOCK"], "fifo:spin=10");
    assert!(!set.contains_key("LOCKWRIGHT_TOPOLOGY") && !set.contains_key("LOCKWRIGHT_RULES"));
    let other = "libm.so.6";
    let outcome = lockwright().env("LD_PRELOAD", other).args(["run", "--", "env"]).run()?;
    assert!(outcome.text().contains(&format!("LD_PRELOAD={other}:{library}\n")));
    Ok(())
}

#[test]
fn topology_that_the_command_suggests_is_handed_on() -> Result<()> {
    let refused = run(&["--topology", "big:9999", "--", "true"])?;
    let errors = refused.errors();
    let example = errors.split("for example '").nth(1).and_then(|rest| rest.split('\'').next());
    let example = example.context("an example in the hint")?;
    assert_eq!(environment(&["--topology", example])?["LOCKWRIGHT_TOPOLOGY"], example);
    let outcome = lockwright().args(["doctor", "--topology", "--set", example]).run()?;
    assert!(outcome.text().ends_with(&format!("export LOCKWRIGHT_TOPOLOGY='{example}'\n")));
    Ok(())
}

#[test]
fn emulated_machine_that_the_command_suggests_is_handed_on_and_said() -> Result<()> {
    let refused = run(&["--emulate", "big:9999", "--", "true"])?;
    let errors = refused.errors();
    let example = errors.split("for example '").nth(1).and_then(|rest| rest.split('\'').next());
    let example = example.context("an example in the hint")?;
    let outcome = run(&["--emulate", example, "--", "env"])?;
    assert!(outcome.text().contains(&format!("LOCKWRIGHT_EMULATE={example}\n")));
    let said = outcome.errors();
    assert!(said.starts_with("lockwright: emulated: little (cpu"), "{said}");
    assert!(said.ends_with("computes 3.75 times as long; every figure of this run is emulated\n"));
    assert_eq!(said.lines().count(), 1, "{said}");
    // Inherited, it is said as well; another topology takes its place.
    let inherited = || lockwright().env("LOCKWRIGHT_EMULATE", example);
    assert_eq!(inherited().args(["run", "--", "true"]).run()?.errors(), said);
    let other = example.replace("x3.75", "");
    let outcome = inherited().args(["run", "--topology", &other, "--", "env"]).run()?;
    assert!(!outcome.text().contains("LOCKWRIGHT_EMULATE") && outcome.errors().is_empty());
    Ok(())
}

#[test]
fn configuration_becomes_rules_in_the_files_order() -> Result<()> {
    let text = "default = 'fifo'
[[lock]]
library = 'libc.so.6'
use = 'glibc'
[[lock]]
library = 'liblater.so'
use = 'barging:spin=7'
";
    let outcome = run(&["--config", &file("libraries.toml", text), "--", "sh", "-c", "env"])?;
    let set = outcome.text();
    assert!(set.contains("LOCKWRIGHT_LOCK=fifo\n"), "{}", outcome.describe());
    assert!(
        set.contains("LOCKWRIGHT_RULES=lib:libc.so.6=glibc;lib:liblater.so=barging:spin=7\n"),
        "{set}"
    );
    assert!(outcome.errors().starts_with("warning: "), "{}", outcome.errors());
    let set =
        environment(&["--config", &file("default.toml", "default = 'fifo'"), "--lock", "tas"])?;
    assert_eq!(set["LOCKWRIGHT_LOCK"], "tas", "the command line wins");
    Ok(())
}

#[test]
fn symbols_become_their_addresses() -> Result<()> {
    // Compiled to print its environment instead: the rules must fit this very file.
    let source = file(
        "rules.cc",
        "#include <cstdio>
#include <cstdlib>
namespace store { int lock[10]; __attribute__((noinline)) void get(int n) { lock[n]++; } }
static int hidden[10];
int main(int argc, char **) { store::get(argc); hidden[argc]++; puts(getenv(\"LOCKWRIGHT_RULES\")); return hidden[1] - 1; }
",
    );
    let program = FOLDER.path().join("rules");
    let outcome = Child::new("c++").args(["-O1", "-o"]).args([&program]).args([&source]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let config = file(
        "symbols.toml",
        "[[lock]]
mutex = 'store::lock'
use = 'mcs'
[[lock]]
mutex = 'hidden'
object = 'rules'
use = 'clh'
[[lock]]
caller = 'store::get'
use = 'ticket'
[[lock]]
kind = 'recursive'
use = 'ticket'
",
    );
    let program = program.to_str().context("a path in UTF-8")?;
    let outcome = run(&["--config", &config, "--", program])?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let names = Child::new("nm").args(["-S", program]).run()?.text();
    let range = |symbol: &str| -> Result<String> {
        let line = names.lines().find(|line| line.ends_with(&format!(" {symbol}")));
        let words: Vec<_> = line.context("nm knows the symbol")?.split_whitespace().collect();
        let (start, size) =
            (u64::from_str_radix(words[0], 16)?, u64::from_str_radix(words[1], 16)?);
        Ok(format!("rules+{start:#x}-{:#x}", start + size))
    };
    assert_eq!(
        outcome.text().trim_end(),
        format!(
            "mutex:{}=mcs;mutex:{}=clh;call:{}=ticket;kind:recursive+0x0-0xffffffffffffffff=ticket",
            range("_ZN5store4lockE")?,
            range("_ZL6hidden")?,
            range("_ZN5store3getEi")?
        )
    );
    Ok(())
}

#[test]
fn functions_become_epochs_by_their_symbols() -> Result<()> {
    let source = file(
        "throws.cc",
        "#include <cstdio>
#include <cstdlib>
#include <exception>
int main(int argc, char **) { if (argc > 5) std::terminate(); return puts(getenv(\"LOCKWRIGHT_EPOCHS\")) < 0; }
",
    );
    let program = FOLDER.path().join("throws");
    let outcome = Child::new("c++").args(["-O1", "-o"]).args([&program]).args([&source]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let program = program.to_str().context("a path in UTF-8")?;
    let epochs = ["--epoch", "end=std::terminate:50us", "--epoch", "get=malloc:1.5ms@p99.9"];
    let outcome = run(&[epochs.as_slice(), &["--lock", "fifo", "--", program]].concat())?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert_eq!(outcome.text(), "end=_ZSt9terminatev:50000;get=malloc:1500000@99.9\n");
    assert_eq!(outcome.errors(), "");
    Ok(())
}

#[test]
fn functions_out_of_reach_are_refused_and_unknown_ones_warned_of() -> Result<()> {
    let outcome = run(&["--epoch", "add=add:50us", "--", contend_path()])?;
    assert_eq!(outcome.end, End::Code(2), "{}", outcome.describe());
    assert!(
        outcome.errors().contains("'add' is a function of 'contend' itself"),
        "{}",
        outcome.errors()
    );
    assert_eq!(outcome.text(), "");
    let outcome =
        run(&["--lock", "fifo", "--epoch", "x=no_such_thing:50us", "--", contend_path()])?;
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(0), COUNT));
    assert!(outcome.errors().starts_with("warning: 'no_such_thing' is unknown to everything"));
    let outcome = run(&["--stats", "--epoch", "x=no_such_thing:50us", "--", contend_path()])?;
    let errors = outcome.errors();
    assert!(
        errors.ends_with("x: its function was not called, or not through the dynamic linker\n"),
        "{errors}"
    );
    Ok(())
}

#[test]
fn calls_of_a_function_are_counted() -> Result<()> {
    let report = FOLDER.path().join("functions.json");
    let report = report.to_str().context("a path in UTF-8")?;
    let flags = ["--lock", "fifo", &format!("--stats={report}"), "--epoch"];
    let epoch = "join=pthread_join:10s";
    let outcome = run(&[flags.as_slice(), &[epoch, "--", contend_path()]].concat())?;
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(0), COUNT));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report)?)?;
    let epoch = &report["epochs"][0];
    assert_eq!((&epoch["name"], &epoch["all"]["count"]), (&"join".into(), &4.into()), "{report}");
    Ok(())
}

#[test]
fn rules_are_accepted_by_the_library() -> Result<()> {
    let config = file(
        "contend.toml",
        "[[lock]]\nmutex = 'g_lock'\nuse = 'fifo'\n[[lock]]\ncaller = 'add'\nuse = 'barging'\n",
    );
    let outcome = run(&["--config", &config, "--", contend_path()])?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert_eq!((outcome.text().as_str(), outcome.errors().as_str()), (COUNT, ""));
    Ok(())
}

#[test]
fn rules_reach_their_mutexes() -> Result<()> {
    /// Threads of `contend`, for each of two mutexes.
    const FEW: u32 = 8;
    // `tas` never sleeps, so its waits vanish from the trace; `verdict_follows_...` shows them without.
    let cases = [
        ("by-mutex.toml", "mutex = 'g_lock'", "mutex = 'own_lock'"),
        ("by-caller.toml", "caller = 'run'", "caller = 'add'"),
    ];
    for (name, first, second) in cases {
        let text = format!("[[lock]]\n{first}\nuse = 'tas'\n[[lock]]\n{second}\nuse = 'tas'\n");
        let rules = run(&["--config", &file(name, &text), "--", contend_path(), "rules"])?;
        ensure!(rules.end == End::Code(0), rules.describe());
        let outcome = lockwright()
            .env("LOCKWRIGHT_RULES", rules.text().trim_end())
            .args(["doctor", "--run", "--limit", "50", contend_path()])
            .run()?;
        let text = outcome.text();
        // At times a thread waits for another inside glibc as it starts or ends; and each once for a holder that had the mutex before the
        // rule was known.
        let waits = text.lines().find_map(|line| line.strip_prefix("waits")).context("no waits")?;
        let count = waits.split_whitespace().next().context("none")?;
        let few = count == "none" || count.parse::<u32>()? <= FEW;
        assert!(
            few || waits.contains(" futex waits, 0.0 % of them in our locks"),
            "{name}: {text}"
        );
        assert_eq!(outcome.errors(), COUNT);
    }
    Ok(())
}

#[test]
fn static_program_is_refused_and_doctor_says_no() -> Result<()> {
    let program = compiled("contend-static", "contend.c", &["-static"]);
    let program = program.to_str().context("a path in UTF-8")?;
    let outcome = run(&["--", program])?;
    assert_eq!(outcome.end, End::Code(125));
    assert_eq!(outcome.text(), "");
    assert!(outcome.errors().contains("statically linked"), "{}", outcome.errors());
    let outcome = lockwright().args(["doctor", program]).run()?;
    assert_eq!(outcome.end, End::Code(1));
    assert!(outcome.text().contains("verdict   not reachable: it is statically linked"));
    Ok(())
}

/// Changes bytes of `contend`'s file: what another machine's or another linker's file looks like.
fn forged(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<String> {
    let mut data = fs::read(&*CONTEND)?;
    change(&mut data);
    let path = FOLDER.path().join(name);
    executable(&path, data)?;
    Ok(path.to_str().context("a path in UTF-8")?.to_owned())
}

#[test]
fn foreign_programs_are_told_apart() -> Result<()> {
    let musl = forged("musl", |data| {
        let at = data.windows(8).position(|bytes| bytes == b"ld-linux").expect("glibc's linker");
        data[at..at + 8].copy_from_slice(b"ld-musl-");
    })?;
    let foreign = forged("foreign", |data| data[18] = 22)?; // s390
    let broken = forged("broken", |data| data[1] = 0)?;
    for (program, reason) in [
        (&musl, "linked to musl"),
        (&foreign, "built for another architecture"),
        (&broken, "neither a program nor a script"),
    ] {
        let outcome = lockwright().args(["doctor", program]).run()?;
        assert_eq!(outcome.end, End::Code(1), "{}", outcome.describe());
        assert!(outcome.text().contains(reason), "{}", outcome.describe());
        assert_eq!(run(&["--", program])?.end, End::Code(125));
    }
    Ok(())
}

#[test]
fn every_lock_is_listed_and_explained() -> Result<()> {
    let list = lockwright().args(["list", "--json"]).run()?.text();
    let list: serde_json::Value = serde_json::from_str(&list)?;
    let table = lockwright().args(["list"]).run()?.text();
    for entry in lockwright_locks::catalog::CATALOG {
        let mut listed = list.as_array().context("locks")?.iter();
        let listed = listed.find(|lock| lock["name"] == entry.id).context(entry.id)?;
        assert_eq!(listed["idea"], entry.idea);
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(entry.id));
        let begin = entry.idea.split(' ').take(3).collect::<Vec<_>>().join(" ");
        assert!(line.is_some_and(|line| line.contains(&begin)), "{}: {table}", entry.id);
        let page = lockwright().args(["explain", entry.id]).run()?.text();
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let facts =
            [entry.order, entry.space, entry.wakes, entry.delay, entry.advice, entry.source];
        let options = entry.options.iter().flat_map(|option| [option.key, option.meaning]);
        for fact in facts.into_iter().chain(options) {
            let fact = fact.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&fact), "{}: '{fact}' is missing in\n{page}", entry.id);
        }
    }
    Ok(())
}

#[test]
fn topology_lists_every_cpu() -> Result<()> {
    let json = lockwright().args(["doctor", "--topology", "--json"]).run()?;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout)?;
    let cpus = json["cpus"].as_array().context("an array")?;
    assert!(cpus.len() >= std::thread::available_parallelism()?.get());
    assert!(cpus.iter().all(|cpu| cpu["class"].is_string() && cpu["domain_from"].is_string()));
    let usable = json["usable"]["cpus"].as_u64().context("a number")?;
    assert!((1..=cpus.len() as u64).contains(&usable));
    let table = lockwright().args(["doctor", "--topology"]).run()?.text();
    assert!(table.contains(&format!("usable cpus: {usable} (affinity allows ")), "{table}");
    Ok(())
}

#[test]
fn one_cpu_left_by_affinity_is_seen() -> Result<()> {
    let lockwright = env!("CARGO_BIN_EXE_lockwright");
    let outcome =
        Child::new("taskset").args(["-c", "0", lockwright, "doctor", "--topology"]).run()?;
    assert!(
        outcome.text().contains("usable cpus: 1 (affinity allows 1,"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

#[test]
fn completions_and_pages_know_every_command() -> Result<()> {
    let commands = ["run", "list", "switch", "doctor", "bench"];
    let options =
        ["doctor --topology", "profile --record", "attach --undo", "--completions", "--man"];
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = lockwright().args(["--completions", shell]).run()?.text();
        for command in commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
        for option in options.iter().filter_map(|command| command.rsplit(' ').next()) {
            // fish and PowerShell write options without the dashes, too.
            assert!(script.contains(option.trim_start_matches('-')), "{shell}: {option}");
        }
    }
    let dir = FOLDER.path().join("man/man1");
    let outcome = lockwright().args(["--man", "--dir"]).args([&dir]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let options = options.map(|command| command.replace(" --", "-").replace("--", ""));
    for command in commands.map(str::to_owned).into_iter().chain(options) {
        let page = fs::read_to_string(dir.join(format!("lockwright-{command}.1")))?;
        assert!(page.contains(".SH EXAMPLES"), "{command}");
    }
    let page = fs::read_to_string(dir.with_file_name("man7").join("lockwright-environment.7"))?;
    assert!(page.contains("LOCKWRIGHT_LOCK"));
    let page = lockwright().args(["--man"]).run()?.text();
    assert_eq!(page, fs::read_to_string(dir.join("lockwright.1"))?);
    Ok(())
}

#[test]
fn reader_that_has_seen_enough_is_no_error() -> Result<()> {
    let lockwright = env!("CARGO_BIN_EXE_lockwright");
    let script = format!("set -o pipefail; '{lockwright}' --completions bash | head -c 1");
    let outcome = Child::new("bash").args(["-c", &script]).run()?;
    assert_eq!((outcome.end, outcome.errors().as_str()), (End::Code(0), ""));
    Ok(())
}

/// Nor does it matter that nobody reads standard error: the exit code is the program's own.
#[test]
fn nobody_need_read_the_report() -> Result<()> {
    let script = format!(
        "mkfifo fifo; exec 3>&1; \
         {{ read -r go; {} run --stats -- sh -c 'exit 7' 2>&1 >/dev/null; echo $? >&3; }} <fifo \
         | {{ exec <&-; echo go; }} >fifo",
        env!("CARGO_BIN_EXE_lockwright")
    );
    let place = TempDir::new()?;
    let script = format!("cd '{}'; {script}", place.path().display());
    let outcome =
        Child::new("sh").args(["-c", &script]).env("LOCKWRIGHT_LIBRARY", &*LIBRARY).run()?;
    assert_eq!(outcome.text(), "7\n", "{}", outcome.describe());
    Ok(())
}

static EPOCHS: LazyLock<PathBuf> = LazyLock::new(|| {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
    compiled("epochs", "epochs.c", &[include])
});

fn epochs_path() -> &'static str {
    EPOCHS.to_str().expect("a path in UTF-8")
}

/// Two classes of cores, whatever this machine has: half of its CPUs each; `None` with one CPU.
fn two_classes() -> Result<Option<String>> {
    let topology = lockwright().args(["doctor", "--topology", "--json"]).run()?;
    let topology: serde_json::Value = serde_json::from_slice(&topology.stdout)?;
    let cpus = topology["cpus"].as_array().context("an array")?;
    let names: Vec<_> = cpus.iter().map(|cpu| cpu["cpu"].to_string()).collect();
    Ok(names
        .split_first()
        .filter(|(_, others)| !others.is_empty())
        .map(|(first, others)| format!("big:{first},little:{}", others.join(","))))
}

#[test]
fn stats_show_each_class_of_an_annotated_programs_epochs() -> Result<()> {
    let Some(classes) = two_classes()? else { return Ok(()) };
    for (name, end, slo) in [("stats.json", "exit", "2.5ms"), ("stats.csv", "signal", "1ms")] {
        let path = FOLDER.path().join(name);
        let stats = format!("--stats={}", path.display());
        let program = ["--", epochs_path(), "0.3", "annotated", end, "9"];
        let options = ["--lock", "fifo", "--topology", &classes, "--slo", slo, &stats];
        let outcome = run(&[&options[..], &program].concat())?;
        let expected = if end == "exit" { End::Code(9) } else { End::Signal(9) };
        assert_eq!(outcome.end, expected, "{}", outcome.describe());
        let count: u64 = outcome.text().trim().parse()?;
        let errors = outcome.errors();
        let head = format!("\nepochs of '{}', real: lock fifo, 1 process, ", epochs_path());
        // A long folder breaks the line.
        let errors = match errors.starts_with(&head) {
            true => errors,
            false => errors.replacen("\n  ", " ", 1),
        };
        assert!(errors.starts_with(&head), "{errors}");
        let seconds = errors[head.len()..].split(' ').next().context("a time")?;
        assert!(seconds.parse::<f64>()? >= 0.2, "{errors}");
        let rows: Vec<_> = errors.lines().skip(3).take(4).collect();
        assert!(rows.iter().all(|row| row.chars().count() <= 80), "{errors}");
        for (row, cores) in rows.iter().zip(["work, SLO", "all", "big", "little"]) {
            let words = row.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.starts_with(cores), "{errors}");
        }
        assert!(errors.contains("\nwork: "), "{errors}");
        let text = fs::read_to_string(path)?;
        if end == "exit" {
            let value: serde_json::Value = serde_json::from_str(&text)?;
            let epoch = &value["epochs"][0];
            assert_eq!((&value["origin"], &epoch["name"]), (&"real".into(), &"work".into()));
            assert_eq!((&epoch["id"], &epoch["slo_ns"]), (&3.into(), &2_500_000.into()));
            assert_eq!(epoch["all"]["count"], count, "every execution is counted");
            assert!(epoch["classes"][1]["p50_ns"].as_u64() > Some(2000), "{epoch}");
        } else {
            assert!(text.starts_with("origin,lock,epoch,id,cores,count,"), "{text}");
            assert!(text.contains(&format!("real,fifo,work,3,all,{count},")), "{count}: {text}");
        }
    }
    Ok(())
}

#[test]
fn stats_of_children_are_one_with_their_parents() -> Result<()> {
    let script = format!("{0} 0.1 annotated; exec {0} 0.1 annotated", epochs_path());
    let outcome = run(&["--stats", "--", "sh", "-c", &script])?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    let errors = outcome.errors();
    assert!(errors.contains(", 2 processes, "), "{errors}");
    assert_eq!(errors.matches("\nwork, SLO ").count(), 1, "{errors}");
    Ok(())
}
