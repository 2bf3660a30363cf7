//! `lockwright profile --kernel`: what the kernel sees, where it may be observed; what is missing, where not.

use super::{CONTEND, FOLDER, compiled};
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End, Outcome};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Facts that depend on the scheduler show sooner or later.
const PATIENCE: Duration = Duration::from_secs(120);

/// The command, which needs no library of ours here.
fn observer() -> Child {
    Child::new(env!("CARGO_BIN_EXE_lockwright")).args(["profile", "--kernel"])
}

fn kernel(arguments: &[&str]) -> Result<Outcome> {
    observer().args(arguments).run()
}

/// Can this kernel be observed, with our privilege? If not, says why.
fn is_possible(with: &[&str]) -> Result<bool> {
    let outcome = kernel(&[with, &["--", "true"]].concat())?;
    let errors = outcome.errors();
    if outcome.end == End::Code(2) && errors.starts_with("error: cannot observe the kernel: ") {
        eprintln!("skipped: {errors}");
        return Ok(false);
    }
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    Ok(true)
}

/// Observes the program until `is_seen` in the report.
fn until(
    options: &[&str],
    program: &Path,
    arguments: &[&str],
    is_seen: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let program = program.to_str().context("a path in UTF-8")?;
    let json = format!("{program}.json");
    let all = [options, &["--json", "--output", &json, "--", program], arguments].concat();
    let began = Instant::now();
    loop {
        let outcome = kernel(&all)?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let report: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
        if is_seen(&report) {
            return Ok(report);
        }
        if began.elapsed() > PATIENCE {
            bail!("not seen in {PATIENCE:?}: {report:#}");
        }
    }
}

fn groups(report: &Value) -> impl Iterator<Item = &Value> {
    report["groups"].as_array().into_iter().flatten()
}

/// The group whose name begins so.
fn named<'a>(report: &'a Value, start: &str) -> Option<&'a Value> {
    groups(report).find(|group| group["name"].as_str().is_some_and(|name| name.starts_with(start)))
}

#[test]
fn an_mmap_storm_waits_for_its_mmap_lock_and_its_callers_have_names() -> Result<()> {
    if !is_possible(&[])? {
        return Ok(());
    }
    // Where names are hidden from us there are addresses, and nothing to see here.
    let names = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    if !names.contains("vm_mmap_pgoff") || names.starts_with("0000000000000000") {
        eprintln!("skipped: the kernel's names are hidden");
        return Ok(());
    }
    let storm = compiled("storm", "storm.c", &[]);
    let is_mapping = |caller: &Value| {
        let name = caller.as_str().unwrap_or_default();
        ["vm_mmap_pgoff", "ksys_mmap_pgoff", "__vm_munmap"].contains(&name)
    };
    let report = until(&[], &storm, &[], |report| {
        let parts = named(report, "mmap_lock of storm (").map(|lock| &lock["parts"]);
        let mut parts = parts.and_then(Value::as_array).into_iter().flatten();
        parts.any(|part| is_mapping(&part["name"]))
    })?;
    let lock = named(&report, "mmap_lock of storm (").context("the lock")?;
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or_default();
    // Each part is counted once, and buckets hold all waits.
    let parts = lock["parts"].as_array().context("parts")?;
    for of in ["count", "total_ns"] {
        ensure!(
            parts.iter().map(|part| number(part, of)).sum::<u64>() == number(lock, of),
            "{lock:#}"
        );
    }
    let buckets = lock["histogram"].as_array().context("buckets")?;
    let in_buckets: u64 = buckets.iter().map(|bucket| number(bucket, "count")).sum();
    ensure!(in_buckets == number(lock, "count"), "{lock:#}");
    ensure!(number(lock, "p50_ns") <= number(lock, "max_ns"), "{lock:#}");
    let types = lock["types"].as_array().context("types")?;
    ensure!(types.iter().all(|kind| kind.as_str().is_some_and(|kind| kind.starts_with("rwsem"))));
    ensure!(report["whose"] == "of storm and its children", "{report:#}");
    Ok(())
}

#[test]
fn filters_leave_what_they_ask_for() -> Result<()> {
    if !is_possible(&[])? {
        return Ok(());
    }
    let storm = compiled("storm-filtered", "storm.c", &[]);
    let report = until(&["--lock", "mmap_lock", "--type", "rwsem"], &storm, &[], |report| {
        groups(report).next().is_some()
    })?;
    let all_are = |group: &Value| {
        group["name"].as_str().is_some_and(|name| name.starts_with("mmap_lock of storm-filtered ("))
    };
    ensure!(groups(&report).all(all_are), "{report:#}");
    // Other types, such as mutexes, are not there, whatever else the storm waits for.
    let spin = until(&["--by", "type", "--type", "spinlock,rwsem"], &storm, &[], |report| {
        groups(report).next().is_some()
    })?;
    let known = |group: &Value| group["name"] == "spinlock" || group["name"] == "rwsem";
    ensure!(groups(&spin).all(known), "{spin:#}");
    let storm = storm.to_str().context("a path in UTF-8")?;
    let outcome = kernel(&["--function", "no_such_function_anywhere", "--", storm])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let errors = outcome.errors();
    let words = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains(": 0 waits, 0 ns in all"), "{errors}");
    Ok(())
}

#[test]
fn the_report_says_what_it_lost_and_what_it_cost() -> Result<()> {
    if !is_possible(&[])? {
        return Ok(());
    }
    let storm = compiled("storm-reported", "storm.c", &[]);
    let storm = storm.to_str().context("a path in UTF-8")?;
    let outcome = kernel(&["--histogram", "--stacks", "--", storm])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let errors = outcome.errors();
    ensure!(errors.contains("lost"), "{errors}");
    ensure!(errors.contains("cost"), "{errors}");
    ensure!(outcome.text().is_empty(), "the program's output is its own");
    // The program's end is ours.
    let outcome = kernel(&["--", "sh", "-c", "echo mine; exit 7"])?;
    ensure!(outcome.end == End::Code(7), "{}", outcome.describe());
    ensure!(outcome.text() == "mine\n", "{}", outcome.describe());
    Ok(())
}

#[test]
fn ctrl_c_ends_it_with_a_report() -> Result<()> {
    if !is_possible(&[])? {
        return Ok(());
    }
    for (time, code) in [(&[][..], 0), (&["--time", "600s"], 130)] {
        let mut running = observer().args(["--quiet"]).args(time).start()?;
        // It listens once it waits for signals; one that came before would end it.
        let (pid, began) = (running.pid(), Instant::now());
        let waits = format!("{} ", libc::SYS_rt_sigtimedwait);
        while !fs::read_to_string(format!("/proc/{pid}/syscall"))?.starts_with(&waits) {
            ensure!(began.elapsed() < PATIENCE, "it does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: no preconditions; it is a child of ours.
        unsafe { libc::kill(pid as i32, libc::SIGINT) };
        while running.end()?.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let outcome = running.outcome()?;
        ensure!(outcome.end == End::Code(code), "{}", outcome.describe());
        ensure!(
            outcome.text().starts_with("waits for kernel locks of the whole"),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

#[test]
fn futex_waits_of_a_program_that_knows_nothing_of_us_have_names() -> Result<()> {
    if !is_possible(&["--futex"])? {
        return Ok(());
    }
    // The holder of `own_lock` sleeps, so somebody waits for it.
    let report = until(&["--futex"], &CONTEND, &[], |report| {
        named(report, "own_lock of contend (").is_some()
    })?;
    let lock = named(&report, "own_lock of contend (").context("the lock")?;
    ensure!(lock["types"][0] == "futex" && lock["count"].as_u64() > Some(0), "{lock:#}");
    Ok(())
}

#[test]
fn without_privilege_it_says_what_is_missing() -> Result<()> {
    // Root without any capability; another user may not be able to reach our folders.
    let bare = |arguments: &[&str]| {
        let all = [
            "--bounding-set=-all",
            "--inh-caps=-all",
            env!("CARGO_BIN_EXE_lockwright"),
            "profile",
            "--kernel",
        ];
        Child::new("setpriv").args(all).args(arguments).env("TMPDIR", FOLDER.path()).run()
    };
    // SAFETY: no preconditions, can't fail.
    if unsafe { libc::geteuid() } != 0 || Child::new("setpriv").args(["--version"]).run().is_err() {
        eprintln!("skipped: only root may drop its bounding set, with setpriv of util-linux");
        return Ok(());
    }
    let outcome = bare(&["--time", "1s"])?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    let errors = outcome.errors();
    ensure!(
        errors
            == "error: cannot observe the kernel: we lack CAP_BPF and CAP_PERFMON\n\
                hint: sudo lockwright profile --kernel --time 5s; or once: sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep \"$(command -v lockwright)\"\n",
        "{errors}"
    );
    // The program is not started.
    let outcome = bare(&["--", "echo", "started"])?;
    ensure!(outcome.end == End::Code(2) && outcome.text().is_empty(), "{}", outcome.describe());
    Ok(())
}
