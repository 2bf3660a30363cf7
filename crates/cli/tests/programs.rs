//! Real programs through `run` and `doctor`: small ones in C, compiled here, and some of the system's.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, Outcome, compile, target_dir};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;

/// What `contend` prints.
const COUNT: &str = "12000\n";

/// `LOCKWRIGHT_LIBRARY`, else built here.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(path) = env::var_os("LOCKWRIGHT_LIBRARY") {
        return path.into();
    }
    let target = target_dir().expect("a target folder");
    let outcome = Child::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "lockwright-preload", "--target-dir"])
        .args([&target])
        .limit(600)
        .run()
        .expect("cargo starts");
    assert_eq!(outcome.end, End::Code(0), "cannot build the library: {}", outcome.describe());
    target.join("debug/liblockwright.so")
});

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder"));

fn compiled(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = FOLDER.path().join(name);
    compile(&source, &program, flags).expect("our C programs compile");
    program
}

static CONTEND: LazyLock<PathBuf> = LazyLock::new(|| compiled("contend", "contend.c", &[]));

fn lockwright() -> Child {
    Child::new(env!("CARGO_BIN_EXE_lockwright")).env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
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

#[test]
fn exit_code_and_output_are_the_programs_own() -> Result<()> {
    for code in [0, 1, 2, 7, 255] {
        let outcome = run(&["--", contend_path(), "exit", &code.to_string()])?;
        assert_eq!(outcome.end, End::Code(code), "{}", outcome.describe());
        assert_eq!((outcome.text().as_str(), outcome.errors().as_str()), (COUNT, ""));
    }
    Ok(())
}

#[test]
fn signals_are_the_programs_own() -> Result<()> {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGUSR1] {
        let outcome = run(&["--", contend_path(), "signal", &signal.to_string()])?;
        assert_eq!(outcome.end, End::Signal(signal), "{}", outcome.describe());
        assert_eq!(outcome.text(), COUNT);
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
        Ok(outcome.text().lines().map(str::to_owned).collect())
    };
    let alone = states(&[])?;
    assert!(
        alone
            .iter()
            .any(|line| line.starts_with("SigBlk:") && !line.ends_with("\t0000000000000000"))
    );
    assert_eq!(states(&[env!("CARGO_BIN_EXE_lockwright"), "run", "--"])?, alone);
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
    let script = file("plain-script", "exit 11\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    assert_eq!(run(&["--", &script])?.end, End::Code(11));
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
    let library = LIBRARY.canonicalize()?;
    let library = library.to_str().context("a path in UTF-8")?;
    let set = environment(&["--lock", "fifo:spin=10", "--topology", "big:0-"]);
    assert!(set.is_err(), "a bad topology must not start the program");
    let set = environment(&["--lock", "fifo:spin=10"])?;
    assert_eq!(set["LD_PRELOAD"], library);
    assert_eq!(set["LOCKWRIGHT_LOCK"], "fifo:spin=10");
    assert!(!set.contains_key("LOCKWRIGHT_TOPOLOGY") && !set.contains_key("LOCKWRIGHT_RULES"));
    let other = "libm.so.6";
    let outcome = lockwright().env("LD_PRELOAD", other).args(["run", "--", "env"]).run()?;
    assert!(outcome.text().contains(&format!("LD_PRELOAD={library}:{other}\n")));
    Ok(())
}

#[test]
fn topology_that_the_command_suggests_is_handed_on() -> Result<()> {
    let refused = run(&["--topology", "big:9999", "--", "true"])?;
    let errors = refused.errors();
    let example = errors.split("for example '").nth(1).and_then(|rest| rest.split('\'').next());
    let example = example.context("an example in the hint")?;
    assert_eq!(environment(&["--topology", example])?["LOCKWRIGHT_TOPOLOGY"], example);
    let outcome = lockwright().args(["topology", "--set", example]).run()?;
    assert!(outcome.text().ends_with(&format!("export LOCKWRIGHT_TOPOLOGY='{example}'\n")));
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
            "mutex:{}=mcs;mutex:{}=clh;call:{}=ticket",
            range("_ZN5store4lockE")?,
            range("_ZL6hidden")?,
            range("_ZN5store3getEi")?
        )
    );
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
    // `tas` never sleeps, so its waits vanish from the trace; `doctor_counts_...` shows them without.
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
        assert!(text.contains(" futex waits, 0.0 % of them in our locks"), "{name}: {text}");
        assert_eq!(outcome.errors(), COUNT);
    }
    Ok(())
}

#[test]
fn script_is_followed_to_its_interpreter() -> Result<()> {
    let script = file("script", "#!/usr/bin/env sh\nexit 9\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    assert_eq!(run(&["--", &script])?.end, End::Code(9));
    let outcome = lockwright().args(["doctor", &script]).run()?;
    let shell = fs::canonicalize("/bin/sh")?;
    let runs_by =
        format!("runs by   {}\n", fs::canonicalize("/usr/bin/sh").unwrap_or(shell).display());
    assert!(outcome.text().contains(&runs_by), "{}", outcome.describe());
    Ok(())
}

#[test]
fn static_program_is_refused_and_doctor_says_no() -> Result<()> {
    let program = compiled("static", "contend.c", &["-static"]);
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
    fs::write(&path, data)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
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
fn doctor_counts_the_waits_of_our_locks() -> Result<()> {
    let outcome = lockwright()
        .args(["doctor", "--run", "--limit", "50", contend_path(), "exit", "3"])
        .run()?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(text.contains("run       exit code 3\n"), "{text}");
    assert!(text.ends_with("verdict   reachable\n"), "{text}");
    let ours = text.lines().find(|line| line.ends_with("  liblockwright.so"));
    let count = ours.and_then(|line| line.split_whitespace().next()).context("a line of ours")?;
    assert!(count.parse::<u32>()? > 0, "{text}");
    assert_eq!(outcome.errors(), COUNT, "the program's output goes to standard error");
    Ok(())
}

#[test]
fn doctor_counts_the_c_librarys_waits_as_others() -> Result<()> {
    let program = compiled("join", "join.c", &[]);
    let outcome = lockwright().args(["doctor", "--run", "--limit", "50"]).args([&program]).run()?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(text.contains(" futex waits, 0.0 % of them in our locks"), "{text}");
    assert!(
        text.lines().any(|line| line
            .ends_with("  libc.so.6 (thread joins, barriers and other waits inside glibc)")),
        "{text}"
    );
    Ok(())
}

#[test]
fn doctor_ends_the_program_at_the_limit() -> Result<()> {
    let outcome = lockwright()
        .args(["doctor", "--run", "--limit", "1", "sh", "-c", "sleep 50; true"])
        .run()?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(outcome.text().contains("run       ended by us after 1 s\n"), "{}", outcome.describe());
    assert!(outcome.took.as_secs() < 30);
    Ok(())
}

#[test]
fn every_lock_is_listed_and_explained() -> Result<()> {
    let list = lockwright().args(["list"]).run()?.text();
    for entry in lockwright_locks::catalog::CATALOG {
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(entry.id));
        assert!(line.is_some_and(|line| line.contains(entry.idea)), "{}", entry.id);
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
    let json = lockwright().args(["topology", "--json"]).run()?;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout)?;
    let cpus = json["cpus"].as_array().context("an array")?;
    assert!(cpus.len() >= std::thread::available_parallelism()?.get());
    assert!(cpus.iter().all(|cpu| cpu["class"].is_string() && cpu["domain_from"].is_string()));
    let usable = json["usable"]["cpus"].as_u64().context("a number")?;
    assert!((1..=cpus.len() as u64).contains(&usable));
    let table = lockwright().args(["topology"]).run()?.text();
    assert!(table.contains(&format!("usable cpus: {usable} (affinity allows ")), "{table}");
    Ok(())
}

#[test]
fn one_cpu_left_by_affinity_is_seen() -> Result<()> {
    let lockwright = env!("CARGO_BIN_EXE_lockwright");
    let outcome = Child::new("taskset").args(["-c", "0", lockwright, "topology"]).run()?;
    assert!(
        outcome.text().contains("usable cpus: 1 (affinity allows 1,"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

#[test]
fn completions_and_pages_know_every_command() -> Result<()> {
    let commands = ["run", "list", "explain", "doctor", "topology", "bench", "completions", "man"];
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = lockwright().args(["completions", shell]).run()?.text();
        for command in commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let dir = FOLDER.path().join("man");
    let outcome = lockwright().args(["man", "--dir"]).args([&dir]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    for command in commands {
        let page = fs::read_to_string(dir.join(format!("lockwright-{command}.1")))?;
        assert!(page.contains("Examples:"), "{command}");
    }
    let page = lockwright().args(["man"]).run()?.text();
    assert_eq!(page, fs::read_to_string(dir.join("lockwright.1"))?);
    Ok(())
}

#[test]
fn reader_that_has_seen_enough_is_no_error() -> Result<()> {
    let lockwright = env!("CARGO_BIN_EXE_lockwright");
    let script = format!("set -o pipefail; '{lockwright}' completions bash | head -c 1");
    let outcome = Child::new("bash").args(["-c", &script]).run()?;
    assert_eq!((outcome.end, outcome.errors().as_str()), (End::Code(0), ""));
    Ok(())
}
