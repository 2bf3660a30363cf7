//! `lockwright profile` of programs under us: which lock, where, and who makes others wait.

use super::top::Program;
use super::{FOLDER, LIBRARY, compiled, compiled_cpp, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, executable, target_dir};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// 20 locks, one of which `hoard` holds for long; it ends after as many rounds as its argument says.
static HOARD: LazyLock<PathBuf> = LazyLock::new(|| compiled("hoard", "hoard.c", &[]));
static HOARD_CPP: LazyLock<PathBuf> = LazyLock::new(|| cpp("hoard-cpp", "-O2"));
/// Here the standard library's guards are functions of their own, and their callers are in the stack.
static HOARD_CPP_DEBUG: LazyLock<PathBuf> = LazyLock::new(|| cpp("hoard-cpp-debug", "-O0"));
/// In Rust, with `lockwright-sync`.
pub(super) static HOARD_RUST: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = target_dir().expect("a target folder");
    let outcome = Child::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "lockwright-sync"])
        .args(["--example", "hoard", "--target-dir"])
        .args([&target])
        .limit(600)
        .run()
        .expect("cargo starts");
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    target.join("release/examples/hoard")
});

fn cpp(name: &str, optimized: &str) -> PathBuf {
    compiled_cpp(name, "hoard.cpp", &[optimized])
}

/// The report on a program, as JSON; all it printed was `output`.
fn profile(name: &str, options: &[&str], program: &[&str], output: &str) -> Result<Value> {
    let file = FOLDER.path().join(format!("{name}.json"));
    let outcome = lockwright()
        .args(["profile", "--format", "json", "--output"])
        .args([&file])
        .args(options)
        .arg_after(program)
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(outcome.text() == output, "{}", outcome.describe());
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// `-- PROGRAM`.
trait After {
    fn arg_after(self, program: &[&str]) -> Self;
}

impl After for Child {
    fn arg_after(self, program: &[&str]) -> Self {
        self.args(["--"]).args(program)
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

#[test]
fn the_slow_holder_is_named_first() -> Result<()> {
    for (program, level, lock, function, file) in [
        (&*HOARD, "full", "locks+0x208", "hoard", "hoard.c:"),
        (&*HOARD, "counters", "locks+0x208", "hoard", "hoard.c:"),
        (&*HOARD_CPP, "full", "locks+0x208", "Store::hoard", "hoard.cpp:"),
        (&*HOARD_CPP_DEBUG, "full", "locks+0x208", "Store::hoard", "hoard.cpp:"),
        (&*HOARD_RUST, "full", "hoard::STORES+0x270", "hoard", "hoard.rs:"),
    ] {
        let path = program.to_str().context("a path in UTF-8")?;
        let report = profile("hoard", &["--level", level], &[path], "done\n")?;
        let first = report.pointer("/processes/0/locks/0").context("a lock")?;
        assert_eq!(text(first, "/name"), lock, "{report:#}");
        assert!(text(first, "/holders/0/function").starts_with(function), "{first:#}");
        assert!(text(first, "/holders/0/place").starts_with(file), "{first:#}");
        assert!(number(first, "/holders/0/ns") >= 1_000_000, "{first:#}");
        assert!(text(first, "/waiters/0/function").contains("quick"), "{first:#}");
        let waits = number(first, "/wait/count");
        assert!(waits > 0 && number(first, "/contended") > 0 && number(first, "/slept") > 0);
        assert!(number(first, "/wait/p99_ns") <= number(first, "/wait/max_ns"), "{first:#}");
        let is_followed = first.pointer("/owner_changes").is_some_and(Value::is_number);
        assert_eq!(is_followed, level == "full", "{first:#}");
        let threads = first["threads"].as_array().cloned().unwrap_or_default();
        assert_eq!(threads.is_empty(), level == "counters", "{first:#}");
        let sum: u64 = threads.iter().map(|thread| number(thread, "/wait_ns")).sum();
        assert!(threads.is_empty() || sum == number(first, "/wait_ns"), "{first:#}");
        let worst = threads.iter().max_by_key(|thread| number(thread, "/blamed_ns"));
        let slow = number(first, "/holders/0/max_tid");
        assert!(worst.is_none_or(|worst| number(worst, "/tid") == slow), "{first:#}");
    }
    Ok(())
}

/// Also when the waiter that it wakes runs before it can say since when that one has waited.
#[test]
fn whoever_wakes_a_waiter_that_takes_its_cpu_is_blamed() -> Result<()> {
    let program = compiled("woken", "woken.c", &["-O1"]);
    let path = program.to_str().context("a path in UTF-8")?;
    for level in ["full", "counters"] {
        let report = profile("woken", &["--level", level], &[path], "done\n")?;
        let lock = report.pointer("/processes/0/locks/0").context("a lock")?;
        ensure!(text(lock, "/holders/0/function") == "slow", "{lock:#}");
        // Hints may miss one now and then.
        ensure!(number(lock, "/holders/0/count") >= 95, "{lock:#}");
        let (blocked, waited) = (number(lock, "/blamed_ns"), number(lock, "/wait_ns"));
        ensure!(blocked * 10 > waited * 7, "{lock:#}");
    }
    Ok(())
}

/// With frame pointers or without, a report says who calls, and draws it.
#[test]
fn stacks_say_who_calls() -> Result<()> {
    for frames in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
        let flags = ["-O1", frames, "-fno-optimize-sibling-calls"];
        let program = compiled(&format!("hoard{frames}"), "hoard.c", &flags);
        let flame = FOLDER.path().join("hoard.svg");
        let options = ["--flame", flame.to_str().context("a path in UTF-8")?];
        let path = program.to_str().context("a path in UTF-8")?;
        let report = profile("frames", &options, &[path], "done\n")?;
        for side in ["holders", "waiters"] {
            let stack = format!("/processes/0/locks/0/{side}/0/stack");
            let stack = report.pointer(&stack).and_then(Value::as_array).context("a stack")?;
            let stack: Vec<&str> = stack.iter().filter_map(Value::as_str).collect();
            let (inner, outer) = match side {
                "holders" => ("hoard (hoard.c:", "slowly (hoard.c:"),
                _ => ("quick (hoard.c:", "quickly (hoard.c:"),
            };
            assert!(stack[0].starts_with(inner), "{frames}: {stack:?}");
            assert!(stack[1].starts_with(outer), "{frames}: {stack:?}");
        }
        let picture = fs::read_to_string(flame)?;
        assert!(picture.contains("locks+0x208 (") && picture.contains("slowly"), "{picture}");
    }
    Ok(())
}

#[test]
fn a_program_in_which_nobody_waits_has_an_empty_report() -> Result<()> {
    let report = profile("none", &[], &["true"], "")?;
    assert_eq!(report, serde_json::json!({ "processes": [] }));
    let outcome = lockwright().args(["profile", "--", "sh", "-c", "exit 7"]).run()?;
    assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
    let errors = outcome.errors();
    assert!(errors.starts_with("no thread had to wait for a lock that is watched\n"), "{errors}");
    assert!(errors.contains("not watched: locks whose waiters only spin"), "{errors}");
    Ok(())
}

/// Locks that are gone leave their figures with the place that waited for them, and their room to others.
#[test]
fn locks_that_are_gone_need_no_room() -> Result<()> {
    let program = compiled("gone", "locks_gone.c", &[]);
    let path = program.to_str().context("a path in UTF-8")?;
    let report = profile("gone", &[], &[path], "done\n")?;
    let locks = report.pointer("/processes/0/locks").and_then(Value::as_array).context("locks")?;
    let gone = locks.iter().find(|lock| text(lock, "/name").contains("of use"));
    let gone = gone.with_context(|| format!("locks that are gone: {report:#}"))?;
    assert!(text(gone, "/name").starts_with("locks that are gone"), "{gone:#}");
    assert!(number(gone, "/locks") > 1 && number(gone, "/contended") > 1, "{gone:#}");
    assert!(locks.len() < 100, "3000 locks are one line: {}", locks.len());
    Ok(())
}

/// Every process has its own report: a forked child, too, and one that was killed.
#[test]
fn a_child_and_a_killed_process_are_reported() -> Result<()> {
    let path = HOARD.to_str().context("a path in UTF-8")?;
    // Killed once it has computed for a while, 0.3 s: that may take long on a busy machine.
    let script = format!(
        "{path} 200; {path} 1000000 & \
         until [ $(cut -d' ' -f14 /proc/$!/stat) -ge 30 ]; do sleep 0.1; done; kill -9 $!; wait; true"
    );
    let report = profile("killed", &[], &["sh", "-c", &script], "done\n")?;
    let all = report.pointer("/processes").and_then(Value::as_array).context("processes")?;
    let commands: Vec<&str> = all.iter().map(|process| text(process, "/command")).collect();
    for rounds in [" 200", " 1000000"] {
        assert!(commands.iter().any(|command| command.ends_with(rounds)), "{commands:?}");
    }
    assert!(
        all.iter().all(|process| text(process, "/locks/0/name").starts_with("locks")),
        "{report:#}"
    );
    Ok(())
}

/// A process that runs is watched, and what is counted in it is what was before, afterwards.
#[test]
fn a_process_that_runs_is_watched() -> Result<()> {
    let path = HOARD.to_str().context("a path in UTF-8")?;
    let running = lockwright().args(["run"]).arg_after(&[path, "1000000"]).start()?;
    let pid = running.pid().to_string();
    let mut last = String::new();
    for _ in 0..60 {
        let outcome = lockwright()
            .args(["profile", "--quiet", "--format", "json", "--time", "500ms", "-p", &pid])
            .run()?;
        last = outcome.describe();
        let Ok(report) = serde_json::from_str::<Value>(&outcome.text()) else { continue };
        let first = report.pointer("/processes/0/locks/0").context("a lock")?;
        if text(first, "/holders/0/function") == "hoard" {
            assert_eq!(text(first, "/name"), "locks+0x208", "{report:#}");
            assert!(number(&report, "/processes/0/threads") >= 4, "{report:#}");
            return running.stop().map(drop);
        }
    }
    running.stop()?;
    anyhow::bail!("not named: {last}")
}

/// One run, told in each form. What is in them depends on the machine; that they are what they claim to be does not.
#[test]
fn the_report_comes_as_a_page_a_profile_and_a_timeline() -> Result<()> {
    let file = |name: &str| FOLDER.path().join(name);
    let [page, pprof, timeline] = ["forms.html", "forms.pb.gz", "forms-time.json"].map(file);
    let path = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path in UTF-8");
    let (html, gz, json) = (path(&page)?, path(&pprof)?, path(&timeline)?);
    let options = ["--html", &html, "--pprof", &gz, "--timeline", &json];
    let program = HOARD.to_str().context("a path in UTF-8")?;
    let report = profile("forms", &options, &[program], "done\n")?;
    let advice = report.pointer("/processes/0/locks/0/advice").context("advice")?;
    let rules = ["little", "long-sections", "starved", "short-sections"];
    // On a busy machine the holder may lack a CPU.
    let rule = text(advice, "/rule");
    assert!(rules.contains(&rule) || rule.starts_with("holder-"), "{advice:#}");
    // Only another lock is tried by a command.
    let has_command = ["starved", "short-sections"].contains(&rule);
    assert_eq!(text(advice, "/command").is_empty(), !has_command, "{advice:#}");
    let page = fs::read_to_string(page)?;
    for part in ["<!DOCTYPE html>", "locks+0x208", "<svg", "hoard.c:"] {
        assert!(page.contains(part), "no '{part}' in {page}");
    }
    assert!(!page.contains("<script src") && !page.contains("<link"), "all in one file: {page}");
    assert_eq!(fs::read(&pprof)?[..2], [0x1f, 0x8b], "gzip");
    let outcome = Child::new("gzip").args(["-t", &gz]).run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let timeline: Value = serde_json::from_slice(&fs::read(timeline)?)?;
    assert_eq!(text(&timeline, "/traceEvents/0/name"), "process_name", "{timeline:#}");
    Ok(())
}

/// Where a process counts, if nobody names a folder: one file of its own.
fn counts_of(pid: u32) -> Vec<PathBuf> {
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    let folder = format!("/dev/shm/lockwright-{user}");
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_its = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&format!("{pid}-"))
    };
    names.filter(is_its).collect()
}

#[test]
fn counts_end_with_the_process_or_with_the_next_command() -> Result<()> {
    let path = HOARD.to_str().context("a path in UTF-8")?;
    for killed in [false, true] {
        let mut running = lockwright()
            .env("LOCKWRIGHT_OBSERVE", "counters")
            .args(["run"])
            .arg_after(&[path, if killed { "1000000" } else { "200" }])
            .start()?;
        let pid = running.pid();
        let mut had_some = false;
        while !(killed && had_some) && running.end()?.is_none() {
            // Its first word is written last.
            let mut first = [0];
            let is_whole = |path: &PathBuf| {
                File::open(path).is_ok_and(|mut file| file.read_exact(&mut first).is_ok())
                    && first[0] != 0
            };
            had_some |= counts_of(pid).iter().any(is_whole);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        ensure!(had_some || !killed, "it has had no file");
        if killed {
            running.stop()?;
            let file = FOLDER.path().join("ended.prom");
            let other = std::process::id().to_string();
            lockwright()
                .args(["top", "--export", "--count", "1", &other, "--output"])
                .args([file])
                .run()?;
        } else {
            let outcome = running.outcome()?;
            ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        }
        ensure!(counts_of(pid).is_empty(), "{killed}: {:?}", counts_of(pid));
    }
    Ok(())
}

/// What the CPUs do in a section, as far as the kernel says it.
#[test]
fn an_event_is_told_for_the_sections_in_which_it_happens() -> Result<()> {
    let program = Program::start()?;
    let pid = program.pid();
    let begun = Instant::now();
    let watch = |event: &str| -> Result<Value> {
        let options = ["profile", "-p", &pid, "--time=500ms", "--format=json", "--event", event];
        let outcome = lockwright().args(options).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        Ok(serde_json::from_str(&outcome.text())?)
    };
    loop {
        let report = watch("cpu-clock")?;
        let events = report.pointer("/processes/0/events").context("what was seen")?;
        if let Some(why) = events["unavailable"].as_str() {
            println!("skipped: {why}");
            break;
        }
        let locks = report.pointer("/processes/0/locks").and_then(Value::as_array);
        let planted = locks.into_iter().flatten().find(|lock| lock["name"] == "planted");
        let count = planted.map_or(0, |lock| number(lock, "/events"));
        ensure!(count <= number(events, "/count"), "{report:#}");
        if count > 0 {
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(120), "{report:#}");
    }
    // There may be a counter or not: both are said.
    let report = watch("cache-misses")?;
    let events = report.pointer("/processes/0/events").context("what was seen")?;
    ensure!(events["event"] == "cache-misses", "{events}");
    ensure!(events["unavailable"].is_string() || events["count"].is_u64(), "{events}");
    program.end()
}

/// A section ends in a wait for a condition, and begins anew after it: that is the program's call, and none of ours.
#[test]
fn a_section_that_waits_for_a_condition_is_the_programs() -> Result<()> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let include = format!("-I{}", include.display());
    let archive = LIBRARY.with_file_name("liblockwright_static.a").display().to_string();
    // C11's unlock translates the answer, so its place is our own function.
    let both = &["holders", "waiters"][..];
    for (name, sides, locks) in [
        ("handed", both, &[][..]),
        ("handed-c11", &["waiters"], &["-DC11"]),
        ("handed-linked", both, &["-DLINKED", &include, &archive]),
    ] {
        for timed in ["-DTIMED=0", "-DTIMED=1"] {
            let flags = [&["-O1", timed], locks].concat();
            let program = compiled(&[name, timed].concat(), "handed.c", &flags);
            let path = program.to_str().context("a path in UTF-8")?;
            for level in ["counters", "full"] {
                let report = profile("handed", &["--level", level], &[path], "done\n")?;
                let first = report.pointer("/processes/0/locks/0").context("a lock")?;
                assert_eq!(text(first, "/name"), "table+0x10000", "{report:#}");
                for site in sides.iter().flat_map(|side| first[side].as_array()).flatten() {
                    let function = text(site, "/function");
                    assert_eq!(function, "take_turn", "{name} {timed} {level}: {first:#}");
                }
            }
        }
    }
    Ok(())
}

/// As servers do that root has started.
#[test]
fn a_program_that_gives_up_its_rights_is_seen() -> Result<()> {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can give up its rights");
        return Ok(());
    }
    // Where anybody may run it.
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("handed");
    executable(&program, fs::read(compiled("handed", "handed.c", &["-O1"]))?)?;
    let path = program.to_str().context("a path in UTF-8")?;
    let report = profile("dropped", &[], &[path, "dropped"], "done\n")?;
    assert_eq!(text(&report, "/processes/0/locks/0/name"), "table+0x10000", "{report:#}");
    Ok(())
}
