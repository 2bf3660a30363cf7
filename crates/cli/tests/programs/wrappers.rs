//! Whom `profile` names where a program's own functions only pass a lock on, or where several processes run one program.

use super::ctl::{PATIENCE, Program};
use super::slow::until;
use super::{FOLDER, compiled, compiled_cpp, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::End;
use serde_json::Value;
use std::fs;
use std::time::Instant;

fn functions<'a>(lock: &'a Value, side: &str) -> Vec<&'a str> {
    let sites = lock[side].as_array().into_iter().flatten();
    sites.map(|site| site["function"].as_str().unwrap_or_default()).collect()
}

/// The holders are both users, the slow one first; and only users wait. A watched process first has to be told which functions are wrappers, so
/// this need not be so from the first moment on.
fn users_are_named(flags: &[&str], options: &[&str]) -> Result<()> {
    let name = format!("wrappers{}", flags.concat());
    let program = Program::start_file(&compiled(&name, "wrappers.c", flags))?;
    for level in ["full", "counters"] {
        let options = [&["--level", level], options].concat();
        until(&program, &options, |report| {
            let lock = &report["locks"][0];
            let waiters = functions(lock, "waiters");
            let only_users = waiters.iter().all(|user| ["quick", "hoard"].contains(user));
            let is_so = lock["name"] == "table"
                && functions(lock, "holders") == ["hoard", "quick"]
                && waiters.first() == Some(&"quick")
                && only_users;
            is_so.then_some(())
        })
        .with_context(|| format!("{flags:?} {options:?}"))?;
    }
    program.end().map(drop)
}

#[test]
fn users_are_named_past_functions_that_pass_a_lock_on() -> Result<()> {
    for optimized in ["-O0", "-O2"] {
        for frames in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
            users_are_named(&[optimized, frames], &[])?;
        }
    }
    Ok(())
}

#[test]
fn two_levels_of_such_functions_are_passed_by() -> Result<()> {
    users_are_named(&["-DDEEP", "-O0", "-fomit-frame-pointer"], &[])?;
    users_are_named(&["-DDEEP", "-O2", "-fomit-frame-pointer"], &[])
}

/// Their names say nothing.
#[test]
fn wrappers_with_any_names_can_be_given() -> Result<()> {
    let flags = ["-DLOCK=enter_region", "-DUNLOCK=leave_region"];
    users_are_named(&flags, &["--wrapper", "enter_region,leave_region"])?;
    // Nobody has said so in this process, so they are users like any others.
    let program = Program::start_file(&compiled("regions", "wrappers.c", &flags))?;
    until(&program, &[], |report| {
        let lock = &report["locks"][0];
        let both = [functions(lock, "holders"), functions(lock, "waiters")];
        (both == [["leave_region"], ["enter_region"]]).then_some(())
    })?;
    program.end().map(drop)
}

/// It locks, works and unlocks: then its caller has no section.
#[test]
fn a_function_that_has_the_whole_section_is_no_wrapper_whatever_its_name() -> Result<()> {
    let program = compiled("wallet", "wrappers.c", &["-DWALLET", "-O1"]);
    let program = Program::start_file(&program)?;
    for level in ["full", "counters"] {
        until(&program, &["--level", level], |report| {
            let lock = &report["locks"][0];
            let both = [functions(lock, "holders"), functions(lock, "waiters")];
            (both == [["wallet_unlock"], ["wallet_unlock"]]).then_some(())
        })
        .context(level)?;
    }
    program.end().map(drop)
}

/// Switches what `user` uses until `lock` is among it, which may not have been waited for at first. What the command said.
fn switched(program: &Program, user: &str, lock: &str, rule: &str) -> Result<String> {
    let begun = Instant::now();
    loop {
        let outcome = program.switch(&[user, rule])?;
        let said = outcome.text();
        if said.contains(lock) {
            return Ok(said);
        }
        ensure!(begun.elapsed() < PATIENCE, "{}", outcome.describe());
    }
}

#[test]
fn the_locks_of_a_user_are_switched_past_such_functions() -> Result<()> {
    for flags in [["-DPLAIN", "-O0"], ["-DDEEP", "-O2"]] {
        let name = format!("switched{}", flags.concat());
        let program = Program::start_file(&compiled(&name, "wrappers.c", &flags))?;
        let said = switched(&program, "quick", "mutex table (0x", "fifo")?;
        ensure!(said.contains("  caller quick (switched") && !said.contains("hoard"), "{said}");
        program.comes_to_run("table", "fifo")?;
        program.ok(&["quick", "default"])?;
        program.comes_to_run("table", "auto")?;
        program.end()?;
    }
    Ok(())
}

/// A rule by caller, which knows no lock's address. At first the process takes the wrapper for the caller.
#[test]
fn rules_by_caller_hold_past_such_functions_once_these_are_known() -> Result<()> {
    let program = Program::start_file(&compiled("callers", "wrappers.c", &["-O1"]))?;
    let file = FOLDER.path().join("callers.toml");
    let rule = |caller| format!("[[lock]]\ncaller = '{caller}'\nuse = 'fifo'\n");
    fs::write(&file, rule("quick") + &rule("hoard"))?;
    let pid = program.pid.to_string();
    let switched = lockwright().args(["switch", &pid, "--config"]).args([&file]).run()?;
    ensure!(switched.end == End::Code(0), "{}", switched.describe());
    program.comes_to_run("table", "auto")?;
    until(&program, &[], |report| {
        let waiters = functions(&report["locks"][0], "waiters");
        (waiters == ["quick"]).then_some(())
    })?;
    // Each lock asks again when there are other rules.
    program.ok(&["kind:recursive", "cal"])?;
    program.comes_to_run("table", "fifo")?;
    program.end().map(drop)
}

/// They lie in the heap, and nobody has names for them. Another function's lock keeps its rule.
#[test]
fn the_locks_of_a_method_are_switched_past_guards() -> Result<()> {
    let program = Program::start_file(&compiled_cpp("scoped", "scoped.cpp", &["-O1"]))?;
    switched(&program, "Table::get", "mutex 0x", "fifo")?;
    program.comes_to("one of two on fifo", |list| {
        let rule_of = |user: &str| {
            let locks = list["locks"].as_array().into_iter().flatten();
            let mut its =
                locks.filter(|lock| lock["name"].as_str().unwrap_or_default().ends_with(user));
            its.next().map(|lock| lock["rule"].clone())
        };
        // The list names a lock after those who wait for it.
        let rules = [rule_of("of Table::get"), rule_of("of Log::add")];
        rules == [Some("fifo".into()), Some("auto".into())]
    })?;
    program.end().map(drop)
}

#[test]
fn readers_writer_locks_of_a_function_are_switched() -> Result<()> {
    let program = Program::start_readers()?;
    let said = switched(&program, "visit", "rwlock g_other (0x", "rwlock:prefer=patient")?;
    ensure!(said.contains(": rwlock:prefer=patient\n") && !said.contains("caller"), "{said}");
    let refused = program.switch(&["visitor", "rwlock:prefer=patient"])?;
    let errors = refused.errors();
    ensure!(refused.end == End::Code(2), "{}", refused.describe());
    ensure!(errors.contains("'visitor' hasn't waited for a readers-writer lock"), "{errors}");
    program.end().map(drop)
}

/// Three processes that a program forks: each waits twice for one lock and once for another.
#[test]
fn processes_of_one_program_are_one_report() -> Result<()> {
    let program = compiled("workers", "workers.c", &[]);
    let outcome = lockwright().args(["profile", "--top", "2", "--"]).args([&program]).run()?;
    ensure!(outcome.end == End::Code(0) && outcome.text() == "done\n", "{}", outcome.describe());
    let text = outcome.errors();
    let head = format!("3 processes of {}", program.display());
    ensure!(text.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&head), "{text}");
    // Which of them is first depends on what else the machine does.
    let titles: Vec<_> = text.lines().filter(|line| line.contains(". ")).collect();
    let mut names: Vec<_> = titles
        .iter()
        .filter_map(|title| title.strip_prefix("1. ").or(title.strip_prefix("2. ")))
        .collect();
    names.sort_unstable();
    ensure!(names == ["requests", "sessions"] && !text.contains("\n3. "), "{text}");

    let file = FOLDER.path().join("workers.json");
    let options = ["profile", "--format=json", "--output"];
    let outcome = lockwright().args(options).args([&file]).args(["--"]).args([&program]).run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let report: Value = serde_json::from_slice(&fs::read(file)?)?;
    let [sum] = &report["programs"].as_array().context("programs")?[..] else {
        anyhow::bail!("one program: {report:#}")
    };
    let parts = report["processes"].as_array().context("processes")?;
    let pids = |ids: Vec<Option<u64>>| {
        let mut ids = ids;
        ids.sort_unstable();
        ids
    };
    let summed = sum["processes"].as_array().context("its processes")?;
    assert_eq!(
        pids(summed.iter().map(Value::as_u64).collect()),
        pids(parts.iter().map(|part| part["pid"].as_u64()).collect())
    );
    assert_eq!(parts.len(), 3, "{report:#}");
    let of = |process: &Value, name: &str, field: &str| {
        let locks = process["locks"].as_array().into_iter().flatten();
        let lock = locks.into_iter().find(|lock| lock["name"] == name);
        lock.and_then(|lock| lock.pointer(field)).and_then(Value::as_u64).unwrap_or_default()
    };
    for (name, waits) in [("requests", 2), ("sessions", 1)] {
        assert_eq!(of(sum, name, "/locks"), 3, "{sum:#}");
        for field in ["/contended", "/wait/count", "/waiters/0/count"] {
            let each: Vec<u64> = parts.iter().map(|part| of(part, name, field)).collect();
            assert_eq!((&each[..], of(sum, name, field)), (&[waits; 3][..], 3 * waits), "{field}");
        }
        for field in ["/wait_ns", "/holders/0/ns", "/hold/count"] {
            let all: u64 = parts.iter().map(|part| of(part, name, field)).sum();
            assert_eq!(of(sum, name, field), all, "{field}: {report:#}");
        }
    }
    Ok(())
}

/// A filter of system calls that our `prctl` hasn't seen kills nobody for what a profile asks the kernel.
#[test]
fn a_program_that_confines_itself_by_a_system_call_lives_on() -> Result<()> {
    for flags in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
        let program = compiled(&format!("fenced{flags}"), "fenced.c", &["-O1", flags]);
        for level in ["full", "counters"] {
            let options = ["profile", "-q", "--level", level, "--"];
            let outcome = lockwright().args(options).args([&program]).run()?;
            ensure!(outcome.end == End::Code(0), "{level}: {}", outcome.describe());
            ensure!(outcome.text().ends_with("fine\n"), "{}", outcome.describe());
        }
    }
    Ok(())
}
