//! `lockwright policy`: policies come into a program that runs, and go again.

use super::ctl::Program;
use super::{CONTEND, FOLDER, LIBRARY, lockwright, switch};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, Outcome, source_dir};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `lockwright policy WORDS --pid PID`.
fn policy(program: &Program, words: &[&str]) -> Result<Outcome> {
    policy_of(program.pid, words)
}

fn policy_of(pid: u32, words: &[&str]) -> Result<Outcome> {
    let pid = pid.to_string();
    let (first, rest) = words.split_first().context("a subcommand")?;
    lockwright().args(["policy", first, "--pid", &pid]).args(rest).limit(300).run()
}

fn ok(program: &Program, words: &[&str]) -> Result<String> {
    let outcome = policy(program, words)?;
    ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
    Ok(outcome.text())
}

/// Until the process's policies are like that: they must be, some time.
fn comes_to(program: &Program, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let text = ok(program, &["stats", "--format=json"])?;
        let stats: Value = serde_json::from_str(&text).context(text)?;
        if is_so(&stats["policies"]) {
            return Ok(stats);
        }
        ensure!(begun.elapsed() < PATIENCE, "never {what}: {stats:#}");
    }
}

fn asked(policy: &Value, hook: &str) -> u64 {
    let hooks = policy["hooks"].as_array();
    let hook = hooks.and_then(|hooks| hooks.iter().find(|known| known["hook"] == hook));
    hook.and_then(|hook| hook["asked"].as_u64()).unwrap_or(0)
}

/// The first constant of a policy.
fn constant(policy: &Value) -> Option<u64> {
    let map = policy["maps"].as_array()?.iter().find(|map| map["name"] == ".rodata")?;
    map["shown"][0]["value"][0].as_u64()
}

#[test]
fn a_policy_is_asked_while_it_is_there_and_the_old_rules_are_back() -> Result<()> {
    let program = Program::start()?;
    let heap = program.said.clone();
    program.ok(&["g_lock", "fifo"])?;
    let said = ok(&program, &["load", "numa", "big-first"])?;
    ensure!(said.contains("(ctl): numa+big-first is loaded, slot 1\n"), "{said}");
    program.comes_to_run("g_lock", "programmed:slot=1")?;
    program.comes_to_run(&heap, "programmed:slot=1")?;
    comes_to(&program, "asked", |all| asked(&all[0], "cmp_node") > 0)?;
    let said = ok(&program, &["list"])?;
    ensure!(said.contains("  slot 1: numa+big-first: all mutexes\n"), "{said}");
    // Another one for one of the locks.
    let said = ok(&program, &["load", "numa", "--lock", "g_lock", "--option", "bypass=9"])?;
    ensure!(said.contains("numa is loaded, slot 2\n"), "{said}");
    program.comes_to_run("g_lock", "programmed:slot=2,bypass=9")?;
    program.comes_to_run(&heap, "programmed:slot=1")?;
    let stats = comes_to(&program, "asked", |all| asked(&all[1], "cmp_node") > 0)?;
    ensure!(constant(&stats["policies"][1]).is_some_and(|value| value != 0), "{stats:#}");
    // The last one is the first to go.
    let said = ok(&program, &["unload", "numa"])?;
    ensure!(said.contains("unloaded: numa\n"), "{said}");
    program.comes_to_run("g_lock", "programmed:slot=1")?;
    ok(&program, &["unload"])?;
    program.comes_to_run("g_lock", "fifo")?;
    program.comes_to_run(&heap, "auto")?;
    let outcome = policy(&program, &["unload"])?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(outcome.errors().contains("has no policy"), "{}", outcome.describe());
    program.end().map(drop)
}

#[test]
fn a_policy_for_one_lock_is_hidden_by_a_later_one_for_all() -> Result<()> {
    let program = Program::start()?;
    program.comes_to_run("g_lock", "auto")?;
    ok(&program, &["load", "numa", "--lock", "g_lock"])?;
    comes_to(&program, "seen", |all| all[0]["slot"] == 1 && all[0]["hidden_by"].is_null())?;
    ok(&program, &["load", "inheritance"])?;
    comes_to(&program, "hidden", |all| all[0]["hidden_by"] == 2 && all[1]["hidden_by"].is_null())?;
    let said = ok(&program, &["list"])?;
    ensure!(said.contains("); hidden by slot 2\n"), "{said}");
    ok(&program, &["unload", "inheritance"])?;
    comes_to(&program, "seen again", |all| all[0]["hidden_by"].is_null())?;
    program.comes_to_run("g_lock", "programmed:slot=1")?;
    program.end().map(drop)
}

/// As for mutexes: so a guard that takes the rules away for a while measures the program without the policy.
#[test]
fn readers_ask_a_policy_only_while_the_rules_name_it() -> Result<()> {
    let mut program = Program::start_readers()?;
    ok(&program, &["load", "bravo"])?;
    comes_to(&program, "asked", |all| asked(&all[0], "rw_bias") > 0)?;
    program.ok(&["all", "fifo"])?;
    // Each thread that was about to ask has asked; and readers are not in the table any more.
    program.gets_on()?;
    let bias = |stats: &Value| asked(&stats["policies"][0], "rw_bias");
    let before = bias(&comes_to(&program, "loaded", |all| all[0]["policy"] == "bravo")?);
    program.gets_on()?;
    let after = bias(&comes_to(&program, "loaded", |all| all[0]["policy"] == "bravo")?);
    ensure!(before == after, "asked {before} times, and later {after}");
    ok(&program, &["unload"])?;
    program.end().map(drop)
}

#[test]
fn one_readers_writer_lock_asks_a_policy_for_it() -> Result<()> {
    let mut program = Program::start_readers()?;
    let known = |policy: &Value| {
        let map = policy["maps"].as_array()?.iter().find(|map| map["name"] == "locks")?;
        map["entries"].as_u64()
    };
    ok(&program, &["load", "bravo"])?;
    comes_to(&program, "asked about both", |all| known(&all[0]) == Some(2))?;
    ok(&program, &["load", "bravo", "--lock", "g_rw"])?;
    comes_to(&program, "asked about one", |all| known(&all[1]) == Some(1))?;
    program.gets_on()?;
    let stats = comes_to(&program, "asked", |all| asked(&all[1], "rw_bias") > 0)?;
    ensure!(known(&stats["policies"][1]) == Some(1), "{stats:#}");
    // The other lock goes on asking the first one.
    let first = asked(&stats["policies"][0], "rw_bias");
    comes_to(&program, "asked on", |all| asked(&all[0], "rw_bias") > first)?;
    let outcome = policy(&program, &["load", "bravo", "--kind", "recursive"])?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(
        outcome.errors().contains("is for readers-writer locks, and these rules select none"),
        "{}",
        outcome.describe()
    );
    ok(&program, &["unload"])?;
    program.end().map(drop)
}

#[test]
fn a_static_program_is_said_to_be_one() -> Result<()> {
    let program = Program::start_static()?;
    let outcome = policy(&program, &["load", "numa"])?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(
        outcome.errors().contains("(ctl-static) runs without lockwright, and is statically linked")
    );
    ensure!(outcome.errors().contains("\nhint: a static program may link our locks"));
    program.end().map(drop)
}

#[test]
fn an_idle_program_gets_its_policies_when_it_is_at_work() -> Result<()> {
    let mut idle = switch::Program::start("auto")?;
    let pid = idle.child.id();
    let ok = |words: &[&str]| -> Result<String> {
        let outcome = policy_of(pid, words)?;
        ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
        Ok(outcome.text())
    };
    let said = ok(&["load", "numa"])?;
    ensure!(said.contains("slot 1; it takes effect when a thread next waits"), "{said}");
    let said = ok(&["load", "cal"])?;
    ensure!(said.contains("slot 2; ") && said.contains("\nit replaces numa\n"), "{said}");
    let said = ok(&["load", "big-first", "--lock", "g_lock"])?;
    ensure!(said.contains("slot 1; ") && !said.contains("replaces"), "{said}");
    let list = ok(&["list"])?;
    let later = "loaded when a thread next waits for a mutex\n";
    ensure!(list.contains(&format!("  slot 1: big-first will be {later}")), "{list}");
    ensure!(list.contains(&format!("  slot 2: cal will be {later}")), "{list}");
    ensure!(!list.contains(" un"), "{list}");
    let stats: Value = serde_json::from_str(&ok(&["stats", "--format", "json"])?)?;
    let waits = |stats: &Value, policy: &str, change: &str| {
        let is_it = |one: &Value| one["policy"] == policy && one["change"] == change;
        stats["later"].as_array().is_some_and(|all| all.iter().any(is_it))
    };
    ensure!(waits(&stats, "big-first", "load") && waits(&stats, "cal", "load"), "{stats:#}");
    ensure!(stats["later"].as_array().map(Vec::len) == Some(2), "{stats:#}");
    idle.round()?;
    let list = ok(&["list"])?;
    ensure!(list.contains("  slot 1: big-first: mutex g_lock (switch+"), "{list}");
    ensure!(list.contains("  slot 2: cal: all mutexes\n") && !list.contains(later), "{list}");
    ok(&["load", "numa"])?;
    let stats = ok(&["stats"])?;
    // It takes the place of one that is still there.
    ensure!(stats.contains(&format!(": numa will be {later}")), "{stats}");
    ensure!(stats.contains("\nnot taken up yet:\n  slot 2: cal will be un"), "{stats}");
    let said = ok(&["unload"])?;
    ensure!(said.contains("unloaded: big-first, numa; that takes effect"), "{said}");
    let list = ok(&["list"])?;
    ensure!(list.contains(&format!("  slot 1: big-first will be un{later}")), "{list}");
    let stats: Value = serde_json::from_str(&ok(&["stats", "--format", "json"])?)?;
    ensure!(waits(&stats, "big-first", "unload") && waits(&stats, "cal", "unload"), "{stats:#}");
    ensure!(!waits(&stats, "numa", "load"), "{stats:#}");
    idle.round()?;
    let list = ok(&["list"])?;
    ensure!(list.contains("has no policy"), "{list}");
    Ok(())
}

#[test]
fn a_policy_whose_guard_is_killed_goes_and_one_that_is_asked_to_end_frees_its_slot() -> Result<()> {
    let program = Program::start()?;
    let pid = program.pid.to_string();
    let guarded = |time| {
        Command::new(env!("CARGO_BIN_EXE_lockwright"))
            .args(["policy", "load", "numa", "--pid", &pid, time, "-q"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let mut guard = guarded("--guard=60s")?;
        comes_to(&program, "tried", |all| all[0]["policy"] == "numa")?;
        // SAFETY: no preconditions; our own child.
        ensure!(unsafe { libc::kill(guard.id() as libc::pid_t, signal) } == 0);
        let status = guard.wait()?;
        let is_empty = |all: &Value| all.as_array().is_some_and(Vec::is_empty);
        match signal {
            libc::SIGTERM => {
                ensure!(status.code() == Some(143), "{status}");
                let text = ok(&program, &["stats", "--format=json"])?;
                ensure!(is_empty(&serde_json::from_str::<Value>(&text)?["policies"]), "{text}");
            }
            _ => drop(comes_to(&program, "empty", is_empty)?),
        }
        program.comes_to_run("g_lock", "auto")?;
    }
    // Another command unloads it: the guard says nothing of what is no longer there.
    let mut guard = guarded("--guard=2s")?;
    comes_to(&program, "tried", |all| all[0]["policy"] == "numa")?;
    ok(&program, &["unload", "numa"])?;
    ensure!(guard.wait()?.code() == Some(2));
    program.comes_to_run("g_lock", "auto")?;
    ok(&program, &["load", "numa"])?;
    program.comes_to_run("g_lock", "programmed:slot=1")?;
    program.end().map(drop)
}

#[test]
fn what_makes_it_slower_is_taken_out_again() -> Result<()> {
    let program = Program::start()?;
    program.comes_to_run("g_lock", "auto")?;
    // With the policy, a thousandth of the work is done: by what the counter says, so that no machine's speed matters.
    let folder = tempfile::tempdir()?;
    let counter = format!(
        "n=$(cat n 2>&- || echo 0); if '{}' switch {} | grep -q programmed; then n=$((n+1)); else n=$((n+1000)); fi; \
         echo $n > n; echo $n",
        env!("CARGO_BIN_EXE_lockwright"),
        program.child.id()
    );
    let pid = program.child.id().to_string();
    let words = ["policy", "load", "big-first", "--pid", &pid, "--guard=600ms", "--quiet"];
    let child = lockwright().args(words).args(["--counter", &counter]).dir(folder.path());
    let outcome = child.limit(300).run()?;
    ensure!(outcome.end == End::Code(1), "{}", outcome.describe());
    let said = outcome.text();
    // So much worse that it is taken out before all is measured.
    let few = "big-first is worse: less than half the work per second, 4 times in a row;";
    ensure!(said.starts_with(few), "{said}");
    ensure!(said.ends_with("big-first is unloaded\n"), "{said}");
    program.comes_to_run("g_lock", "auto")?;
    comes_to(&program, "empty", |all| all.as_array().is_some_and(Vec::is_empty))?;
    program.end().map(drop)
}

#[test]
fn what_the_process_takes_off_is_not_kept() -> Result<()> {
    let program = Program::start()?;
    let slow = source_dir().join("../crates/cli/tests/programs/slow.bpf.o");
    let slow = slow.to_str().context("a path in UTF-8")?;
    // By its own count the program does as much work as before.
    let folder = tempfile::tempdir()?;
    let counter = "n=$(($(cat n 2>&- || echo 0) + 1000)); echo $n > n; echo $n";
    let pid = program.child.id().to_string();
    // A machine may be too busy to ask often enough in a short time.
    for time in ["600ms", "3s", "15s", "60s"] {
        let guard = format!("--guard={time}");
        let words = ["policy", "load", slow, "--pid", &pid, "--budget=50ns", &guard, "--quiet"];
        let child = lockwright().args(words).args(["--counter", counter]).dir(folder.path());
        let outcome = child.limit(300).run()?;
        let said = outcome.text();
        match outcome.end {
            End::Code(0) => {
                ok(&program, &["unload"])?;
            }
            // Its waits may be worse, too.
            End::Code(1) if said.contains("\ntaken off: lock_acquired took ") => {
                ensure!(said.contains("rolled back to auto\n"), "{said}");
                ensure!(said.ends_with("slow is unloaded\n"), "{said}");
                program.comes_to_run("g_lock", "auto")?;
                return program.end().map(drop);
            }
            End::Code(1) => {}
            _ => anyhow::bail!("{}", outcome.describe()),
        }
    }
    anyhow::bail!("nobody asked the policy for a minute")
}

#[test]
fn threads_have_tags_and_names() -> Result<()> {
    let program = Program::start()?;
    let pid = program.child.id().to_string();
    let said = ok(&program, &["tag", &pid, "7"])?;
    ensure!(said.ends_with("(ctl): 1 thread with tag 7\n"), "{said}");
    let said = ok(&program, &["tag", "--name", "c?l*", "8"])?;
    ensure!(said.contains(" threads with tag 8"), "{said}");
    let said = ok(&program, &["tag", &pid, "0"])?;
    ensure!(said.ends_with("1 thread without a tag\n"), "{said}");
    program.end().map(drop)
}

#[test]
fn a_program_starts_with_policies() -> Result<()> {
    let contend = CONTEND.to_str().context("a path in UTF-8")?;
    let outcome = lockwright().args(["policy", "load", "big-first", "--", contend]).run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(outcome.text() == super::COUNT, "{}", outcome.describe());
    let config = FOLDER.path().join("policies.toml");
    std::fs::write(&config, "[[lock]]\nmutex = \"g_lock\"\nuse = \"policy:numa,bypass=9\"\n")?;
    for words in
        [&["--policy", "big-first"][..], &["--config", config.to_str().context("a path in UTF-8")?]]
    {
        let outcome = lockwright().args(["run"]).args(words).args(["--", contend]).run()?;
        ensure!(outcome.text() == super::COUNT, "{words:?}: {}", outcome.describe());
    }
    Ok(())
}

/// Otherwise one would take it for the policy's doing that nothing is better.
#[test]
fn a_policy_that_comes_too_late_is_said_to() -> Result<()> {
    // A single thread waits for nobody.
    let alone = ["policy", "load", "histogram", "--", "sh", "-c", "sleep 0.1; echo it ran; exit 3"];
    let outcome = lockwright().args(alone).run()?;
    ensure!(outcome.end == End::Code(3), "{}", outcome.describe());
    ensure!(outcome.text() == "it ran\n", "{}", outcome.describe());
    let said = "lockwright: histogram did not come into force before the program ended\n";
    // A machine that has other work may take so long that it is there after all, and waits for a thread that waits.
    let errors = outcome.errors();
    ensure!(errors == said || errors == "lockwright: histogram is loaded\n", "{errors}");
    Ok(())
}

/// The program may have as many threads as the limit allows; so this command can't have another.
#[test]
fn without_a_thread_to_load_the_policy_the_program_runs() -> Result<()> {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(()); // the limit is for all threads of a user: it takes a user who has no others
    }
    // Root's own threads have no limit, nor have those of whoever may change limits. Our files are root's alone.
    let may = ["--inh-caps=-all,+dac_override", "--ambient-caps=+dac_override"];
    let load = [env!("CARGO_BIN_EXE_lockwright"), "policy", "load", "histogram", "--", "true"];
    let outcome = Child::new("setpriv")
        .env("LOCKWRIGHT_LIBRARY", &*super::LIBRARY)
        .env("XDG_CONFIG_HOME", FOLDER.path())
        .args(["--reuid=61184", "--clear-groups"])
        .args(may)
        .args(["prlimit", "--nproc=2"])
        .args(load)
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let said = "warning: histogram isn't loaded: no thread for that: ";
    ensure!(outcome.errors().starts_with(said), "{}", outcome.describe());
    Ok(())
}

#[test]
fn a_program_that_starts_and_is_idle_takes_its_policy_up_later() -> Result<()> {
    let start = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
        command.args(words).args(["--", "cat"]);
        command.env("LOCKWRIGHT_LIBRARY", &*LIBRARY).env("XDG_CONFIG_HOME", FOLDER.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    };
    for idle in [start(&["policy", "load", "numa"]), start(&["run", "--policy", "numa"])] {
        let mut idle = idle?;
        let mut said = String::new();
        BufReader::new(idle.stderr.take().context("its messages")?).read_line(&mut said)?;
        // It has waited for its input until now.
        drop(idle.stdin.take());
        ensure!(idle.wait()?.success());
        let later = "it takes effect when a thread next waits for a mutex";
        ensure!(said == format!("lockwright: numa is loaded; {later}\n"), "{said}");
    }
    Ok(())
}

#[test]
fn a_policy_is_for_the_mutexes_of_a_kind() -> Result<()> {
    let program = Program::start_recursive()?;
    let heap = program.said.clone();
    program.comes_to_run("g_lock", "auto")?;
    ok(&program, &["load", "big-first", "--kind", "recursive", "--set", "most_ns=3ms"])?;
    program.comes_to_run(&heap, "programmed:slot=1")?;
    program.comes_to_run("g_lock", "auto")?;
    let said = ok(&program, &["list"])?;
    ensure!(said.contains("  slot 1: big-first: recursive mutexes\n"), "{said}");
    let stats: Value = serde_json::from_str(&ok(&program, &["stats", "--format=json"])?)?;
    ensure!(stats["policies"][0]["maps"][0]["shown"][0]["value"][0] == 3_000_000, "{stats:#}");
    // A rule of the process for the same mutexes is another one, which stays.
    program.ok(&["kind:recursive", "fifo"])?;
    program.comes_to_run(&heap, "fifo")?;
    ok(&program, &["load", "numa", "--kind", "normal", "--kind", "recursive"])?;
    program.comes_to_run(&heap, "programmed:slot=2")?;
    program.comes_to_run("g_lock", "programmed:slot=2")?;
    ok(&program, &["unload"])?;
    program.comes_to_run(&heap, "fifo")?;
    program.comes_to_run("g_lock", "auto")?;
    program.end().map(drop)
}

#[test]
fn a_program_that_was_started_with_policies_asks_them() -> Result<()> {
    let config = FOLDER.path().join("asked.toml");
    std::fs::write(
        &config,
        "[[lock]]\nmutex = \"g_lock\"\nuse = \"policy:numa,set.most_passed=77,bypass=9\"\n",
    )?;
    let config = config.to_str().context("a path in UTF-8")?;
    let cases: [(&[&str], _, _); 3] = [
        (&["policy", "load", "big-first"], "programmed:slot=1", "big-first"),
        (&["run", "--policy", "big-first"], "programmed:slot=1", "big-first"),
        (&["run", "--config", config], "programmed:slot=1,bypass=9", "numa"),
    ];
    for (words, rule, name) in cases {
        let program = Program::start_by(words)?;
        program.comes_to_run("g_lock", rule)?;
        comes_to(&program, "asked", |all| {
            let hooks = ["lock_contended", "cmp_node"];
            all[0]["policy"] == name && hooks.iter().any(|hook| asked(&all[0], hook) > 0)
        })?;
        // The first constant of each.
        let stats: Value = serde_json::from_str(&ok(&program, &["stats", "--format=json"])?)?;
        let expected = if name == "numa" { 77 } else { 2_000_000 };
        ensure!(constant(&stats["policies"][0]) == Some(expected), "{stats:#}");
        program.end()?;
    }
    Ok(())
}

/// What is stored has a name, and versions.
#[test]
fn a_policy_is_kept_with_its_versions() -> Result<()> {
    let home = tempfile::tempdir()?;
    let run = |words: &[&str]| -> Result<(End, String)> {
        let child = lockwright().dir(home.path()).env("XDG_CONFIG_HOME", home.path());
        let outcome = child.args(["policy"]).args(words).run()?;
        Ok((outcome.end, outcome.text() + &outcome.errors()))
    };
    let slow = source_dir().join("../crates/cli/tests/programs/slow.bpf.o");
    std::fs::copy(&slow, home.path().join("mine.bpf.o"))?;
    for version in [1, 2] {
        let said = run(&["store", "mine.bpf.o"])?;
        ensure!(said == (End::Code(0), format!("stored: mine, version {version}\n")), "{said:?}");
    }
    let (end, said) = run(&["check", "mine@1", "--format", "json"])?;
    let check: Value = serde_json::from_str(&said).context(said)?;
    ensure!(end == End::Code(0) && check["policy"] == "mine@1", "{check:#}");
    ensure!(check["hooks"][0]["longest_path"].as_u64() > Some(500), "{check:#}");
    ensure!(check["hooks"][0]["cost_ns"].as_f64() > Some(0.0), "{check:#}");
    let (end, said) = run(&["check", "mine@3"])?;
    ensure!(end == End::Code(2) && said.contains("it has 1, 2; the newest: mine@2"), "{said}");
    let (_, said) = run(&["list"])?;
    ensure!(said.contains("mine") && said.contains("1, 2"), "{said}");
    let (_, said) = run(&["remove", "mine"])?;
    ensure!(said == "removed: mine, versions 1, 2\n", "{said}");
    let (end, _) = run(&["check", "mine"])?;
    ensure!(end == End::Code(2));
    // A new one has the header beside it, and overwrites nothing.
    let (end, said) = run(&["new", "other"])?;
    ensure!(end == End::Code(0) && said.contains("other.bpf.c lockwright_policy.h\n"), "{said}");
    let (end, said) = run(&["new", "other"])?;
    ensure!(end == End::Code(2) && said.contains("is not overwritten"), "{said}");
    let (end, said) = run(&["check", "other.bpf.c"])?;
    if said.contains("clang is not installed") {
        eprintln!("skipped: {said}");
        return Ok(());
    }
    ensure!(end == End::Code(0) && said.contains("other: accepted"), "{said}");
    every_hook_of_the_skeleton_compiles(home.path(), &run)
}

fn every_hook_of_the_skeleton_compiles(
    home: &Path,
    run: &impl Fn(&[&str]) -> Result<(End, String)>,
) -> Result<()> {
    let text = std::fs::read_to_string(home.join("other.bpf.c"))?;
    ensure!(text.contains("\n#if 0"), "{text}");
    std::fs::write(home.join("all.bpf.c"), text.replace("\n#if 0", "\n#if 1"))?;
    let (end, said) = run(&["check", "all.bpf.c", "--format", "json"])?;
    let check: Value = serde_json::from_str(&said).context(said)?;
    ensure!(end == End::Code(0) && check["accepted"] == true, "{check:#}");
    ensure!(check["hooks"].as_array().map(Vec::len) == Some(8), "{check:#}");
    Ok(())
}
